"""examples/node_worker: workers in JavaScript train, also when their connections are cut."""

import contextlib
import copy
import json
import pathlib
import shutil
import socket
import subprocess
import tempfile
import threading
import time
import unittest

_PATIENCE_SECONDS = 60
_ITERATIONS = 200
_WORKER = pathlib.Path("examples/node_worker/worker.js").resolve()
_NEEDS_NODE = unittest.skipUnless(
    shutil.which("node") and (_WORKER.parent / "node_modules").exists(),
    "node and npm's packages are missing: `npm ci` in examples/node_worker",
)


class CuttingProxy:
    """Passes TCP connections on to an address, and cuts all of them once, after some bytes."""

    def __init__(self, address, bytes_until_cut):
        self._target = address
        self._left = bytes_until_cut
        self._lock = threading.Lock()
        self._sockets = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = "127.0.0.1:%d" % self._listener.getsockname()[1]
        self.has_cut = False
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self):
        # A thread that accepts keeps a socket that is only closed.
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for end in self._sockets:
            end.close()

    def _accept(self):
        with contextlib.suppress(OSError):
            while True:
                near, _ = self._listener.accept()
                host, port = self._target.split(":")
                far = socket.create_connection((host, int(port)))
                with self._lock:
                    self._sockets += [near, far]
                for ends in ((near, far), (far, near)):
                    threading.Thread(target=self._pass_on, args=ends, daemon=True).start()

    def _pass_on(self, source, sink):
        with contextlib.suppress(OSError):
            while content := source.recv(1 << 16):
                self._count(len(content))
                sink.sendall(content)
        for end in (source, sink):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)

    def _count(self, size):
        with self._lock:
            self._left -= size
            if self._left >= 0 or self.has_cut:
                return
            self.has_cut = True
            for end in self._sockets:
                with contextlib.suppress(OSError):
                    end.shutdown(socket.SHUT_RDWR)


@_NEEDS_NODE
class NodeWorkerTest(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.scratch = pathlib.Path(scratch.name)
        text = (_WORKER.parent / "config.textproto").read_text()
        for port in (50061, 50062):
            with socket.create_server(("127.0.0.1", 0)) as free:
                self.assertIn(str(port), text)
                text = text.replace(str(port), str(free.getsockname()[1]))
        self.config = self.scratch / "config.textproto"
        self.config.write_text(text)
        self.plan = json.loads(self.psctl("plan", "--format=json"))

    def psctl(self, verb, *arguments, check=True):
        return subprocess.run(
            ["tools/psctl/psctl", verb, f"--config={self.config}", *arguments],
            stdout=subprocess.PIPE, text=True, timeout=_PATIENCE_SECONDS, check=check,
        ).stdout

    def start(self, *command):
        process = subprocess.Popen(
            list(map(str, command)), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        self.addCleanup(process.stdout.close)
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        return process

    def start_shards(self):
        return [
            self.start("server/ps", f"--config={self.config}", f"--shard={i}") for i in (0, 1)
        ]

    def start_worker(self, rank, proxy=None):
        plan = self.scratch / f"plan{rank}.json"
        content = copy.deepcopy(self.plan)
        if proxy is not None:
            content["plans"][0]["shards"][1]["address"] = proxy.address
        plan.write_text(json.dumps(content))
        return self.start("node", _WORKER, plan, rank, _ITERATIONS)

    def train(self, cut=None):
        """Returns what the workers printed, the model, and the last line of each shard."""
        shards = self.start_shards()
        with contextlib.ExitStack() as closing:
            proxy = None
            if cut is not None:
                proxy = CuttingProxy(self.plan["plans"][0]["shards"][1]["address"], cut)
                closing.callback(proxy.close)
            workers = [self.start_worker(0), self.start_worker(1, proxy)]
            printed = [worker.communicate(timeout=_PATIENCE_SECONDS)[0] for worker in workers]
            self.assertEqual([worker.returncode for worker in workers], [0, 0], printed)
            self.assertTrue(proxy is None or proxy.has_cut)
        model = self.scratch / "model.safetensors"
        self.psctl("save", f"--out={model}")
        self.psctl("shutdown")
        ends = [shard.communicate(timeout=_PATIENCE_SECONDS)[0] for shard in shards]
        self.assertEqual([shard.returncode for shard in shards], [0, 0], ends)
        content = model.read_bytes()
        model.unlink()
        return printed, content, ends

    def test_a_cut_connection_changes_no_bit(self):
        printed, model, ends = self.train()
        self.assertRegex(printed[0], r"^after 200 iterations no weight is off by more than 0\.000")
        self.assertEqual(printed[0], printed[1])
        self.assertIn("400 pushes (0 repeated", ends[0])
        for cut in (20_000, 60_001):
            again, same, ends = self.train(cut)
            self.assertEqual(again, printed)
            self.assertEqual(same, model)
            self.assertIn("400 pushes (0 repeated", ends[0])

    def test_what_the_shards_refuse_is_one_line(self):
        self.start_shards()
        worker = self.start_worker(2)
        output = worker.communicate(timeout=_PATIENCE_SECONDS)[0]
        self.assertEqual(worker.returncode, 1)
        self.assertRegex(output, r"^worker 2: .*\b2\b.*\n$")

    def test_a_shard_that_is_started_anew_ends_the_worker(self):
        shards = self.start_shards()
        worker = self.start_worker(0)  # waits for the other one
        self.await_pushes()
        shards[1].kill()
        shards[1].wait()
        self.start("server/ps", f"--config={self.config}", "--shard=1")
        output = worker.communicate(timeout=_PATIENCE_SECONDS)[0]
        self.assertEqual(worker.returncode, 1)
        self.assertEqual(output, "worker 0: shard 1 was started anew, without its parameters\n")

    def await_pushes(self):
        """Until worker 0 has pushed to both shards, which wait for worker 1 then."""
        for _ in range(10 * _PATIENCE_SECONDS):
            # A shard that is not up yet has no statistics.
            stats = json.loads(self.psctl("stats", "--format=json", check=False))
            if all(int(shard.get("stats", {}).get("pushes", 0)) for shard in stats["shards"]):
                return
            time.sleep(0.1)
        self.fail(f"no pushes: {stats}")


if __name__ == "__main__":
    unittest.main()
