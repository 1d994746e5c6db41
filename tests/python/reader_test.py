"""evenshard.Reader, beside workers that train."""

import array
import os
import signal
import tempfile
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
_needs_torch = unittest.skipIf(torch is None, "PyTorch is not installed: its modules")

_ELEMENTS = 5000
_RULE = "kind: SGD learning_rate: 1"
# The config of a run whose workers do not come.
_NO_SHARD = fixture.config(["127.0.0.1:1"], workers=1, startup_seconds=1)


def _floats(*values):
    return array.array("f", values)


def _flat(values):
    return memoryview(values).cast("B").cast("f").tolist()


def _train(rank, last, done):
    """One worker of a run in which all parameters are n after n iterations. It trains until
    iteration `last.value`, which worker 0 lowers when it has seen that something is `done`."""
    tensors = {"net.w": _floats(*[0] * _ELEMENTS), "net.b": _floats(0)}
    gradients = {"net.w": _floats(*[-1] * _ELEMENTS), "net.b": _floats(-1)}
    with evenshard.Worker(tensors=tensors) as worker:
        while worker.iteration < last.value:
            worker.push_pull(gradients)
            time.sleep(0.005)
            if rank == 0 and done.is_set():  # under SYNC the other one has not gone further
                last.value = min(last.value, worker.iteration + 1)


def _check(snapshot):
    assert list(snapshot) == ["net.w", "net.b"] and len(snapshot) == 2
    for name, size in (("net.w", _ELEMENTS), ("net.b", 1)):
        assert _flat(snapshot[name]) == [snapshot.iteration] * size, (name, snapshot)


