"""evenshard.Worker, on arrays of numpy, array.array, memoryview and PyTorch."""

import array
import os
import signal
import threading
import time
import unittest

from tests.python import fixture

import evenshard  # noqa: E402

try:
    import numpy
except ImportError:
    numpy = None
torch = fixture.torch

_needs_numpy = unittest.skipIf(numpy is None, "numpy is not installed: arrays of numpy")
_needs_torch = unittest.skipIf(torch is None, "PyTorch is not installed: its tensors by DLPack")

_NO_SHARD = fixture.config(["127.0.0.1:1"], workers=1, startup_seconds=1)


def _floats(*values):
    return array.array("f", values)


def _numbers(values):
    return [round(float(value), 5) for value in values]


_ENDED_WHILE_IT_JOINS = """
import array, os, signal, sys, threading, evenshard
signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGTERM)).start()
evenshard.Worker(sys.argv[1], {"w": array.array("f", [1])}, rank=0)
"""


class JoinTest(unittest.TestCase):
    def test_a_program_that_ends_itself_while_it_waits_for_shards(self):
        config = fixture.config(["127.0.0.1:1"], workers=1)
        self.assertEqual(
            fixture.run_script(_ENDED_WHILE_IT_JOINS, arguments=[config]), (0, "", "")
        )


