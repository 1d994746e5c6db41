"""Four workers through evenshard.Optimizer against one process with torch.optim."""

import functools
import itertools
import unittest

from tests.python import fixture

torch = fixture.torch
if torch is not None:
    import evenshard
    from tests.python import models

_STEPS = 100

# By name: the rule as a config has it, and as torch.optim has it.
_RULES = {
    "SGD": (
        "kind: SGD learning_rate: 0.1",
        lambda p: torch.optim.SGD(p, lr=0.1),
    ),
    "momentum": (
        "kind: MOMENTUM learning_rate: 0.05 momentum: 0.9 weight_decay: 0.001",
        lambda p: torch.optim.SGD(p, lr=0.05, momentum=0.9, weight_decay=0.001),
    ),
    "Nesterov": (
        "kind: NESTEROV learning_rate: 0.05 momentum: 0.8",
        lambda p: torch.optim.SGD(p, lr=0.05, momentum=0.8, nesterov=True),
    ),
    "Adam": (
        "kind: ADAM learning_rate: 0.002 weight_decay: 0.01",
        lambda p: torch.optim.Adam(p, lr=0.002, weight_decay=0.01),
    ),
    "AdamW": (
        "kind: ADAMW learning_rate: 0.002 beta1: 0.8 weight_decay: 0.05",
        lambda p: torch.optim.AdamW(p, lr=0.002, betas=(0.8, 0.999), weight_decay=0.05),
    ),
    "Adagrad": (
        "kind: ADAGRAD learning_rate: 0.05 epsilon: 1e-10",
        lambda p: torch.optim.Adagrad(p, lr=0.05),
    ),
    "RMSprop": (
        "kind: RMSPROP learning_rate: 0.002 weight_decay: 0.01 epsilon: 1e-3",
        lambda p: torch.optim.RMSprop(p, lr=0.002, weight_decay=0.01, eps=1e-3),
    ),
    "RMSprop with momentum": (
        "kind: RMSPROP_MOMENTUM learning_rate: 0.001 momentum: 0.8 beta2: 0.95 epsilon: 1e-3",
        lambda p: torch.optim.RMSprop(p, lr=0.001, momentum=0.8, alpha=0.95, eps=1e-3),
    ),
    # The numbers of which 0 is not what a config has that says nothing.
    "Adam with a beta2 of 0": (
        "kind: ADAM learning_rate: 0.002 beta2: 0 epsilon: 1e-2",
        lambda p: torch.optim.Adam(p, lr=0.002, betas=(0.9, 0.0), eps=1e-2),
    ),
    "RMSprop with an alpha of 0": (
        "kind: RMSPROP learning_rate: 0.002 beta2: 0 epsilon: 1e-2",
        lambda p: torch.optim.RMSprop(p, lr=0.002, alpha=0.0, eps=1e-2),
    ),
    "Adam with amsgrad": (
        "kind: ADAM_AMSGRAD learning_rate: 0.002 beta2: 0.9 weight_decay: 0.01",
        lambda p: torch.optim.Adam(
            p, lr=0.002, betas=(0.9, 0.9), weight_decay=0.01, amsgrad=True
        ),
    ),
    "AdamW with amsgrad": (
        "kind: ADAMW_AMSGRAD learning_rate: 0.002 beta2: 0.9 weight_decay: 0.05",
        lambda p: torch.optim.AdamW(
            p, lr=0.002, betas=(0.9, 0.9), weight_decay=0.05, amsgrad=True
        ),
    ),
}


def _step_lr(optimizer):
    return torch.optim.lr_scheduler.StepLR(optimizer, 20, gamma=0.5)


def _cosine(optimizer):
    return torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 60)


def _warm_up(optimizer):
    # Begins with a rate of 0.
    return torch.optim.lr_scheduler.LambdaLR(optimizer, lambda i: min(1.0, i / 10))


