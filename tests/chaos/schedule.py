"""The faults of a run, drawn from a seed.

The same seed and sizes give the same faults. When each strikes is a fraction of the training's
iterations, so that all of them strike on a fast machine as on a slow one.
"""

import dataclasses
import random

KILL = "kill"  # SIGKILL
STOP = "stop"  # SIGSTOP, and SIGCONT after a while
CUT = "cut"  # no packet reaches a shard's address or leaves it
RESET = "reset"  # the connections of a process are destroyed, and it may connect anew
FULL_DISK = "full disk"  # the file system of the checkpoints is full

LAUNCH = "launch"

# A run begins and ends undisturbed, so that all faults find every process at work and the last
# checkpoint is written.
_BEGIN = 0.04
_END = 0.8

# The first of every four kills of a shard takes its neighbour with it, which has its copy, so that
# the run goes back to a checkpoint.
_PAIR_PERIOD = 4


@dataclasses.dataclass(frozen=True)
class Fault:
    at: float  # the fraction of the iterations after which it strikes
    kind: str
    targets: tuple  # "worker 3", "ps 0", "launch"; empty for FULL_DISK
    seconds: float = 0.0  # how long it lasts; 0 for KILL and RESET

    def __str__(self):
        text = " ".join([self.kind, " and ".join(self.targets)]).strip()
        return text + (f" for {self.seconds:.1f} s" if self.seconds else "")

    @property
    def group(self):
        """What it is counted with: "kill worker", "kill 2 ps", "full disk"."""
        roles = [target.split()[0] for target in self.targets]
        many = f"{len(roles)} " if len(roles) > 1 else ""
        return f"{self.kind} {many}{roles[0]}" if roles else self.kind


# What draw can be told to draw alone, as Fault.group says it.
ONLY = ("kill ps", "kill 2 ps", "kill worker")


def draw(seed, count, workers, shards, silence_seconds, has_network, only=None):
    """Returns `count` faults in the order in which they strike. More than half of them are kills,
    and a third of those strike shards. `has_network` says whether links and disks can be disturbed
    too. `only`: one of ONLY, if all are to be of that group."""
    rng = random.Random(seed)
    if only is not None:
        roles = [f"worker {r}" for r in range(workers)] if only == "kill worker" else [
            f"ps {index}" for index in range(shards)
        ]
        pick = _Picker(rng, roles)
        targets = [(pick(),) for _ in range(count)]
        if only == "kill 2 ps":
            targets = [(first, _copy_of(first, shards)) for (first,) in targets]
        return _in_time(rng, [(KILL, target, 0.0) for target in targets])
    kills = count // 2 + 1 if count > 1 else count
    shard_kills = round(kills / 3)
    pick_worker = _Picker(rng, [f"worker {rank}" for rank in range(workers)])
    pick_shard = _Picker(rng, [f"ps {index}" for index in range(shards)])

    drawn = [(KILL, (pick_worker(),), 0.0) for _ in range(kills - shard_kills)]
    for i in range(shard_kills):
        target = pick_shard()
        is_pair = i % _PAIR_PERIOD == _PAIR_PERIOD - 1 and shards > 1
        drawn.append((KILL, (target, _copy_of(target, shards)) if is_pair else (target,), 0.0))

    def stop(target, longest):
        return STOP, (target,), round(rng.uniform(0.1, longest) * silence_seconds, 1)

    others = [
        lambda: stop(pick_shard(), 0.8),
        lambda: stop(pick_worker(), 2),
        lambda: (CUT, (pick_shard(),), round(rng.uniform(0.1, 1.5) * silence_seconds, 1)),
        lambda: (FULL_DISK, (), round(rng.uniform(0.2, 2) * silence_seconds, 1)),
        lambda: stop(pick_shard(), 2),
        lambda: (RESET, (pick_worker(),), 0.0),
        lambda: stop(LAUNCH, 2),
        lambda: stop(pick_worker(), 0.8),
        lambda: (RESET, (pick_shard(),), 0.0),
    ]
    if not has_network:
        others = [make for i, make in enumerate(others) if i in (0, 1, 4, 6, 7)]
    rng.shuffle(others)
    drawn += [others[i % len(others)]() for i in range(count - kills)]

    rng.shuffle(drawn)
    return _in_time(rng, drawn)


def _copy_of(shard, shards):
    return f"ps {(int(shard.split()[1]) + 1) % shards}"


def _in_time(rng, drawn):
    width = (_END - _BEGIN) / max(len(drawn), 1)
    return [
        Fault(round(_BEGIN + width * (i + rng.random()), 4), *what) for i, what in enumerate(drawn)
    ]


@dataclasses.dataclass(frozen=True)
class Killing:
    """When everything is killed: `iteration` iterations into the training, or, if that is None,
    when this part of the time has passed that an undisturbed run takes to begin its training."""

    iteration: int = None
    start: float = None

    def __str__(self):
        if self.iteration is not None:
            return f"at iteration {self.iteration}"
        return f"after {100 * self.start:.0f} % of the time to start"


# The part of the killings that strike a run that is still starting.
_EARLY = 0.25


def draw_killings(seed, count, iterations):
    """Returns the moments at which everything is killed. Those in the training have ascending
    iterations, so that each is reached."""
    rng = random.Random(seed)
    moments = sorted(rng.sample(range(1, max(int(iterations * _END), count + 2)), count))
    return [
        Killing(start=round(rng.random(), 2)) if rng.random() < _EARLY else Killing(moment)
        for moment in moments
    ]


class _Picker:
    """Draws without repeating a name before all others have been drawn."""

    def __init__(self, rng, names):
        self._rng = rng
        self._names = names
        self._left = []

    def __call__(self):
        if not self._left:
            self._left = list(self._names)
            self._rng.shuffle(self._left)
        return self._left.pop()
