"""Models of 16 bits: parameters and gradients have 16 bits at the workers, masters and the
optimizer's state are float32 at the shards. Beside one process that does the same."""

import contextlib
import itertools
import unittest

from tests.python import fixture

torch = fixture.torch
if torch is not None:
    from torch import nn

    import evenshard
    from tests.python import models

_STEPS = 20


class _Cast(nn.Module if torch else object):
    def __init__(self, dtype):
        super().__init__()
        self.dtype = dtype

    def forward(self, x):
        return x.to(self.dtype)


def _mlp():
    torch.manual_seed(1)
    return models.mlp().to(torch.bfloat16)


def _mixed():
    """A bfloat16 model with a norm in float32, and one whose running statistics are bfloat16."""
    torch.manual_seed(1)
    half = torch.bfloat16
    return nn.Sequential(
        nn.Linear(6, 16, dtype=half), nn.BatchNorm1d(16, dtype=half), _Cast(torch.float32),
        nn.LayerNorm(16), _Cast(half), nn.Tanh(), nn.Linear(16, 5, dtype=half),
    )


def _loss_of(model, step, rank):
    inputs, targets = models.batch("mlp", step, rank)
    return nn.functional.cross_entropy(model(inputs.to(torch.bfloat16)).float(), targets)


def _sgd(parameters):
    return torch.optim.SGD(parameters, lr=0.05, momentum=0.9)


def _adam(parameters):
    return torch.optim.Adam(parameters, lr=0.003)


def _adamw(parameters):
    return torch.optim.AdamW(parameters, lr=0.003, weight_decay=0.1)


def _backward(model, optimizer, step, rank, parts):
    """The gradient of `parts` batches, added up in the parameters' own type."""
    for part in range(parts):
        is_last = part == parts - 1
        with contextlib.nullcontext() if is_last else optimizer.no_sync():
            (_loss_of(model, parts * step + part, rank) / parts).backward()


class _NoOptimizer:
    no_sync = contextlib.nullcontext


def _masters_of(path, model=None):
    """What a Reader finds, by name, and loads into `model`."""
    with evenshard.Reader(path) as reader:
        snapshot = reader.pull()
        if model is not None:
            snapshot.load_into(model)
        return {name: torch.tensor(snapshot[name]) for name in snapshot}


def _train(rank, make, rule, options=None, parts=1, path=None, steps=_STEPS):
    """Returns what the model has, the masters, and the optimizer's state."""
    model = make()
    with evenshard.Optimizer(
        model, optimizer=rule(model.parameters()), **(options or {})
    ) as optimizer:
        while optimizer.iteration < steps:
            optimizer.zero_grad()
            _backward(model, optimizer, optimizer.iteration, rank, parts)
            optimizer.step()
        optimizer.synchronize()
        state = optimizer.state_dict()["state"]
        masters = None
        if rank == 0:
            loaded = make()
            masters = _masters_of(path, loaded)
            for name, value in models.state(model).items():
                assert torch.equal(models.state(loaded)[name], value), name
        optimizer.barrier()
        return models.state(model), masters, state


def _reference(make, rule, workers, options=None, parts=1, steps=_STEPS):
    """The same in one process: the mean gradient in float32, masters in float32, and a model that
    has them rounded."""
    model = make()
    parameters = list(model.parameters())
    masters = [nn.Parameter(p.detach().float()) for p in parameters]
    optimizer = rule(masters)
    for step in range(steps):
        for master in masters:
            master.grad = torch.zeros_like(master)
        for rank in range(workers):
            model.zero_grad(set_to_none=True)
            _backward(model, _NoOptimizer, step, rank, parts)
            for master, parameter in zip(masters, parameters):
                master.grad += parameter.grad.float()
        for master in masters:
            master.grad /= workers
        if options:
            nn.utils.clip_grad_norm_(masters, options["clip_grad_norm"])
        optimizer.step()
        with torch.no_grad():
            for master, parameter in zip(masters, parameters):
                parameter.copy_(master)
    names = [name for name, _ in model.named_parameters()]
    return dict(zip(names, (m.detach() for m in masters))), optimizer.state_dict()["state"]


