"""The update modes in which a run can be disturbed, and how each is judged.

    BITS    the end has the bits of the undisturbed run, since what is pushed and counted does not
            depend on the moments of the faults (verdict.py)
    LEDGER  the order of updates depends on them, and what a worker that was killed had not pushed
            completely is left out: each push leaves a mark of its own in the parameters (ledger.py)
    SHARES  whose gradients count depends on them, but not how often there is an update (shares.py)
"""

import dataclasses

BITS = "bits"
LEDGER = "ledger"
SHARES = "shares"

# SHARES: what the worker program pushes with the backend EMULATED is periodic in the ranks, and
# rounding adds up from update to update.
MOST_WORKERS = 16
MOST_ITERATIONS = 20000

# The learning rate there.
RATE = 0.125

_FROM_WORKERS = "model { from_workers {} }"
# As many parameters as pusher.c has.
_TRAINED = """\
model {
  input { channels: 64 height: 1 width: 1 }
  layer { name: "fc0" linear { out_features: 64 bias: false } }
  layer { name: "fc1" linear { out_features: 64 bias: false } }
  layer { name: "fc2" linear { out_features: 64 bias: false } }
  layer { name: "fc3" linear { out_features: 64 bias: false } }
}
compute { backend: EMULATED }"""
_MOMENTUM = "optimizer { kind: MOMENTUM learning_rate: 0.02 }"
# Exact, whatever the order of the updates.
_COUNTS = "optimizer { kind: SGD learning_rate: 1 }"


@dataclasses.dataclass(frozen=True)
class Mode:
    update: str  # in text format; {quorum} stands for a number of workers
    judged_by: str = BITS
    model: str = _FROM_WORKERS
    optimizer: str = _MOMENTUM
    more: str = ""  # of the config

    @property
    def has_iterations(self):
        """Whether all chunks come to the same iterations, at which checkpoints are made."""
        return self.judged_by != LEDGER

    @property
    def trains(self):
        """Whether the workers are the worker program, not pusher.c."""
        return self.judged_by == SHARES


MODES = {
    "SYNC": Mode("policy: SYNC deterministic: true"),
    "LOCAL": Mode(
        "policy: SYNC deterministic: true",
        optimizer="optimizer { kind: NESTEROV learning_rate: 0.5 }", more="local { steps: 4 }",
    ),
    "QUORUM": Mode(
        "policy: QUORUM quorum: {quorum} deterministic: true", SHARES, _TRAINED,
        f"optimizer {{ kind: SGD learning_rate: {RATE} }}",
    ),
    "SSP": Mode("policy: SSP staleness: 3", LEDGER, optimizer=_COUNTS),
    "ASYNC": Mode("policy: ASYNC", LEDGER, optimizer=_COUNTS),
}


def quorum_of(workers):
    return max(1, workers - max(1, workers // 4))
