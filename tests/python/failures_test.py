"""evenshard.Optimizer when something is wrong: each error says what, where and what is allowed."""

import gc
import signal
import threading
import time
import unittest

from tests.python import fixture

torch = fixture.torch
import evenshard  # noqa: E402

if torch is not None:
    from tests.python import models

_NO_SHARD = fixture.config(["127.0.0.1:1"], startup_seconds=1)


def _step(optimizer, model, rank, name="mlp"):
    optimizer.zero_grad()
    models.loss_of(model, name, optimizer.iteration, rank).backward()
    optimizer.step()


def _train(rank, steps, change=None, rule=None):
    """Trains; `change(rank, model, iteration)` comes before each step."""
    model = models.make("mlp")
    with evenshard.Optimizer(model, optimizer=rule and rule(rank, model)) as optimizer:
        while optimizer.iteration < steps:
            optimizer.zero_grad()
            models.loss_of(model, "mlp", optimizer.iteration, rank).backward()
            if change is not None:
                change(rank, model, optimizer)
            optimizer.step()
    return models.state(model)


@unittest.skipIf(torch is None, "PyTorch is not installed: errors of evenshard.Optimizer")
class FirstMistakesTest(unittest.TestCase):
    """What somebody who comes from torch.optim writes first."""

    def refused(self, *arguments, **options):
        with self.assertRaises(evenshard.Error) as caught:
            evenshard.Optimizer(*arguments, **options)
        return str(caught.exception)

    def test_parameters_in_place_of_the_model(self):
        self.assertIn(
            "model: is a generator, allowed: a torch.nn.Module",
            self.refused(models.mlp().parameters()),
        )

    def test_an_optimizer_in_place_of_the_config(self):
        model = models.mlp()
        self.assertIn(
            "evenshard.Optimizer(model, optimizer=torch.optim.SGD(",
            self.refused(model, torch.optim.SGD(model.parameters(), lr=0.1)),
        )

    def test_no_launcher(self):
        self.assertIn("`evenshard run --workers N SCRIPT`", self.refused(models.mlp()))
        for ask in (evenshard.rank, evenshard.workers):
            with self.assertRaisesRegex(evenshard.ConfigError, "`evenshard run --workers N"):
                ask()


@unittest.skipIf(torch is None, "PyTorch is not installed: errors of evenshard.Optimizer")
class ModelTest(unittest.TestCase):
    """Models that are refused before anything is connected to."""

    def refused(self, model, *parts, kind=evenshard.TensorError, **arguments):
        with self.assertRaises(kind) as caught:
            evenshard.Optimizer(model, _NO_SHARD, rank=0, **arguments)
        for part in parts:
            self.assertIn(part, str(caught.exception))

    def test_a_type_that_is_not_known(self):
        for model in (models.mlp(), models.mlp().to(torch.bfloat16)):
            model[2].weight.data = model[2].weight.data.double()
            self.refused(
                model, "worker 0: 2.weight: is torch.float64 of shape (5, 16), allowed:"
                " torch.float32, torch.float16, torch.bfloat16", "call model.float()",
            )

    def test_not_contiguous(self):
        model = torch.nn.Conv2d(3, 4, 3).to(memory_format=torch.channels_last)
        self.refused(model, "weight: is not contiguous, with shape (4, 3, 3, 3)", "call model.to(")

    def test_all_problems_come_at_once(self):
        model = models.mlp().double()
        model[0].weight.data = model[0].weight.data.t().contiguous().t()
        with self.assertRaises(evenshard.TensorError) as caught:
            evenshard.Optimizer(model, _NO_SHARD, rank=0)
        self.assertEqual(len(str(caught.exception).splitlines()), 5)

    def test_another_device(self):
        model = models.mlp()
        model[0].bias = torch.nn.Parameter(torch.empty(16, device="meta"))
        self.refused(model, "0.bias: is on the device meta, allowed: cpu, cuda")

    def test_a_lazy_model(self):
        model = torch.nn.Sequential(torch.nn.LazyLinear(3))
        self.refused(model, "0.weight: has no shape yet", "run one batch")

    def test_nothing_to_train(self):
        model = models.mlp().requires_grad_(False)
        self.refused(model, "no parameter that requires a gradient")

    def test_an_optimizer_that_is_not_known(self):
        model = models.mlp()
        self.refused(
            model, "optimizer: is torch.optim.rprop.Rprop, allowed: torch.optim.SGD",
            kind=evenshard.ConfigError, optimizer=torch.optim.Rprop(model.parameters()),
        )

    def test_the_model_stays_usable_when_the_join_fails(self):
        def work():
            model = models.make("mlp")
            before = models.state(model)
            self.refused(
                model, "127.0.0.1:1", "limits.startup_seconds", kind=evenshard.DeadlineExceeded
            )
            for name, value in models.state(model).items():
                self.assertTrue(torch.equal(value, before[name]))
            models.loss_of(model, "mlp", 0, 0).backward()
            self.assertFalse(model._forward_pre_hooks)
            self.assertEqual(fixture.leftovers()["maps"], [])

        self.assertIsNone(fixture.Process(work).outcome().error)