@unittest.skipIf(torch is None, "PyTorch is not installed: models of 16 bits")
class TrainingTest(unittest.TestCase):
    def run_workers(self, cluster, function, *arguments, workers=4):
        return fixture.run_workers(self, cluster, function, *arguments, workers=workers)

    def check(self, found, expected):
        """All workers have the bits of the masters, rounded once, and these are the reference's."""
        masters, state = expected
        for name, value in found[0][0].items():
            for other, _, _ in found[1:]:
                self.assertTrue(torch.equal(value, other[name]), name)
            self.assertTrue(torch.equal(value, found[0][1][name].to(value.dtype)), name)
        for name, master in masters.items():
            self.assertEqual(found[0][1][name].dtype, torch.float32)
            torch.testing.assert_close(found[0][1][name], master, rtol=1e-5, atol=2e-6, msg=name)
        for number, entry in state.items():
            for key, value in entry.items():
                own = found[0][2][number][key]
                torch.testing.assert_close(own, torch.as_tensor(value), rtol=1e-4, atol=1e-6)

    def train(self, make, rule, *, workers, options=None, parts=1, shards=2, **settings):
        with fixture.Cluster(shards, workers=workers, rule="", **settings) as cluster:
            found = self.run_workers(
                cluster, _train, make, rule, options, parts, cluster.path, workers=workers
            )
        self.check(found, fixture.apart(_reference, make, rule, workers, options, parts))
        return found

    def test_rules_and_numbers_of_workers(self):
        schedules = itertools.cycle(["BACKWARD", "SEQUENTIAL", "FULL"])
        for rule, workers in itertools.product((_sgd, _adam, _adamw), (1, 2, 4)):
            with self.subTest(rule.__name__, workers=workers):
                self.train(_mlp, rule, workers=workers, schedule=next(schedules))

    def test_placements_and_ways_give_the_same_bits(self):
        first = None
        ways = [("tcp", True), ("unix", True), ("unix", False)]
        for number, scheme in enumerate(["LAYER_BASED", "MEMORY_BASED", "STRIPED"]):
            for schedule in ("BACKWARD", "SEQUENTIAL", "FULL"):
                transport, shared_memory = ways[number]
                with self.subTest(scheme, schedule=schedule):
                    found = self.train(
                        _mlp, _adamw, workers=2, scheme=scheme, schedule=schedule,
                        transport=transport, shared_memory=shared_memory, shards=1 + number,
                    )
                    first = first or found[0][1]
                    for name, value in first.items():
                        self.assertTrue(torch.equal(found[0][1][name], value), name)

    def test_clipping(self):
        for schedule in ("BACKWARD", "SEQUENTIAL"):
            self.train(
                _mlp, _sgd, workers=2, options={"clip_grad_norm": 0.1}, schedule=schedule
            )

    def test_accumulation(self):
        for schedule in ("BACKWARD", "SEQUENTIAL"):
            self.train(_mlp, _adamw, workers=2, parts=2, schedule=schedule)

    def test_a_norm_in_float32(self):
        with fixture.Cluster(2, workers=1, rule="", schedule="BACKWARD") as cluster:
            found = self.run_workers(
                cluster, _train, _mixed, _adamw, None, 1, cluster.path, workers=1
            )
        expected = fixture.apart(_reference, _mixed, _adamw, 1)
        self.check(found, expected)
        self.assertEqual(found[0][0]["3.weight"].dtype, torch.float32)
        self.assertTrue(torch.equal(found[0][0]["3.weight"], found[0][1]["3.weight"]))

    def test_means_of_running_statistics(self):
        def statistics_of(rank):
            model = _mixed()
            with evenshard.Optimizer(model, optimizer=_sgd(model.parameters())) as optimizer:
                _loss_of(model, 0, rank).backward()
                before = model[1].running_mean.clone()
                optimizer.step()
                optimizer.synchronize()
                return before, model[1].running_mean.clone()

        with fixture.Cluster(1, workers=2, rule="", schedule="SEQUENTIAL") as cluster:
            (own, mean), (other, _) = self.run_workers(cluster, statistics_of, workers=2)
        self.assertTrue(torch.equal(mean, ((own.float() + other.float()) / 2).to(torch.bfloat16)))

    def test_a_config_of_16_bits_leaves_what_is_exact_exact(self):
        # The float32 norm travels in the config's encoding, all else in its own.
        self.train(
            _mlp, _sgd, workers=2, schedule="BACKWARD",
            exchange="gradient_encoding: FLOAT16 parameter_encoding: FLOAT16",
        )


