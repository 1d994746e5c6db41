"""What torch.cuda.amp.GradScaler tells an optimizer that divides by the scale itself."""

from __future__ import annotations

import torch


def state_of(optimizer: torch.optim.Optimizer, grad_scaler) -> tuple | None:
    """Returns whether a gradient is not finite, and the scale to divide by or None. Returns None if
    step() was not called by a GradScaler.

    PyTorch sets attributes of the optimizer. Before 2.0 it gives the scaler to step() instead.
    """
    if grad_scaler is not None:
        state = grad_scaler._per_optimizer_states[id(optimizer)]
        if state["stage"].name == "UNSCALED":  # by unscale_()
            found, scale = state["found_inf_per_device"], None
        else:
            found = grad_scaler._check_inf_per_device(optimizer)
            scale = grad_scaler._get_scale_async()
        return any(float(value) > 0 for value in found.values()), _scalar(scale)
    found_inf = getattr(optimizer, "found_inf", None)
    if found_inf is None:
        return None
    return float(found_inf) > 0, _scalar(getattr(optimizer, "grad_scale", None))


def forget(optimizer: torch.optim.Optimizer) -> None:
    """PyTorch takes the attributes away after step(), but not if that raises, and multiplies the
    next scale by the one that it finds."""
    for name in ("found_inf", "grad_scale"):
        vars(optimizer).pop(name, None)


def _scalar(scale):
    return None if scale is None else scale.reshape(())