class ExchangeTest(unittest.TestCase):
    def test_without_numpy_arrays(self):
        def work(rank):
            w, b = _floats(*[1 + rank] * 50), _floats(rank)
            with evenshard.Worker(tensors={"net.w": w, "net.b": b}) as worker:
                at_first = _numbers(w)
                for _ in range(2):
                    gradients = {"net.w": _floats(*[rank] * 50), "net.b": _floats(4)}
                    worker.push_pull(gradients, out={"net.w": w})
                assert worker.iteration == 2 and worker.rank == rank and worker.workers == 2
                counts = worker.statistics()
                b = _numbers(worker.parameters["net.b"])
            assert worker.iteration == 2 and worker.statistics()[:4] == counts[:4]
            return at_first, _numbers(w), b, counts.iterations

        with fixture.Cluster(2, workers=2) as cluster:
            values = fixture.run_workers(self, cluster, work, workers=2)
        for value in values:
            self.assertEqual(value, ([1] * 50, [0.9] * 50, [-0.8], 2))

    def test_shards_with_iterations_behind_them(self):
        def work(rank, continues):
            with evenshard.Worker(tensors={"a.w": _floats(1, 2)}, continues=continues) as worker:
                worker.push_pull({"a.w": _floats(1, 1)})
                return worker.iteration, _numbers(worker.parameters["a.w"])

        with fixture.Cluster(1, workers=2) as cluster:
            fixture.run_workers(self, cluster, work, None, workers=2)
            for end in fixture.outcomes(fixture.start_workers(cluster, work, None, workers=2)):
                self.assertEqual(end.kind, "FailedPrecondition")
                self.assertIn("1 iterations of an earlier run behind them", end.error)
            # Nothing has been lost.
            values = fixture.run_workers(self, cluster, work, True, workers=2)
        for iteration, parameters in values:
            self.assertEqual(iteration, 2)
            self.assertEqual([round(number, 4) for number in parameters], [0.8, 1.8])

    def test_step_by_step(self):
        def work(rank, schedule):
            with evenshard.Worker(tensors={"a.w": _floats(1, 2), "b.w": _floats(3)}) as worker:
                worker.begin(learning_rates={"a.w": 0.5, "b.w": 1.0})
                worker.push("b.w", _floats(1))
                worker.push("a.w", _floats(2, 2), has_gradient=rank == 0)
                out = _floats(0)
                worker.wait_all()
                worker.begin(contributes=rank == 1)
                worker.gradients["a.w"][0] = 10
                worker.gradients["a.w"][1] = 0
                worker.push("a.w")
                worker.push("b.w")
                worker.wait("b.w", out=out)
                worker.wait_all()
                worker.pull()
                return _numbers(worker.parameters["a.w"]), _numbers(out)

        for schedule in ("SEQUENTIAL", "BACKWARD", "FULL"):
            with self.subTest(schedule):
                with fixture.Cluster(1, workers=2, schedule=schedule) as cluster:
                    values = fixture.run_workers(self, cluster, work, schedule, workers=2)
                for value in values:
                    self.assertEqual(value, ([-0.5, 1.5], [1.9]))

    def test_waits_for_one_tensor_after_the_other_end_an_iteration(self):
        def work(rank):
            with evenshard.Worker(tensors={"a.w": _floats(1, 2), "b.w": _floats(3)}) as worker:
                for _ in range(50):
                    worker.begin()
                    worker.push("b.w", _floats(1))
                    worker.push("a.w", _floats(1, 1))
                    worker.wait("a.w")
                    worker.wait("b.w")
                return worker.iteration

        for schedule in ("SEQUENTIAL", "BACKWARD", "FULL"):
            with self.subTest(schedule):
                with fixture.Cluster(1, workers=1, schedule=schedule) as cluster:
                    values = fixture.run_workers(self, cluster, work, workers=1)
                self.assertEqual(values, [50])

    def test_running_statistics_go_past_the_optimizer(self):
        def work(rank):
            tensors = {"w": _floats(1), "mean": _floats(5)}
            with evenshard.Worker(tensors=tensors, running_statistics=["mean"]) as worker:
                gradients = {"w": _floats(1), "mean": _floats(rank)}
                worker.push_pull(gradients, out=tensors, learning_rates=0.5)
            return _numbers(tensors["w"]), _numbers(tensors["mean"])

        with fixture.Cluster(1, workers=2) as cluster:
            values = fixture.run_workers(self, cluster, work, workers=2)
        self.assertEqual(values, [([0.5], [4.5])] * 2)

    @_needs_numpy
    def test_numpy(self):
        def work(rank):
            w = numpy.full((20, 3), rank, numpy.float32)
            scale = numpy.array(2, numpy.float32)
            with evenshard.Worker(tensors={"w": w, "scale": scale}) as worker:
                assert isinstance(worker.parameters["w"], numpy.ndarray)
                assert worker.parameters["w"].shape == (20, 3)
                worker.gradients["w"][:] = 1
                worker.gradients["scale"][...] = 2
                worker.push_pull(worker.gradients, out={"w": w, "scale": scale})
                worker.push_pull()
                mine = worker.parameters["w"]
            return w.tolist(), float(scale), mine.tolist()

        with fixture.Cluster(2, workers=2) as cluster:
            values = fixture.run_workers(self, cluster, work, workers=2)
        for w, scale, mine in values:
            for row, later in zip(w, mine):
                self.assertEqual(_numbers(row), [-0.1] * 3)
                self.assertEqual(_numbers(later), [-0.2] * 3)
            self.assertAlmostEqual(scale, 1.8, 6)

    @_needs_torch
    def test_pytorch_by_dlpack(self):
        def work(rank):
            w = torch.full((20, 3), float(rank))
            with evenshard.Worker(tensors={"w": w}) as worker:
                worker.push_pull({"w": torch.ones(20, 3)}, out={"w": w})
            return w

        with fixture.Cluster(2, workers=2) as cluster:
            values = fixture.run_workers(self, cluster, work, workers=2)
        for w in values:
            torch.testing.assert_close(w, torch.full((20, 3), -0.1))

    def test_a_worker_that_is_not_closed_has_failed(self):
        script = (
            "import array, evenshard\n"
            "worker = evenshard.Worker(tensors={'w': array.array('f', [1])})\n"
            "worker.push_pull({'w': array.array('f', [1])})\n"
        )

        def work(rank):
            with evenshard.Worker(tensors={"w": _floats(1)}) as worker:
                for _ in range(2):
                    worker.push_pull({"w": _floats(1)})

        with fixture.Cluster(1, workers=2) as cluster:
            environment = {"RANK": "1", "WORLD_SIZE": "2", "EVENSHARD_CONFIG": cluster.path}
            other = fixture.Process(work, 0, environment={**environment, "RANK": "0"})
            code, _, complaints = fixture.run_script(script, environment=environment)
            end = other.outcome()
        self.assertEqual((code, complaints), (1, "evenshard: the program ended without close()\n"))
        self.assertIn("the program ended without close()", end.error or "")