class TrainingTest(unittest.TestCase):
    """Readers as processes beside two workers."""

    def run_beside(self, read, iterations=10**6, **settings):
        """What `read(reader)` returns in a process of its own, while two workers train for so many
        iterations, or until it has ended."""
        def reading(path):
            with evenshard.Reader(path) as reader:
                return read(reader)

        context = fixture.multiprocessing.get_context("fork")
        last, done = context.Value("q", iterations), context.Event()
        settings = {"rule": _RULE, **settings}
        with fixture.Cluster(2, workers=2, **settings) as cluster:
            end = fixture.Process(reading, cluster.path)
            workers = fixture.start_workers(cluster, _train, last, done, workers=2)
            outcome = end.outcome()
            done.set()
            for rank, worker in enumerate(fixture.outcomes(workers)):
                self.assertIsNone(worker.error, f"worker {rank}: {worker.trace}")
        self.assertIsNone(outcome.error, outcome.trace)
        return outcome.value

    def test_every_snapshot_is_of_one_iteration(self):
        def read(reader):
            seen = []
            snapshot = reader.pull()
            try:
                while True:
                    _check(snapshot)
                    seen.append(snapshot.iteration)
                    snapshot = reader.pull(newer_than=snapshot.iteration)
            except evenshard.RunOver as error:
                return seen, str(error), error.status

        for shared_memory in (True, False):
            for update in ("policy: SYNC", "policy: SYNC deterministic: true"):
                with self.subTest(update, shared_memory=shared_memory):
                    seen, text, status = self.run_beside(
                        read, iterations=60, update=update, shared_memory=shared_memory
                    )
                    self.assertEqual(seen, sorted(set(seen)))
                    self.assertEqual((seen[-1], status), (60, "OUT_OF_RANGE"))
                    self.assertIn("the run is over; its last iteration is 60", text)

    def test_a_snapshot_has_memory_of_its_own(self):
        def read(reader):
            old = reader.pull()
            w = _floats(*[-5] * _ELEMENTS)
            new = reader.pull(newer_than=old.iteration + 3, out={"net.w": w})
            _check(old)
            _check(new)
            assert new.iteration > old.iteration + 3
            assert w.tolist() == [new.iteration] * _ELEMENTS
            reader.close()
            reader.close()
            _check(old)
            return dict(new.tensors).keys() == dict(new).keys(), repr(new), dict(reader.shapes)

        is_same, text, shapes = self.run_beside(read)
        self.assertTrue(is_same)
        self.assertIn("2 tensors", text)
        self.assertEqual(shapes, {"net.w": (_ELEMENTS,), "net.b": (1,)})

    def test_async(self):
        def read(reader):
            snapshot = reader.pull()
            while True:
                assert min(map(min, map(_flat, snapshot.values()))) >= snapshot.iteration
                try:
                    snapshot = reader.pull(newer_than=snapshot.iteration)
                except evenshard.RunOver:
                    return snapshot.iteration

        self.assertEqual(self.run_beside(read, 60, update="policy: ASYNC"), 2 * 60)

    def test_arguments(self):
        def read(reader):
            texts = []

            def refused(call, *arguments, **named):
                try:
                    call(*arguments, **named)
                except evenshard.Error as error:
                    texts.append(f"{type(error).__name__}: {error}")
                else:
                    texts.append("")

            refused(reader.pull, out={"net.c": _floats(1)})
            refused(reader.pull, out={"net.b": _floats(1, 2)})
            refused(reader.pull, out={"net.b": memoryview(_floats(1)).toreadonly()})
            refused(reader.pull, -1)
            refused(reader.pull, timeout=-1)
            refused(reader.pull, 10**6, timeout=0.3)
            assert _flat(reader.pull()["net.b"])  # the reader can be used further
            end = fixture.Process(reader.pull).outcome()
            texts.append(f"{end.kind}: {end.error}")
            reader.close()
            refused(reader.pull)
            return texts

        texts = self.run_beside(read)
        for part, text in zip(
            ("TensorError: out: has net.c; allowed: the tensors' names, net.w, net.b",
             'TensorError: out["net.b"]: is of shape (2,), allowed: (1,)',
             'TensorError: out["net.b"]: is read-only',
             "InvalidArgument: newer_than: is -1", "InvalidArgument: timeout: is -1",
             "DeadlineExceeded: there was no snapshot in 300ms",
             "FailedPrecondition: the reader belongs to process",
             "FailedPrecondition: the reader is closed"), texts,
        ):
            self.assertIn(part, text)

    @_needs_numpy
    def test_numpy(self):
        def read(reader):
            w = numpy.zeros(_ELEMENTS, numpy.float32)
            snapshot = reader.pull(out={"net.w": w})
            assert isinstance(snapshot["net.w"], numpy.ndarray)
            assert (w == snapshot.iteration).all() and w is not snapshot["net.w"]
            return snapshot["net.w"].shape

        self.assertEqual(self.run_beside(read), (_ELEMENTS,))

    @_needs_torch
    def test_load_into(self):
        def work(rank):
            model = _model(rank)
            with evenshard.Optimizer(model) as optimizer:
                for _ in range(3):
                    optimizer.zero_grad()
                    model(torch.ones(2, 3)).sum().backward()
                    optimizer.step()
                optimizer.synchronize()
                # Evaluated beside the training, as another process would.
                other = _model(7)
                with evenshard.Reader() as reader:
                    snapshot = reader.pull()
                snapshot.load_into(other)
                for name, tensor in model.state_dict().items():
                    if name != "1.num_batches_tracked":
                        assert torch.equal(tensor, other.state_dict()[name]), name
                before = {k: v.clone() for k, v in other.state_dict().items()}
                wrong = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.PReLU())
                texts = []
                for target in (wrong, torch.nn.ReLU()):
                    try:
                        snapshot.load_into(target)
                    except evenshard.TensorError as error:
                        texts.append(str(error))
                for name, tensor in other.state_dict().items():
                    assert torch.equal(tensor, before[name])
                for parameter in other.parameters():
                    parameter.requires_grad_(False)
                snapshot.load_into(other.eval())
                return snapshot.iteration, texts

        with fixture.Cluster(1, workers=1, rule=_RULE) as cluster:
            ((iteration, texts),) = fixture.run_workers(self, cluster, work, workers=1)
        self.assertEqual(iteration, 3)
        self.assertEqual(len(texts), 2)
        for line in (
            "0.weight: is of shape (4, 4) in the model, allowed: (4, 3), as in the snapshot",
            "1.bias: is not in the model",
            "1.running_mean: is not in the model",
        ):
            self.assertIn(line, texts[0].splitlines())
        self.assertIn("0.bias: is not in the model", texts[1].splitlines())

    @_needs_torch
    def test_load_into_a_model_that_has_more(self):
        snapshot = evenshard.Snapshot(
            4, {"0.weight": numpy.ones((4, 3), numpy.float32)}, {"0.weight": (4, 3)}
        )
        more = torch.nn.Sequential(torch.nn.Linear(3, 4))
        for model in (more, more.requires_grad_(False)):
            with self.assertRaises(evenshard.TensorError) as caught:
                snapshot.load_into(model)
            self.assertEqual(str(caught.exception), "0.bias: is not in the snapshot")

    @_needs_torch
    def test_load_into_the_model_itself(self):
        class OnAnotherDevice(torch.nn.Linear):
            def state_dict(self, *arguments, **options):
                return {k: v.clone() for k, v in super().state_dict(*arguments, **options).items()}

        snapshot = evenshard.Snapshot(
            4, {"weight": numpy.ones((4, 3), numpy.float32)}, {"weight": (4, 3)}
        )
        model = OnAnotherDevice(3, 4, bias=False)
        snapshot.load_into(model)
        self.assertTrue(torch.equal(model.weight, torch.ones(4, 3)))
        with self.assertRaisesRegex(evenshard.TensorError, "weight: is on the device meta"):
            snapshot.load_into(torch.nn.Linear(3, 4, bias=False, device="meta"))


