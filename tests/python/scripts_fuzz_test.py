"""Random models and random training loops, made of what scripts do, against one process.

    python3 -m tests.python.scripts_fuzz_test 1 10000     # seeds, as many as there is time for

A program that goes wrong is made small: steps and actions are left out for as long as it goes wrong
in the same way.
"""

import contextlib
import copy
import random
import re
import sys
import unittest

from tests.python import fixture
from tests.python.script import Script, outcomes_of, reference_of

torch = fixture.torch
if torch is not None:
    from torch import nn
    from torch.utils.checkpoint import checkpoint

_SEEDS = range(1, 51)
_FEATURES = 6

# What a step does beside the backward pass and step(), and where.
_BEFORE = ("evaluate", "norms", "assign", "reload")
_BETWEEN = ("norms", "gradient_norms", "clones")
_AFTER = (
    "norms", "average", "state_dict", "copy", "evaluate", "schedule", "assign", "reload",
    "optimizer_state",
)
# What is refused: where, under which schedules, and by which words.
_EARLY = ("BACKWARD", "FULL")
_ALL = ("BACKWARD", "FULL", "SEQUENTIAL")
_FORBIDDEN = {
    "clamp": ("after", _ALL, "was changed by the script"),
    "clamp_data": ("after", _ALL, "was changed by the script"),
    "clamp_between": ("between", _ALL, "was changed by the script"),
    "halve_gradients": ("between", _EARLY, "its gradient was changed"),
    "halve_gradients_data": ("between", _EARLY, "its gradient was changed"),
    "change_rate": ("between", _EARLY, "and other numbers when"),
    "second_backward": ("between", _EARLY, "has a second gradient"),
}


class Model(nn.Module if torch is not None else object):
    """A chain of blocks, each drawn: plain, tied to the one before, reused, frozen, checkpointed, a
    norm, a batch normalisation, or one with a branch that depends on the rank."""

    def __init__(self, draw):
        super().__init__()
        torch.manual_seed(draw.randrange(10**6))
        width = draw.choice((4, 8, 130))
        self.first = nn.Linear(_FEATURES, width)
        self.kinds = [
            draw.choice((
                "plain", "tied", "reused", "frozen", "branch", "norm", "batch_norm", "checkpointed",
            ))
            for _ in range(draw.randrange(1, 5))
        ]
        blocks = []
        for kind in self.kinds:
            if kind == "norm":
                block = nn.LayerNorm(width)
            elif kind == "batch_norm":
                # With a smaller eps it would enlarge rounding where a batch hardly varies.
                block = nn.BatchNorm1d(width, eps=0.1)
            elif kind == "branch":
                block = nn.ModuleList(nn.Linear(width, width) for _ in range(3))
            else:
                block = nn.Linear(width, width, bias=draw.random() < 0.5)
            if kind == "tied" and blocks and isinstance(blocks[-1], nn.Linear):
                block.weight = blocks[-1].weight
            if kind == "frozen":
                block.requires_grad_(False)
            blocks.append(block)
        self.blocks = nn.ModuleList(blocks)
        if draw.random() < 0.3:
            self.unused = nn.Linear(3, 3)
        self.last = nn.Linear(width, 5)

    def forward(self, x, choice=0):
        x = torch.tanh(self.first(x))
        for kind, block in zip(self.kinds, self.blocks):
            if kind == "branch":
                x = x + torch.tanh(block[choice % len(block)](x))
            elif kind == "checkpointed":
                x = torch.tanh(checkpoint(block, x, use_reentrant=False))
            else:
                x = torch.tanh(block(x))
                x = torch.tanh(block(x)) if kind == "reused" else x
        return self.last(x)


class _Statistics:
    """The running statistics of batch normalisations in one process: since the last step each rank
    has its own, and the step takes the mean of those that contribute."""

    def __init__(self, model):
        self._tensors = [b for name, b in model.named_buffers() if "running" in name]
        self._begin()

    def _begin(self):
        self._before = [t.clone() for t in self._tensors]
        self._of_rank = {}

    @contextlib.contextmanager
    def of(self, rank):
        """In a forward pass of a rank."""
        self._set(self._of_rank.get(rank, self._before))
        yield
        self._of_rank[rank] = [t.clone() for t in self._tensors]

    def finish(self, ranks):
        values = self._before
        if ranks:
            of_ranks = zip(*(self._of_rank[rank] for rank in ranks))
            values = [sum(each) / len(ranks) for each in of_ranks]
        self._set(values)
        self._begin()

    def _set(self, values):
        for tensor, value in zip(self._tensors, values):
            tensor.data.copy_(value)  # of which autograd knows nothing