class RefusalTest(unittest.TestCase):
    def refused(self, array_like, *parts, kind=evenshard.TensorError, **arguments):
        with self.assertRaises(kind) as caught:
            evenshard.Worker(_NO_SHARD, {"w": array_like}, rank=0, **arguments)
        for part in parts:
            self.assertIn(part, str(caught.exception))

    def test_what_is_no_array(self):
        self.refused([1.0, 2.0], 'tensors["w"]: is a list, allowed: an array', "numpy.ndarray")

    def test_another_type(self):
        self.refused(array.array("d", [1]), 'tensors["w"]: is float64 of shape (1,)', "float32")

    def test_one_memory_under_two_names(self):
        w = _floats(1, 2, 3)
        with self.assertRaisesRegex(
            evenshard.TensorError, r'tensors\["b"\]: is on the memory of tensors\["a"\], allowed'
        ):
            evenshard.Worker(_NO_SHARD, {"a": w, "b": memoryview(w)[1:2]}, rank=0)

    def test_read_only(self):
        self.refused(memoryview(_floats(1)).toreadonly(), 'tensors["w"]: is read-only')

    @_needs_numpy
    def test_arrays_of_numpy(self):
        self.refused(numpy.zeros((2, 3)), "float64 of shape (2, 3)", ".astype(numpy.float32)")
        self.refused(
            numpy.zeros((2, 3), numpy.float32).T, "not contiguous", "numpy.ascontiguousarray"
        )
        self.refused(numpy.zeros((2, 0), numpy.float32), "of shape (2, 0), allowed: at least one")

    @_needs_torch
    def test_tensors_of_pytorch(self):
        self.refused(torch.zeros(2, dtype=torch.float64), "float64 of shape (2,)", ".float()")
        self.refused(torch.zeros(2, dtype=torch.bfloat16), "bfloat16", ".float()")
        self.refused(torch.zeros(2, 3).t(), "not contiguous", ".contiguous()")
        self.refused(torch.zeros(2, requires_grad=True), 'tensors["w"]', "detach")

    def forked(self, check):
        """Calls what loads the library."""
        end = fixture.Process(check).outcome()
        self.assertIsNone(end.error, end.trace)

    def test_the_config_and_the_environment(self):
        self.forked(self.check_the_config_and_the_environment)

    def check_the_config_and_the_environment(self):
        w = {"w": _floats(1)}
        with self.assertRaisesRegex(evenshard.ConfigError, "EVENSHARD_CONFIG"):
            evenshard.Worker(tensors=w, rank=0)
        with self.assertRaisesRegex(evenshard.ConfigError, "no RANK"):
            evenshard.Worker(_NO_SHARD, w)
        with self.assertRaisesRegex(evenshard.ConfigError, "polcy"):
            evenshard.Worker(_NO_SHARD.replace("policy", "polcy"), w, rank=0)
        with self.assertRaisesRegex(evenshard.ConfigError, "there is no worker 7"):
            evenshard.Worker(_NO_SHARD, w, rank=7)
        with self.assertRaisesRegex(evenshard.ConfigError, "line 1: .*unknown.*allowed: kind"):
            evenshard.Worker(_NO_SHARD, w, rank=0, optimizer="knd: SGD")
        with self.assertRaises(evenshard.Error) as caught:
            evenshard.Worker("/nowhere/run.textproto", w, rank=0)
        self.assertIn("/nowhere/run.textproto", str(caught.exception))
        with self.assertRaisesRegex(evenshard.TensorError, "running_statistics: has v"):
            evenshard.Worker(_NO_SHARD, w, rank=0, running_statistics=["v"])

    def test_a_shard_that_is_not_there(self):
        self.forked(lambda: self.refused(
            _floats(1), "127.0.0.1:1", "ps --config=F", kind=evenshard.DeadlineExceeded
        ))

    def test_gradients_that_do_not_fit(self):
        def work(rank):
            texts = []

            def refused(call, *arguments, **named):
                try:
                    call(*arguments, **named)
                except evenshard.Error as error:
                    texts.append(str(error))
                else:
                    texts.append("")

            with evenshard.Worker(tensors={"a": _floats(1, 2), "b": _floats(3)}) as worker:
                refused(worker.push_pull, {"a": _floats(1, 2)})
                refused(worker.push_pull, {"a": _floats(1), "b": _floats(1)})
                refused(worker.push_pull, {"a": _floats(1), "b": _floats(1), "c": _floats(1)})
                refused(worker.push_pull, out={"c": _floats(1)})
                both = _floats(1, 2)
                refused(worker.push_pull, out={"a": both, "b": memoryview(both)[:1]})
                refused(worker.push_pull, learning_rates={"a": 1.0})
                refused(worker.push, "c")
                refused(worker.push, "a")
                worker.push_pull({"a": _floats(1, 1), "b": _floats(1)})
                worker.begin()
                worker.push("b")
                refused(worker.push, "b")
                worker.push("a")
                worker.wait("a")
                worker.wait("b")
            refused(worker.push_pull)
            return texts

        with fixture.Cluster(1, workers=1) as cluster:
            texts = fixture.run_workers(self, cluster, work, workers=1)[0]
            # Whoever caught these errors and went on has not failed.
            self.assertNotIn("failed", cluster.log())
        for part, text in zip(
            ("gradients: lacks b", 'gradients["a"]: is of shape (1,), allowed: (2,)',
             "gradients: has c", "there is no tensor c; allowed: a, b",
             'is on the memory of out[', "learning_rates: lacks b",
             "there is no tensor c", "no iteration has begun", "b has been pushed",
             "the worker is closed"), texts,
        ):
            self.assertIn(part, text)