@unittest.skipIf(torch is None, "PyTorch is not installed: errors of evenshard.Optimizer")
class RunTest(unittest.TestCase):
    def ends(self, cluster, function, *arguments, workers=4):
        return fixture.outcomes(
            fixture.start_workers(cluster, function, *arguments, workers=workers)
        )

    def test_a_second_optimizer_in_a_process(self):
        def train(rank):
            with evenshard.Optimizer(models.make("mlp")) as first:
                message = ""
                try:
                    evenshard.Optimizer(models.make("mlp"))
                except evenshard.FailedPrecondition as error:
                    message = str(error)
                first.zero_grad()
                first.step()
            return message

        with fixture.Cluster(workers=1) as cluster:
            (message,) = fixture.run_workers(self, cluster, train, workers=1)
        self.assertIn("this process is worker 0 of the run already; allowed: one", message)

    def test_another_try_after_a_refusal(self):
        def train(rank):
            model = models.make("mlp")
            given = torch.optim.SGD(model.parameters(), lr=0.1)
            try:
                evenshard.LocalSteps(model, given)
            except evenshard.ConfigError as error:
                refusal = error  # which keeps what was half made
            with evenshard.LocalSteps(model, given, steps=2) as optimizer:
                _step(optimizer, model, rank)
            return str(refusal)

        with fixture.Cluster(workers=1, schedule="SEQUENTIAL") as cluster:
            (message,) = fixture.run_workers(self, cluster, train, workers=1)
        self.assertIn("steps", message)

    def test_a_generator_that_is_closed_early(self):
        def train(rank):
            model = models.make("mlp")

            def steps():
                with evenshard.Optimizer(model) as optimizer:
                    while True:
                        _step(optimizer, model, rank)
                        yield optimizer.iteration

            for iteration in steps():
                if iteration == 3:
                    break

        with fixture.Cluster(workers=2) as cluster:
            fixture.run_workers(self, cluster, train, workers=2)

    def test_another_number_of_workers(self):
        end = fixture.Process(
            lambda: evenshard.Optimizer(models.mlp(), _NO_SHARD),
            environment={"RANK": "0", "WORLD_SIZE": "3"},
        ).outcome()
        self.assertEqual(end.kind, "ConfigError")
        self.assertIn("workers: is 4 in the config, but WORLD_SIZE is 3", end.error)

    def test_another_model_on_rank_2(self):
        def work(rank):
            model = models.make("mlp")
            if rank == 2:
                model[2] = torch.nn.Linear(16, 7)
            if (rank == 2) != (first == 2):
                assert may_come.wait(fixture.PATIENCE_SECONDS)
            evenshard.Optimizer(model).close()

        for first in (0, 2):
            may_come = fixture.multiprocessing.get_context("fork").Event()
            with self.subTest(first=first), fixture.Cluster(1) as cluster:
                workers = fixture.start_workers(cluster, work)
                if first == 0:
                    fixture.until(lambda: "declares a model" in cluster.log())
                else:
                    time.sleep(1)  # in which it would have declared its model
                may_come.set()
                for rank, end in enumerate(fixture.outcomes(workers)):
                    self.assertIn("worker 2 has another model than worker 0", end.error)
                    self.assertIn("2.weight", end.error)
                    kind = "FailedPrecondition" if rank == 2 else "Aborted"
                    self.assertEqual(end.kind, kind, end.error)
                    if rank != 2:
                        self.assertIn(f"process {workers[2].pid}", end.error)

    def test_a_parameter_without_a_gradient(self):
        def work(rank, schedule):
            model = models.make("mlp")
            model.unused = torch.nn.Parameter(torch.ones(3))
            # Worker 1 alone has a gradient for it. Those of the others count as zeros.
            with evenshard.Optimizer(model, overrides=[f"exchange.schedule={schedule}"]) as o:
                for _ in range(3):
                    o.zero_grad(set_to_none=True)
                    loss = models.loss_of(model, "mlp", o.iteration, rank)
                    if rank == 1:
                        loss = loss + model.unused.sum()
                    loss.backward()
                    o.step()
            return model.unused.detach().clone()

        for schedule in ("SEQUENTIAL", "FULL"):
            with self.subTest(schedule), fixture.Cluster(2, schedule=schedule) as cluster:
                for value in fixture.run_workers(self, cluster, work, schedule):
                    torch.testing.assert_close(value, torch.full((3,), 1 - 3 * 0.1 / 4))

    def test_a_nan_is_refused_with_its_place(self):
        def change(rank, model, optimizer):
            if rank == 1 and optimizer.iteration == 2:
                model[2].weight.grad[3, 4] = float("nan")

        with fixture.Cluster(1, schedule="SEQUENTIAL") as cluster:
            ends = self.ends(cluster, _train, 5, change)
        for end in ends:
            self.assertIn("worker 1", end.error or "")
            self.assertIn("2.weight", end.error)
        self.assertEqual(ends[1].status, "INVALID_ARGUMENT")

    def test_a_nan_is_left_out_if_the_config_says_so(self):
        def work(rank):
            model = models.make("mlp")
            with evenshard.Optimizer(model) as optimizer:
                for _ in range(4):
                    optimizer.zero_grad()
                    loss = models.loss_of(model, "mlp", optimizer.iteration, rank)
                    (loss * (float("nan") if rank == 1 and optimizer.iteration == 2 else 1)
                     ).backward()
                    optimizer.step()
                return optimizer.skipped, models.state(model)

        settings = {
            "update": "policy: SYNC deterministic: true non_finite: SKIP", "schedule": ""
        }
        with fixture.Cluster(2, **settings) as cluster:
            values = fixture.run_workers(self, cluster, work)
        self.assertEqual([skipped for skipped, _ in values], [0, 1, 0, 0])
        for value in values[0][1].values():
            self.assertTrue(bool(torch.isfinite(value).all()))

    def test_workers_with_different_learning_rates(self):
        def rule(rank, model):
            optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
            optimizer.param_groups[0]["initial_lr"] = 0.1
            optimizer.param_groups[0]["lr"] = 0.2 if rank == 3 else 0.1
            return optimizer

        with fixture.Cluster(2, rule="") as cluster:
            ends = self.ends(cluster, _train, 3, None, rule)
        for end in ends:
            self.assertIn("3", end.error or "")
            self.assertIn("rate", end.error)

    def test_a_worker_that_fails_tells_the_others_why(self):
        def change(rank, model, optimizer):
            if rank == 2 and optimizer.iteration == 1:
                raise ValueError("the disk of worker two is full")

        with fixture.Cluster(2) as cluster:
            ends = self.ends(cluster, _train, 5, change)
        self.assertEqual(ends[2].kind, "ValueError")
        for rank in (0, 1, 3):
            self.assertIn("the disk of worker two is full", ends[rank].error or "")
            self.assertEqual(ends[rank].kind, "Aborted")

    def test_two_backward_passes_before_a_step(self):
        def work(rank, schedule, uses_no_sync):
            model = models.make("mlp")
            with evenshard.Optimizer(model) as optimizer:
                for _ in range(3):
                    optimizer.zero_grad()
                    half = models.loss_of(model, "mlp", optimizer.iteration, rank) / 2
                    if uses_no_sync:
                        with optimizer.no_sync():
                            half.backward()
                    else:
                        half.backward()
                    (models.loss_of(model, "mlp", optimizer.iteration, rank) / 2).backward()
                    optimizer.step()
                return models.state(model)

        with fixture.Cluster(2, workers=1, schedule="FULL") as cluster:
            end = self.ends(cluster, work, "FULL", False, workers=1)[0]
        self.assertEqual(end.kind, "FailedPrecondition")
        self.assertIn("has a second gradient before step()", end.error)
        self.assertIn("with optimizer.no_sync():", end.error)
        expected = models.reference(
            "mlp", lambda m: torch.optim.SGD(m.parameters(), lr=0.1), steps=3, workers=1
        )
        for schedule, uses_no_sync in (("FULL", True), ("SEQUENTIAL", False), ("BACKWARD", True)):
            with self.subTest(schedule):
                with fixture.Cluster(2, workers=1, schedule=schedule) as cluster:
                    found = fixture.run_workers(
                        self, cluster, work, schedule, uses_no_sync, workers=1
                    )[0]
                for key, value in expected.items():
                    torch.testing.assert_close(found[key], value)

    def test_gradients_that_are_clipped(self):
        def change(rank, model, optimizer):
            torch.nn.utils.clip_grad_norm_(model.parameters(), 0.01)

        for schedule in ("FULL", "BACKWARD"):
            with self.subTest(schedule):
                with fixture.Cluster(1, workers=1, schedule=schedule) as cluster:
                    end = self.ends(cluster, _train, 3, change, workers=1)[0]
                self.assertEqual(end.kind, "FailedPrecondition")
                self.assertIn("changed after it had been pushed", end.error)
                self.assertIn("schedule: SEQUENTIAL", end.error)
        with fixture.Cluster(1, workers=1, schedule="SEQUENTIAL") as cluster:
            found = fixture.run_workers(self, cluster, _train, 3, change, workers=1)[0]

        def reference():
            model = models.make("mlp")
            optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
            for iteration in range(3):
                optimizer.zero_grad()
                models.loss_of(model, "mlp", iteration, 0).backward()
                change(0, model, None)
                optimizer.step()
            return models.state(model)

        for key, value in fixture.apart(reference).items():
            torch.testing.assert_close(found[key], value)

    def test_a_fork_after_the_join(self):
        def work(rank):
            model = models.make("mlp")
            with evenshard.Optimizer(model) as optimizer:
                _step(optimizer, model, rank)
                child = fixture.Process(lambda: _step(optimizer, model, rank)).outcome()
                reader = fixture.Process(lambda: optimizer.close()).outcome()
                _step(optimizer, model, rank)
            return child.kind, child.error, reader.error

        with fixture.Cluster(1, workers=1, schedule="SEQUENTIAL") as cluster:
            kind, error, closing = fixture.run_workers(self, cluster, work, workers=1)[0]
        self.assertEqual(kind, "FailedPrecondition")
        self.assertIn("was forked", error)
        self.assertIsNone(closing)

    def test_what_cannot_be_done_after_the_start(self):
        def work(rank):
            model = models.make("mlp")
            frozen = torch.nn.Parameter(torch.ones(3), requires_grad=False)
            model.register_parameter("frozen", frozen)
            texts = []

            def refused(call):
                try:
                    call()
                except evenshard.Error as error:
                    texts.append(str(error))
                else:
                    texts.append("")

            with evenshard.Optimizer(model) as optimizer:
                _step(optimizer, model, rank)
                group = {"params": [torch.nn.Parameter(torch.ones(2))]}
                refused(lambda: optimizer.add_param_group(group))
                refused(lambda: model.load_state_dict(model.state_dict()))
                saved = optimizer.state_dict()
                optimizer.load_state_dict(saved)
                saved["param_groups"][0]["params"] = [0]
                refused(lambda: optimizer.load_state_dict(saved))
                frozen.requires_grad_(True)
                refused(optimizer.step)
                frozen.requires_grad_(False)
                model[0].weight.data = model[0].weight.data + 1
                refused(optimizer.step)
            refused(optimizer.step)
            return texts

        with fixture.Cluster(1, workers=1, schedule="SEQUENTIAL") as cluster:
            texts = fixture.run_workers(self, cluster, work, workers=1)[0]
        for part, text in zip(
            ("add_param_group", "the model's parameters live at the shards", "has groups of [1]",
             "frozen: requires a gradient now", "0.weight: was changed by the script",
             "the worker is closed"),
            texts,
        ):
            self.assertIn(part, text)

    def test_interrupted_while_it_waits(self):
        started = fixture.multiprocessing.get_context("fork").Event()

        def work(rank):
            model = models.make("mlp")
            with evenshard.Optimizer(model) as optimizer:
                for _ in range(3):
                    _step(optimizer, model, rank)
                optimizer.synchronize()
                if rank == 3:
                    started.set()
                    time.sleep(fixture.PATIENCE_SECONDS)  # the others wait for this one
                while True:
                    _step(optimizer, model, rank)

        with fixture.Cluster(2) as cluster:
            workers = fixture.start_workers(cluster, work)
            self.assertTrue(started.wait(fixture.PATIENCE_SECONDS))
            time.sleep(0.5)  # until they wait
            workers[1].signal(signal.SIGINT)
            ends = [workers[1].outcome()]
            ends += [workers[rank].outcome() for rank in (0, 2)]
            workers[3].kill()
        self.assertEqual(ends[0].kind, "KeyboardInterrupt")
        for end in ends[1:]:
            self.assertEqual(end.kind, "Aborted", end.error)
            self.assertIn("KeyboardInterrupt", end.error)

    def test_nothing_is_left(self):
        def work(rank):
            def once():
                model = models.make("convolutional")
                with evenshard.Optimizer(model) as optimizer:
                    while optimizer.iteration < 5:
                        _step(optimizer, model, rank, "convolutional")
                del optimizer
                gc.collect()
                return models.state(model)

            before = fixture.leftovers()
            once()
            # gRPC ends its threads in the background.
            fixture.until(lambda: {**fixture.leftovers(), "idle": 0} == before, seconds=30)
            return before, fixture.leftovers(), threading.active_count()

        for transport in ("unix", "tcp"):
            with self.subTest(transport):
                with fixture.Cluster(2, workers=1, transport=transport) as cluster:
                    before, after, threads = fixture.run_workers(
                        self, cluster, work, workers=1
                    )[0]
                self.assertEqual(after["maps"], [])
                self.assertEqual(after["memory"], [])
                self.assertEqual(after["shm"], before["shm"])
                self.assertEqual(after["sockets"], before["sockets"])
                self.assertEqual(after["threads"], before["threads"])
                self.assertLess(after["idle"], 6)
                self.assertEqual(threads, 1)


if __name__ == "__main__":
    unittest.main()
