"""What a training loop finds that runs in one process, and as the workers of a run."""

import contextlib
import io
import sys
import unittest.mock

from tests.python import fixture

torch = fixture.torch
if torch is not None:
    from torch import nn

    import evenshard
    from evenshard import _exit

SCHEDULES = ("BACKWARD", "FULL", "SEQUENTIAL")
# A tensor that is pushed at once is larger than 64 KiB.
WIDE = 130
_BATCH = 4


def mlp():
    torch.manual_seed(1)
    return nn.Sequential(
        nn.Linear(6, WIDE), nn.Tanh(), nn.Linear(WIDE, WIDE), nn.Tanh(), nn.Linear(WIDE, 5)
    )


def loss_of(script, model, step):
    inputs, targets = script.batch(step)
    return nn.functional.mse_loss(model(inputs), targets)


class Script:
    """What a habit finds: its batches, and how optimizers are made."""

    def __init__(self, rank=None, workers=1):
        self.workers = workers
        # Those whose batches this process has.
        self.ranks = list(range(workers)) if rank is None else [rank]
        self.is_worker = rank is not None

    def batch(self, step, features=6):
        """Inputs and targets of this process."""
        drawn = []
        for rank in self.ranks:
            draw = fixture.generator(100 * step + rank)
            targets = torch.randn(_BATCH, 5, generator=draw)
            drawn.append((torch.randn(_BATCH, features, generator=draw), targets))
        return tuple(torch.cat(part) for part in zip(*drawn))

    def optimizer(self, model, rule=None, **options):
        given = rule(model.parameters()) if rule else torch.optim.SGD(model.parameters(), lr=0.1)
        return evenshard.Optimizer(model, optimizer=given, **options) if self.is_worker else given

    def clip(self, model, clip_grad_norm=None, clip_grad_value=None):
        """What one process does between backward() and step(), and workers leave to the shards."""
        if not self.is_worker and clip_grad_norm is not None:
            torch.nn.utils.clip_grad_norm_(model.parameters(), clip_grad_norm)
        if not self.is_worker and clip_grad_value is not None:
            torch.nn.utils.clip_grad_value_(model.parameters(), clip_grad_value)

    def assign(self, optimizer):
        return optimizer.assign() if self.is_worker else torch.no_grad()

    def no_sync(self, optimizer):
        return optimizer.no_sync() if self.is_worker else contextlib.nullcontext()

    def join(self, optimizer):
        return optimizer.join() if self.is_worker else contextlib.nullcontext()

    def abandon(self, optimizer):
        if self.is_worker:
            optimizer.abandon()
        else:
            optimizer.zero_grad(set_to_none=True)


def small_training(script):
    """A model and its optimizer, with a function for a step."""
    model = nn.Linear(6, 5)
    optimizer = script.optimizer(model)

    def step(number):
        optimizer.zero_grad()
        inputs, targets = script.batch(number)
        nn.functional.mse_loss(model(inputs), targets).backward()
        optimizer.step()

    return model, optimizer, step


def _work(rank, habit, workers):
    """Ends as a program does. A process of multiprocessing does not."""
    torch.manual_seed(7 + rank)
    try:
        return _values_of(habit(Script(rank, workers)))
    except BaseException as error:
        with contextlib.redirect_stderr(io.StringIO()):
            sys.excepthook(type(error), error, error.__traceback__)
        raise
    finally:
        with unittest.mock.patch.object(_exit, "_end_at_once"):
            _exit._end_all()


def reference_of(habit, workers):
    """What `habit(script)` gives in one process that has the batches of all workers."""
    return fixture.apart(lambda: _values_of(habit(Script(None, workers))))


def _values_of(value):
    """Values of their own, without what a closed worker takes with it."""
    if isinstance(value, dict):
        return {key: _values_of(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_values_of(item) for item in value]
    return value.detach().clone() if isinstance(value, torch.Tensor) else value


def outcomes_of(habit, schedule, workers, *, shards=2, scheme="STRIPED", **more):
    """How the workers of a run end that do `habit(script)`. The scheme "RING": without shards."""
    settings = {"rule": "", "schedule": schedule, "workers": workers, "scheme": scheme}
    settings |= {"startup_seconds": 30, "exchange_seconds": 15, **more}
    settings["is_ring"] = scheme == "RING"
    with fixture.Cluster(shards, **settings) as cluster:
        return fixture.outcomes(
            fixture.start_workers(cluster, _work, habit, workers, workers=workers)
        )