class SignalTest(unittest.TestCase):
    """A worker that waits for another one, which does not push."""

    def wait(self, act):
        """What a worker ends with that waits when `act(worker)` runs in another thread."""
        def work(rank):
            with evenshard.Worker(tensors={"w": _floats(1)}) as worker:
                worker.push_pull({"w": _floats(1)})
                if rank == 1:
                    time.sleep(fixture.PATIENCE_SECONDS)
                timer = threading.Timer(0.3, act, [worker])
                timer.start()
                try:
                    begin = time.monotonic()
                    worker.push_pull({"w": _floats(1)})
                finally:
                    timer.join()
                    assert time.monotonic() - begin < fixture.PATIENCE_SECONDS / 2

        with fixture.Cluster(1, workers=2) as cluster:
            workers = fixture.start_workers(cluster, work, workers=2)
            end = workers[0].outcome()
            workers[1].kill()
        return end

    def test_ctrl_c(self):
        end = self.wait(lambda worker: os.kill(os.getpid(), signal.SIGINT))
        self.assertEqual(end.kind, "KeyboardInterrupt")
        self.assertNotIn("Exception ignored", end.trace)

    def test_a_handler_that_raises(self):
        def act(worker):
            os.kill(os.getpid(), signal.SIGUSR1)

        def handler(*_):
            raise LookupError("the handler's own")

        signal.signal(signal.SIGUSR1, handler)
        self.addCleanup(signal.signal, signal.SIGUSR1, signal.SIG_DFL)
        end = self.wait(act)
        self.assertEqual((end.kind, end.error), ("LookupError", "the handler's own"))

    def test_a_handler_that_returns_ends_nothing(self):
        calls = []

        def act(worker):
            for number in range(1, 4):
                os.kill(os.getpid(), signal.SIGUSR1)
                fixture.until(lambda number=number: len(calls) == number)
            if len(calls) == 3:
                worker.interrupt()

        signal.signal(signal.SIGUSR1, lambda *_: calls.append(1))
        self.addCleanup(signal.signal, signal.SIGUSR1, signal.SIG_DFL)
        end = self.wait(act)
        self.assertEqual((end.kind, end.status), ("Interrupted", "CANCELLED"))

    def test_interrupt(self):
        end = self.wait(lambda worker: worker.interrupt())
        self.assertEqual(end.kind, "Interrupted")


if __name__ == "__main__":
    unittest.main()