def _memory_of_exchange():
    """The bytes of the exchanged memory that this process has, in pages that were used."""
    resident, is_ours = 0, False
    with open("/proc/self/smaps", encoding="utf-8") as file:
        for line in file:
            if "-" in line.split()[0] and ":" not in line.split()[0]:
                is_ours = "memfd:ps-" in line
            elif is_ours and line.startswith("Rss:"):
                resident += 1024 * int(line.split()[1])
    return resident


@unittest.skipIf(torch is None, "PyTorch is not installed: models of 16 bits")
class StateTest(unittest.TestCase):
    def run_workers(self, function, *arguments, workers=2, **settings):
        with fixture.Cluster(2, workers=workers, rule="", **settings) as cluster:
            return fixture.run_workers(
                self, cluster, function, cluster.path, *arguments, workers=workers
            )

    def test_the_exchange_has_four_bytes_a_parameter(self):
        def work(rank, _):
            elements = 1 << 20
            model = nn.Sequential(nn.Linear(1024, 1024, bias=False, dtype=torch.bfloat16))
            with evenshard.Optimizer(model, optimizer=_adamw(model.parameters())) as optimizer:
                for _ in range(2):
                    optimizer.zero_grad()
                    model(torch.ones(1, 1024, dtype=torch.bfloat16)).sum().backward()
                    optimizer.step()
                trained = _memory_of_exchange() / elements
                state = optimizer.state_dict()
                optimizer.load_state_dict(state)
                with optimizer.assign():
                    model[0].weight.clamp_(-1e-3, 1e-3)
                return trained, _memory_of_exchange() / elements

        for found in self.run_workers(work, schedule="BACKWARD"):
            for bytes_each in found:
                self.assertLess(bytes_each, 4.1)
                self.assertGreater(bytes_each, 3.9)

    def test_an_assignment_leaves_the_masters_of_what_it_does_not_change(self):
        def work(rank, path):
            model = _mlp()
            with evenshard.Optimizer(model, optimizer=_sgd(model.parameters())) as optimizer:
                for step in range(5):
                    optimizer.zero_grad()
                    _loss_of(model, step, rank).backward()
                    optimizer.step()
                before = _masters_of(path) if rank == 0 else None
                optimizer.barrier()
                with optimizer.assign():
                    model[0].weight[0] = 0.25 + rank
                optimizer.barrier()
                after = _masters_of(path) if rank == 0 else None
                optimizer.barrier()
                optimizer.zero_grad()
                _loss_of(model, 5, rank).backward()
                optimizer.step()
                return before, after, models.state(model)

        (before, after, own), (_, _, other) = self.run_workers(work, schedule="BACKWARD")
        for name, value in before.items():
            if name == "0.weight":
                self.assertTrue((after[name][0] == 0.25).all())
                self.assertFalse(torch.equal(value[1:], value[1:].to(torch.bfloat16).float()))
                value[0] = 0.25
            self.assertTrue(torch.equal(value, after[name]), name)
        for name, value in own.items():
            self.assertTrue(torch.equal(value, other[name]), name)

    def test_a_training_goes_on_from_its_state(self):
        def half(rank, path, saved, first):
            model = _mlp()
            if saved is not None:
                model.load_state_dict(saved["model"])
            with evenshard.Optimizer(model, optimizer=_adam(model.parameters())) as optimizer:
                if saved is not None:
                    optimizer.load_state_dict(saved["optimizer"])
                for step in range(first, first + 5):
                    optimizer.zero_grad()
                    _loss_of(model, step, rank).backward()
                    optimizer.step()
                state = optimizer.state_dict()
                return {"model": models.state(model), "optimizer": state}

        saved = self.run_workers(half, None, 0)[0]
        for entry in saved["optimizer"]["state"].values():
            self.assertEqual({entry[k].dtype for k in ("exp_avg", "exp_avg_sq")}, {torch.float32})
        ended = self.run_workers(half, saved, 5)[0]

        def reference():
            # As the run: what is saved of a model is what the workers have of it.
            model = _mlp()
            parameters = list(model.parameters())
            optimizer = None
            for begin in (0, 5):
                masters = [nn.Parameter(p.detach().float()) for p in parameters]
                before, optimizer = optimizer, _adam(masters)
                if before is not None:
                    optimizer.load_state_dict(before.state_dict())
                for step in range(begin, begin + 5):
                    grads = [torch.zeros_like(m) for m in masters]
                    for rank in range(2):
                        model.zero_grad(set_to_none=True)
                        _loss_of(model, step, rank).backward()
                        for total, parameter in zip(grads, parameters):
                            total += parameter.grad.float() / 2
                    for master, grad in zip(masters, grads):
                        master.grad = grad
                    optimizer.step()
                    with torch.no_grad():
                        for master, parameter in zip(masters, parameters):
                            parameter.copy_(master)
            return models.state(model)

        for name, value in fixture.apart(reference).items():
            torch.testing.assert_close(ended["model"][name], value, rtol=2**-7, atol=1e-6)