def _groups(model):
    """No weight decay for biases and norms, and a rate of its own for one more tensor."""
    parameters = dict(model.named_parameters())
    plain = [n for n, p in parameters.items() if p.dim() < 2]
    other = [n for n in parameters if n not in plain][:1]
    rest = [n for n in parameters if n not in plain + other]
    return [
        {"params": [parameters[n] for n in rest]},
        {"params": [parameters[n] for n in plain], "weight_decay": 0.0},
        {"params": [parameters[n] for n in other], "lr": 0.001},
    ]


def _train(rank, name, rule, make_scheduler=None, steps=_STEPS):
    """A worker. `rule` makes an optimizer of torch.optim, or is None for the config's."""
    # Only rank 0 has the values to begin with.
    model = models.make(name, seed=1 if rank == 0 else 100 + rank)
    optimizer = evenshard.Optimizer(model, optimizer=rule and rule(model))
    scheduler = make_scheduler and make_scheduler(optimizer)
    with optimizer:
        while optimizer.iteration < steps:
            optimizer.zero_grad()
            models.loss_of(model, name, optimizer.iteration, rank).backward()
            optimizer.step()
            if scheduler is not None:
                scheduler.step()
        found = models.state(model)
    # What it was is still there when the exchange is gone.
    for key, value in models.state(model).items():
        assert torch.equal(value, found[key]), key
    return found


def _whole_gradients(model, iteration, rank):
    """Gives parameters gradients of whole numbers, whose sums float32 has without rounding."""
    draw = fixture.generator(10 * iteration + rank)
    for parameter in model.parameters():
        parameter.grad = torch.randint(-8, 9, parameter.shape, generator=draw).float()


_LION_STEPS = 6


def _lion(rank):
    model = models.make("mlp")
    with evenshard.Optimizer(model) as optimizer:
        while optimizer.iteration < _LION_STEPS:
            _whole_gradients(model, optimizer.iteration, rank)
            optimizer.step()
        state = optimizer.state_dict()["state"]
        return models.state(model), [state[i]["exp_avg"] for i in range(len(state))]


def _lion_reference():
    """Chen et al. 2023, algorithm 2, for the mean gradient of four workers."""
    model = models.make("mlp")
    averages = [torch.zeros_like(p) for p in model.parameters()]
    for iteration in range(_LION_STEPS):
        gradients = [torch.zeros_like(p) for p in model.parameters()]
        for rank in range(4):
            _whole_gradients(model, iteration, rank)
            for total, parameter in zip(gradients, model.parameters()):
                total += parameter.grad / 4
        with torch.no_grad():
            for w, m, g in zip(model.parameters(), averages, gradients):
                w -= 0.125 * (torch.sign(0.5 * m + 0.5 * g) + 0.25 * w)
                m.copy_(0.75 * m + 0.25 * g)
    return models.state(model), averages