def _state_of(model):
    """Without the counters of batches, which are rank 0's."""
    return {k: v.clone() for k, v in model.state_dict().items() if "num_batches" not in k}


def _groups(draw, model):
    """One to three parameter groups, with rates of their own."""
    parameters = [p for p in model.parameters() if p.requires_grad]
    count = min(len(parameters), draw.choice((1, 1, 2, 3)))
    groups = [{"params": parameters[i::count]} for i in range(count)]
    for group in groups[1:]:
        group["lr"] = draw.choice((0.0, 0.01, 0.05))
        group["weight_decay"] = draw.choice((0.0, 0.01))
    return groups


def _rule(draw):
    kind = draw.choice(("SGD", "momentum", "nesterov", "Adagrad", "Adam", "AdamW"))
    rate = draw.choice((0.01, 0.05))
    decay = draw.choice((0.0, 0.01))
    if kind.startswith("Ada"):
        # With a smaller eps the first steps would be the signs of gradients that are zero but for
        # rounding.
        return lambda groups: getattr(torch.optim, kind)(
            groups, lr=rate, weight_decay=decay, eps=1e-2
        )
    momentum = 0.0 if kind == "SGD" else 0.9
    return lambda groups: torch.optim.SGD(
        groups, lr=rate, weight_decay=decay, momentum=momentum, nesterov=kind == "nesterov"
    )


class Program:
    """What is drawn from a seed; `steps` has the actions of each step, by place."""

    def __init__(self, seed):
        draw = random.Random(seed)
        self.seed = seed
        self.workers = draw.choice((1, 2, 2, 4))
        self.shards = draw.choice((1, 2))
        self.schedule = draw.choice(_ALL)
        self.scheme = draw.choice(("STRIPED", "MEMORY_BASED", "LAYER_BASED"))
        self.scheduler = draw.choice((None, None, "step", "lambda"))
        self.closure = draw.random() < 0.15
        self.limits = draw.choice((
            {}, {}, {"clip_grad_norm": 0.1}, {"clip_grad_norm": 1.0}, {"clip_grad_value": 0.01},
            {"clip_grad_norm": 0.5, "clip_grad_value": 0.02},
        ))
        self.steps = [
            {
                "parts": draw.choice((1, 1, 1, 2, 3)),
                # One process would keep clipped gradients.
                "zero": draw.choice(
                    ("before", "before", "model", "before" if self.limits else "none")
                ),
                "before": draw.sample(_BEFORE, draw.randrange(2)),
                "between": draw.sample(_BETWEEN, draw.randrange(2)),
                "after": draw.sample(_AFTER, draw.randrange(3)),
            }
            for _ in range(draw.randrange(2, 7))
        ]
        self.refused = None
        if draw.random() < 0.3:
            action = draw.choice(sorted(_FORBIDDEN))
            place, schedules, text = _FORBIDDEN[action]
            # What is done after the last step has no effect any more.
            step = self.steps[draw.randrange(len(self.steps) - 1)]
            if self.schedule in schedules and not self.closure:
                step[place] = [*step[place], action]
                self.refused = text
        self.given_up = {}  # by step: the ranks that give their batch up
        self.lengths = [len(self.steps)] * self.workers  # in steps, by rank
        if self.refused is None and not self.closure and draw.random() < 0.5:
            self._draw_what_is_left_out(draw)

    def _draw_what_is_left_out(self, draw):
        """Batches that are given up, and data that ends unevenly. Of one process nobody could say
        whose gradients it keeps from one step to the next, so that all are cleared."""
        for step in self.steps:
            step["zero"] = "before"
        for number in range(len(self.steps)):
            if draw.random() < 0.4:
                self.given_up[number] = draw.sample(
                    range(self.workers), draw.randrange(self.workers + 1)
                )
        if draw.random() < 0.6:
            self.lengths = [draw.randrange(1, len(self.steps) + 1) for _ in self.lengths]
            for step in self.steps:  # all ranks take part in these, also those without data
                for place in ("before", "after"):
                    step[place] = [a for a in step[place] if a not in ("assign", "reload")]

    def length(self, rank):
        return min(self.lengths[rank], len(self.steps))

    def ends_unevenly(self):
        return len({self.length(rank) for rank in range(self.workers)}) > 1

    def contributors(self, number):
        """The ranks whose gradients count in a step, and the divisor of their sum."""
        given_up = [rank for rank in self.given_up.get(number, ()) if number < self.length(rank)]
        counted = [rank for rank in range(self.workers)
                   if number < self.length(rank) and rank not in given_up]
        return counted, max(1, self.workers - len(given_up))

    def __str__(self):
        return "\n".join(f"{name}: {value}" for name, value in vars(self).items())

    def __call__(self, script):
        return _Run(self, script).train()


