"""The exchange of a model that a worker trains by itself for several steps (local steps)."""

from __future__ import annotations

from evenshard import _library, errors
from evenshard._torch.model_exchange import ModelExchange
from evenshard._torch.unchanged import same


class RoundExchange(ModelExchange):
    """What is pushed is how far the model has come since the last exchange: what was received minus
    what it has now. The script and its optimizer change parameters as they like in between."""

    def _watched(self):
        return []

    def require_received(self) -> None:
        """Errors: FailedPrecondition if a parameter is not what was received."""
        for i, item in enumerate(self.tensors):
            if item.is_parameter and not same(item.tensor, self.received_value(i)):
                raise errors.FailedPrecondition(
                    f"{item.name}: was changed by the script before the first step, and the shards"
                    " would take that for something that was trained; allowed: before"
                    " evenshard.LocalSteps is made"
                )

    def exchange(self, weight: float) -> None:
        """Exchanges the model, and gives it what comes back. `weight`: how much it counts in the
        mean; 0: the worker takes part without contributing."""
        contributes = weight > 0
        if contributes:
            self.handle.set_weight(weight)
        self.begin(contributes, None)
        absent = []
        for i, item in enumerate(self.tensors):
            if not contributes or item.is_buffer and not self._stage_buffer(i):
                absent.append(i)
            elif not item.is_buffer:
                self._placement.stage_change(i, weight)
        self._push(absent, _library.ZEROS if contributes else _library.NOTHING)
        self._push_staged(wait=True)
        self._pushed()