@unittest.skipIf(torch is None, "PyTorch is not installed: the conformance with torch.optim")
class ConformanceTest(unittest.TestCase):
    def check(self, found, expected):
        """All workers have the same bits, and those of the reference but for rounding."""
        for key, value in expected.items():
            for other in found[1:]:
                self.assertTrue(torch.equal(found[0][key], other[key]), key)
            torch.testing.assert_close(found[0][key], value, rtol=1e-5, atol=2e-6, msg=key)

    def train(self, cluster, *arguments):
        return fixture.run_workers(self, cluster, _train, *arguments)

    def test_rules_of_the_config(self):
        for number, (rule, (text, make)) in enumerate(_RULES.items()):
            with self.subTest(rule):
                schedule = ["SEQUENTIAL", "BACKWARD", "FULL"][number % 3]
                with fixture.Cluster(2, rule=text, schedule=schedule) as cluster:
                    found = self.train(cluster, "mlp", None)
                self.check(found, models.one_batch_reference("mlp", lambda m: make(m.parameters())))

    def test_rules_of_torch_optim_with_schedulers(self):
        schedulers = itertools.cycle([_step_lr, _cosine, _warm_up])
        for (rule, (_, make)), scheduler in zip(_RULES.items(), schedulers):
            with self.subTest(rule, scheduler=scheduler.__name__):
                rule_of = lambda m, make=make: make(m.parameters())  # noqa: E731
                with fixture.Cluster(2, rule="") as cluster:
                    found = self.train(cluster, "mlp", rule_of, scheduler)
                self.check(found, models.reference("mlp", rule_of, scheduler))

    def test_lion(self):
        # The sign of a mean that is not 0 only by rounding would make a difference of whole steps.
        text = "kind: LION learning_rate: 0.125 beta1: 0.5 beta2: 0.75 weight_decay: 0.25"
        with fixture.Cluster(2, rule=text) as cluster:
            found = fixture.run_workers(self, cluster, _lion)
        expected, averages = fixture.apart(_lion_reference)
        self.check([model for model, _ in found], expected)
        for own, average in zip(found[0][1], averages):
            self.assertTrue(torch.equal(own, average))

    def test_models(self):
        cases = {
            "convolutional": [("SGD", None), ("Nesterov", _cosine), ("AdamW", None)],
            "transformer": [("momentum", _warm_up), ("Adam", None), ("AdamW", _step_lr)],
        }
        for name, rules in cases.items():
            for rule, scheduler in rules:
                with self.subTest(name, rule=rule):
                    text, make = _RULES[rule]
                    with fixture.Cluster(2, rule=text) as cluster:
                        found = self.train(cluster, name, None, scheduler)
                    expected = models.reference(
                        name, lambda m, make=make: make(m.parameters()), scheduler
                    )
                    self.check(found, expected)

    def test_parameter_groups(self):
        rules = {
            "SGD": lambda m: torch.optim.SGD(_groups(m), lr=0.05, momentum=0.9, weight_decay=0.01),
            "AdamW": lambda m: torch.optim.AdamW(_groups(m), lr=0.002, weight_decay=0.1),
        }
        for (rule, make), scheduler in itertools.product(rules.items(), [None, _step_lr]):
            with self.subTest(rule, scheduler=scheduler):
                with fixture.Cluster(3, rule="") as cluster:
                    found = self.train(cluster, "transformer", make, scheduler)
                expected = models.reference("transformer", make, scheduler)
                self.check(found, expected)

    def test_the_placement_and_the_way_make_no_difference(self):
        make = functools.partial(torch.optim.SGD, lr=0.05, momentum=0.9)
        text = "kind: MOMENTUM learning_rate: 0.05 momentum: 0.9"
        expected = models.reference("convolutional", lambda m: make(m.parameters()), steps=20)
        ways = [("tcp", False), ("unix", False), ("unix", True), ("tcp", True)]
        schemes = ["LAYER_BASED", "MEMORY_BASED", "STRIPED"]
        schedules = ["SEQUENTIAL", "BACKWARD", "FULL"]
        first = None
        # Each pair of a scheme and a number of shards, of a way and a schedule, comes once.
        for shards, (number, scheme) in itertools.product(range(1, 5), enumerate(schemes)):
            way = (shards + number) % 4
            transport, shared_memory = ways[way]
            schedule = schedules[(way + number) % 3]
            with self.subTest(
                scheme, shards=shards, transport=transport, shared_memory=shared_memory,
                schedule=schedule,
            ):
                with fixture.Cluster(
                    shards, transport=transport, shared_memory=shared_memory, scheme=scheme,
                    schedule=schedule, rule=text,
                ) as cluster:
                    found = self.train(cluster, "convolutional", None, None, 20)
                first = first or found[0]
                self.check(found, expected)
                for key, value in first.items():
                    self.assertTrue(torch.equal(found[0][key], value), key)

    def test_asynchronous_updates_of_one_worker_are_those_of_one_process(self):
        text, make = _RULES["momentum"]
        with fixture.Cluster(2, workers=1, update="policy: ASYNC", rule=text) as cluster:
            found = fixture.run_workers(self, cluster, _train, "convolutional", None, workers=1)
        expected = models.reference(
            "convolutional", lambda m: make(m.parameters()), workers=1
        )
        self.check(found, expected)


if __name__ == "__main__":
    unittest.main()