class _Run:
    def __init__(self, program, script):
        self.program, self.script = program, script
        draw = random.Random(-program.seed)
        self.model = Model(draw)
        groups, rule = _groups(draw, self.model), _rule(draw)
        self.optimizer = script.optimizer(self.model, lambda _: rule(groups), **program.limits)
        self.statistics = _Statistics(self.model)
        self.average = [p.detach().clone() for p in self.model.parameters()]
        self.seen = []
        self.scheduler = None
        if program.scheduler == "step":
            self.scheduler = torch.optim.lr_scheduler.StepLR(self.optimizer, 2, gamma=0.5)
        elif program.scheduler == "lambda":
            self.scheduler = torch.optim.lr_scheduler.LambdaLR(
                self.optimizer, lambda i: min(1, (i + 1) / 4)
            )

    def backward(self, number, divisor, ranks=None):
        losses = []
        for rank in self.script.ranks if ranks is None else ranks:
            inputs, targets = Script(rank, 4).batch(number, _FEATURES)
            own = contextlib.nullcontext() if self.script.is_worker else self.statistics.of(rank)
            with own:
                outputs = self.model(inputs, rank + number)
            losses.append(nn.functional.mse_loss(outputs, targets))
        loss = sum(losses) / divisor
        loss.backward()
        return loss

    def gradients(self, number, step):
        """Those of this process. Returns None if there are none in this step."""
        ranks, divisor = self.program.contributors(number)
        if self.script.is_worker:  # the shards divide
            ranks, divisor = [rank for rank in self.script.ranks if rank in ranks], 1
        if step["zero"] == "before":
            self.optimizer.zero_grad(set_to_none=True)
        elif step["zero"] == "model":
            for p in self.model.parameters():
                p.grad = None
        for part in range(step["parts"] - 1):
            with self.script.no_sync(self.optimizer):
                # A batch is given up when a part of it has been computed.
                self.backward(10 * number + part, divisor * step["parts"],
                              ranks or self.script.ranks)
        loss = None
        if ranks:
            loss = self.backward(10 * number + step["parts"] - 1, divisor * step["parts"], ranks)
            self.script.clip(self.model, **self.program.limits)
        if not self.script.is_worker:
            self.statistics.finish(ranks)
        return loss

    def train(self):
        length = max(map(self.program.length, self.script.ranks))
        if not self.program.ends_unevenly():
            self.train_for(length)
            return self.seen, self.average, _state_of(self.model)
        with self.script.join(self.optimizer):
            self.train_for(length)
        return _state_of(self.model)

    def train_for(self, length):
        for number, step in enumerate(self.program.steps[:length]):
            self.act(step["before"], number)
            if self.program.closure:
                self.optimizer.step(lambda n=number, s=step: self.gradients(n, s))
            else:
                loss = self.gradients(number, step)
                self.act(step["between"], number)
                if loss is None:
                    self.script.abandon(self.optimizer)
                else:
                    self.optimizer.step()
            self.act(step["after"], number)

    def act(self, actions, number):
        for action in actions:
            getattr(self, "_" + action)(number)

    def _evaluate(self, _):
        self.model.eval()
        with torch.no_grad():
            self.seen.append(self.model(torch.ones(2, _FEATURES)))
        self.model.train()

    def _norms(self, _):
        self.seen.append([p.detach().norm() for p in self.model.parameters()])

    def _gradient_norms(self, _):
        for p in self.model.parameters():
            assert p.grad is None or bool(torch.isfinite(p.grad).all())

    def _clones(self, _):
        self.seen.append([p.detach().clone() for p in self.model.parameters()])

    def _average(self, _):
        with torch.no_grad():
            for a, p in zip(self.average, self.model.parameters()):
                a.lerp_(p, 0.1)

    def _state_dict(self, _):
        self.seen.append(_state_of(self.model))

    def _copy(self, _):
        self.seen.append(_state_of(copy.deepcopy(self.model)))

    def _schedule(self, _):
        if self.scheduler is not None:
            self.scheduler.step()

    def _assign(self, _):
        with self.script.assign(self.optimizer):
            self.model.last.weight.mul_(0.9)
            self.model.first.bias.clamp_(-0.2, 0.2)

    def _reload(self, _):
        self.optimizer.load_state_dict(copy.deepcopy(self.optimizer.state_dict()))

    def _optimizer_state(self, _):
        for index, state in sorted(self.optimizer.state_dict()["state"].items()):
            found = {key: value for key, value in state.items() if value is not None}
            if found:
                self.seen.append([index, copy.deepcopy(found)])  # torch.optim's goes on

    def _clamp(self, _):
        with torch.no_grad():
            self.model.last.weight.mul_(0.5)

    def _clamp_data(self, _):
        self.model.last.weight.data.mul_(0.5)

    def _clamp_between(self, _):
        self._clamp(_)

    def _halve_gradients(self, _):
        self.model.last.weight.grad.mul_(0.5)

    def _halve_gradients_data(self, _):
        self.model.last.weight.grad.data.mul_(0.5)

    def _change_rate(self, _):
        self.optimizer.param_groups[0]["lr"] *= 0.5

    def _second_backward(self, number):
        self.backward(10 * number + 9, 1)