@unittest.skipIf(torch is None, "PyTorch is not installed: models of 16 bits")
class Float16Test(unittest.TestCase):
    """The gradients are given, since PyTorch's CPU computes few operations in float16."""

    def run_workers(self, function, workers=2, **settings):
        with fixture.Cluster(2, workers=workers, rule="", **settings) as cluster:
            return fixture.run_workers(self, cluster, function, cluster.path, workers=workers)

    def test_a_scale_is_taken_out_in_float32(self):
        scale = torch.tensor(2.0**16)
        gradient = 2.0**-30  # which float16 has not

        def work(rank, path):
            model = models.make("mlp").half()
            with evenshard.Optimizer(
                model, optimizer=torch.optim.SGD(model.parameters(), lr=2.0**20)
            ) as optimizer:
                before = _masters_of(path)
                optimizer.barrier()
                for parameter in model.parameters():
                    parameter.grad = torch.full_like(parameter, gradient * float(scale))
                # As GradScaler.step does it.
                optimizer.grad_scale, optimizer.found_inf = scale, torch.tensor(0.0)
                optimizer.step()
                del optimizer.grad_scale, optimizer.found_inf
                after = _masters_of(path)
                optimizer.barrier()
                return before, after, models.state(model)

        for before, after, model in self.run_workers(work, schedule="SEQUENTIAL"):
            for name, value in before.items():
                self.assertTrue(torch.equal(after[name], value - 2.0**-10), name)
                self.assertTrue(torch.equal(model[name], after[name].half()), name)

    @unittest.skipUnless(
        torch and hasattr(torch.amp, "GradScaler"), "this PyTorch has no GradScaler for the CPU"
    )
    def test_a_grad_scaler(self):
        def train(ranks, step_of, model):
            scaler = torch.amp.GradScaler("cpu", init_scale=2.0**14)
            for step in range(10):
                for rank in ranks:
                    inputs, targets = models.batch("mlp", step, rank)
                    scores = model(inputs.half()).float()
                    model.zero_grad()
                    scaler.scale(nn.functional.cross_entropy(scores, targets)).backward()
                    step_of(scaler, rank)
                scaler.update()

        def work(rank, path):
            model = models.make("mlp").half()
            with evenshard.Optimizer(model, optimizer=_adam(model.parameters())) as optimizer:
                train([rank], lambda scaler, _: scaler.step(optimizer), model)
                masters = _masters_of(path)
                optimizer.barrier()
                return models.state(model), masters

        def reference():
            model = models.make("mlp").half()
            parameters = list(model.parameters())
            masters = [nn.Parameter(p.detach().float()) for p in parameters]
            optimizer = _adam(masters)

            def add(scaler, rank):
                for master, parameter in zip(masters, parameters):
                    mean = parameter.grad.float() / scaler.get_scale() / 2
                    master.grad = mean if rank == 0 else master.grad + mean
                if rank == 1:
                    scaler._per_optimizer_states[0]["found_inf_per_device"] = {
                        torch.device("cpu"): torch.zeros(1)
                    }
                    optimizer.step()
                    with torch.no_grad():
                        for master, parameter in zip(masters, parameters):
                            parameter.copy_(master)

            train([0, 1], add, model)
            return [master.detach() for master in masters]

        expected = fixture.apart(reference)
        for model, masters in self.run_workers(work, schedule="SEQUENTIAL"):
            for value, (name, master) in zip(expected, masters.items()):
                torch.testing.assert_close(master, value, rtol=1e-4, atol=1e-5, msg=name)
                self.assertTrue(torch.equal(model[name], master.half()), name)

    def test_a_step_without_a_scaler_is_refused(self):
        def work(rank, _):
            model = models.make("mlp").half()
            with evenshard.Optimizer(model, optimizer=_sgd(model.parameters())) as optimizer:
                for parameter in model.parameters():
                    parameter.grad = torch.zeros_like(parameter)
                try:
                    optimizer.step()
                except evenshard.FailedPrecondition as error:
                    return str(error)
                finally:
                    optimizer.close("was refused")
            return ""

        text = self.run_workers(work, workers=1, schedule="SEQUENTIAL")[0]
        self.assertIn("worker 0: 0.weight: is torch.float16", text)
        self.assertIn("scaler.step(optimizer)", text)

    def test_a_parameter_beyond_the_range_is_named(self):
        def work(rank, _):
            model = models.make("mlp").half()
            optimizer = evenshard.Optimizer(
                model, optimizer=torch.optim.SGD(model.parameters(), lr=1e6)
            )
            for parameter in model.parameters():
                parameter.grad = torch.ones_like(parameter)
            optimizer.grad_scale, optimizer.found_inf = torch.tensor(1.0), torch.tensor(0.0)
            optimizer.step()

        for shared_memory in (True, False):
            with fixture.Cluster(
                1, workers=1, rule="", schedule="SEQUENTIAL", shared_memory=shared_memory
            ) as cluster:
                end = fixture.outcomes(fixture.start_workers(cluster, work, None, workers=1))[0]
            # All are; the one that comes first is named.
            self.assertRegex(
                end.error or "", r"65504, the largest FLOAT16\): [02]\.(weight|bias) element 0"
            )