def _model(seed):
    torch.manual_seed(seed)
    return torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.BatchNorm1d(4))


class WaitingTest(unittest.TestCase):
    def test_a_shard_that_is_not_there(self):
        def read(text):
            begin = time.monotonic()
            try:
                evenshard.Reader(text)
            finally:
                assert time.monotonic() - begin < fixture.PATIENCE_SECONDS / 2

        end = fixture.Process(read, _NO_SHARD).outcome()
        self.assertEqual(end.kind, "DeadlineExceeded", end.trace)
        self.assertIn("limits.startup_seconds", end.error)

        own = _NO_SHARD.replace("from_workers {}", 'from_workers { tensor { name: "w" } }')

        def pull(text):
            with evenshard.Reader(text) as reader:
                reader.pull()

        end = fixture.Process(pull, own).outcome()
        self.assertEqual(end.kind, "DeadlineExceeded", end.trace)
        self.assertIn("shard 0 (127.0.0.1:1)", end.error)

    def test_a_config_that_is_wrong(self):
        def read(text):
            evenshard.Reader(text)

        end = fixture.Process(read, _NO_SHARD.replace("policy", "polcy")).outcome()
        self.assertEqual(end.kind, "ConfigError", end.trace)
        end = fixture.Process(read, "/nowhere/run.textproto").outcome()
        self.assertIn("/nowhere/run.textproto", end.error)
        # Where runs of this machine are looked for, among which another test's may be.
        with tempfile.TemporaryDirectory() as folder:
            place = {"XDG_RUNTIME_DIR": folder}
            end = fixture.Process(read, None, environment=place).outcome()
        self.assertIn("EVENSHARD_CONFIG", end.error)

    def test_runs_are_looked_for_where_nobody_else_can_name_one(self):
        def read():
            evenshard.Reader()

        def make_link(path, folder):
            os.mkdir(os.path.join(folder, "elsewhere"))
            os.symlink("elsewhere", path)

        def make_open(path, _):
            os.mkdir(path)
            os.chmod(path, 0o777)

        for make, text in ((make_link, "is not a folder of this user"),
                           (make_open, "others may write to it")):
            with tempfile.TemporaryDirectory() as folder:
                make(os.path.join(folder, "evenshard"), folder)
                place = {"XDG_RUNTIME_DIR": folder, "EVENSHARD_CONFIG": ""}
                end = fixture.Process(read, environment=place).outcome()
                self.assertEqual(end.kind, "ConfigError", end.trace)
                self.assertIn(f"{folder}/evenshard: {text}", end.error)

    def wait(self, act, begin_to_wait):
        """What a reader ends with that waits when `act(reader)` runs in another thread."""
        def read(path):
            reader = evenshard.Reader(path) if begin_to_wait is not None else None
            timer = threading.Timer(0.5, act, [reader])
            timer.start()
            begin = time.monotonic()
            try:
                if reader is None:
                    evenshard.Reader(path)
                else:
                    begin_to_wait(reader)
            finally:
                assert time.monotonic() - begin < fixture.PATIENCE_SECONDS / 2
                timer.join()

        def train(rank):
            with evenshard.Worker(tensors={"net.w": _floats(1)}) as worker:
                worker.push_pull({"net.w": _floats(1)})
                time.sleep(fixture.PATIENCE_SECONDS)

        with fixture.Cluster(1, workers=1, rule=_RULE) as cluster:
            workers = []
            if begin_to_wait is not None:
                workers = fixture.start_workers(cluster, train, workers=1)
            end = fixture.Process(read, cluster.path).outcome()
            for worker in workers:
                worker.kill()
        return end

    def test_ctrl_c(self):
        for begin_to_wait in (lambda reader: reader.pull(newer_than=50), None):
            with self.subTest(waits_for_the_model=begin_to_wait is None):
                end = self.wait(lambda _: os.kill(os.getpid(), signal.SIGINT), begin_to_wait)
                self.assertEqual(end.kind, "KeyboardInterrupt", end.trace)

    def test_interrupt(self):
        end = self.wait(lambda reader: reader.interrupt(), lambda r: r.pull(newer_than=50))
        self.assertEqual((end.kind, end.status), ("Interrupted", "CANCELLED"), end.trace)

    def test_close_by_another_thread(self):
        end = self.wait(lambda reader: reader.close(), lambda r: r.pull(newer_than=50))
        self.assertEqual((end.kind, end.status), ("Interrupted", "CANCELLED"), end.trace)

    def test_a_run_that_fails(self):
        def work(rank):
            with evenshard.Worker(tensors={"net.w": _floats(1)}) as worker:
                worker.push_pull({"net.w": _floats(1)})
                time.sleep(0.5)
                raise LookupError("bad data")

        def read(path):
            with evenshard.Reader(path) as reader:
                reader.pull(newer_than=50)

        with fixture.Cluster(1, workers=1, rule=_RULE) as cluster:
            reader = fixture.Process(read, cluster.path)
            fixture.outcomes(fixture.start_workers(cluster, work, workers=1))
            end = reader.outcome()
        self.assertEqual(end.kind, "FailedPrecondition", end.trace)
        self.assertIn("the run has failed", end.error)
        self.assertIn("bad data", end.error)

    def end_of_a_reader(self, lose):
        """What a reader ends with that waits when `lose` makes a cluster's shards unreachable."""
        def work(rank):
            with evenshard.Worker(tensors={"net.w": _floats(1)}) as worker:
                worker.push_pull({"net.w": _floats(1)})
                time.sleep(fixture.PATIENCE_SECONDS)

        def read(path):
            with evenshard.Reader(path) as reader:
                reader.pull()
                with open(path + ".read", "w", encoding="utf-8"):
                    pass
                reader.pull(newer_than=50)

        with fixture.Cluster(1, workers=1, rule=_RULE, exchange_seconds=6) as cluster:
            workers = fixture.start_workers(cluster, work, workers=1)
            reader = fixture.Process(read, cluster.path)
            fixture.until(lambda: os.path.exists(cluster.path + ".read"))
            lose(cluster)
            end = reader.outcome()
            workers[0].kill()
        return end

    def test_shards_that_are_lost(self):
        """Without views a reader gives up what it cannot reach after limits.exchange_seconds."""
        for lose in (fixture.Cluster.end, fixture.Cluster.stop):
            with self.subTest(lose.__name__):
                end = self.end_of_a_reader(lose)
                self.assertEqual(end.kind, "Unavailable", end.trace)


if __name__ == "__main__":
    unittest.main()