def complaint_of(program):
    """What is wrong with a program's run, or None."""
    ends = outcomes_of(
        program, program.schedule, program.workers, shards=program.shards, scheme=program.scheme
    )
    errors = [end.error for end in ends if end.error is not None]
    if program.refused is not None:
        named = any(re.search(program.refused, error) for error in errors)
        return None if named else f"not refused by \"{program.refused}\": {errors}"
    if errors:
        return f"failed: {errors}\n{ends[0].trace}"
    expected = reference_of(program, program.workers)
    for rank, end in enumerate(ends):
        try:
            torch.testing.assert_close(end.value, expected, rtol=1e-3, atol=1e-5)
        except AssertionError as error:
            return f"worker {rank} has other values: {error}"
    return None


def _is_whole(program):
    """Whether what is refused is still in it, and has an effect."""
    return program.refused is None or any(
        action in step[place]
        for action, (place, _, _) in _FORBIDDEN.items()
        for step in program.steps[:-1]
    )


def smaller(program):
    """The program with fewer steps and actions, as long as something is wrong."""
    changed = True
    while changed:
        changed = False
        for number in reversed(range(len(program.steps))):
            kept = program.steps
            if len(kept) > 1:
                program.steps = kept[:number] + kept[number + 1:]
                if _is_whole(program) and complaint_of(program) is not None:
                    changed = True
                    continue
                program.steps = kept
            for place in ("before", "between", "after"):
                actions = kept[number][place]
                if actions and program.refused is None:
                    kept[number][place] = []
                    if complaint_of(program) is not None:
                        changed = True
                        continue
                    kept[number][place] = actions
    return program


@unittest.skipIf(torch is None, "PyTorch is not installed: random training loops")
class ScriptsFuzzTest(unittest.TestCase):
    def test_random_programs(self):
        for seed in _SEEDS:
            with self.subTest(seed=seed):
                complaint = complaint_of(Program(seed))
                if complaint is not None:
                    program = smaller(Program(seed))
                    self.fail(f"{complaint_of(program) or complaint}\n{program}")


def main(first, last):
    """Runs the programs of these seeds, and prints what goes wrong."""
    wrong = 0
    for seed in range(first, last + 1):
        complaint = complaint_of(Program(seed))
        if complaint is not None:
            wrong += 1
            program = smaller(Program(seed))
            print(f"seed {seed}: {complaint_of(program) or complaint}\n{program}\n", flush=True)
    print(f"{last - first + 1} programs, {wrong} wrong")
    return 1 if wrong else 0


if __name__ == "__main__":
    if len(sys.argv) == 3:
        sys.exit(main(int(sys.argv[1]), int(sys.argv[2])))
    unittest.main()