@unittest.skipIf(torch is None, "PyTorch is not installed: models of 16 bits")
class RefusedTest(unittest.TestCase):
    def test_a_worker_with_another_type(self):
        def work(rank):
            model = models.make("mlp")
            if rank == 0:
                model.to(torch.bfloat16)
            evenshard.Optimizer(model, optimizer=_sgd(model.parameters()))

        with fixture.Cluster(1, workers=2, rule="") as cluster:
            ends = fixture.outcomes(fixture.start_workers(cluster, work, workers=2))
        self.assertRegex(
            ends[1].error, r"0\.weight \[16, 6\] of BFLOAT16.*, and 0\.weight \[16, 6\]"
        )

    def test_float16_under_a_schedule_that_pushes_early(self):
        text = fixture.config(["127.0.0.1:1"], schedule="BACKWARD")
        make = lambda: evenshard.Optimizer(models.mlp().half(), text, rank=1)  # noqa: E731
        end = fixture.Process(make).outcome()
        self.assertEqual(end.kind, "FailedPrecondition", end.error)
        self.assertRegex(end.error, r"^worker 1: 0\.weight: is torch\.float16.*GradScaler, under")

    def test_a_worker_without_pytorch(self):
        text = fixture.config(["127.0.0.1:1"]).replace(
            "from_workers {}", 'from_workers { tensor { name: "w" shape: [2] type: BFLOAT16 } }'
        )
        end = fixture.Process(lambda: evenshard.Worker(text, rank=0)).outcome()
        self.assertEqual(end.kind, "TensorError", end.error)
        self.assertIn("the config has tensors of 16 bits, w; allowed: float32", end.error)


@unittest.skipIf(torch is None, "PyTorch is not installed: models of 16 bits")
class DistributedTest(unittest.TestCase):
    def test_the_mean_gradient_is_rounded_once(self):
        def work(rank):
            model = _mlp()
            own = torch.optim.SGD(model.parameters(), lr=0.05)
            with evenshard.DistributedOptimizer(own, model) as optimizer:
                for step in range(5):
                    optimizer.zero_grad()
                    _loss_of(model, step, rank).backward()
                    optimizer.step()
                return models.state(model)

        def reference():
            model = _mlp()
            optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
            for step in range(5):
                means = [torch.zeros(p.shape) for p in model.parameters()]
                for rank in range(2):
                    model.zero_grad(set_to_none=True)
                    _loss_of(model, step, rank).backward()
                    for mean, parameter in zip(means, model.parameters()):
                        mean += parameter.grad.float()
                for mean, parameter in zip(means, model.parameters()):
                    parameter.grad = (mean / 2).to(torch.bfloat16)
                optimizer.step()
            return models.state(model)

        for schedule in ("BACKWARD", "SEQUENTIAL"):
            with fixture.Cluster(2, workers=2, rule="", schedule=schedule) as cluster:
                found = fixture.run_workers(self, cluster, work, workers=2)
            for name, value in fixture.apart(reference).items():
                for own in found:
                    self.assertTrue(torch.equal(own[name], value), name)


if __name__ == "__main__":
    unittest.main()
