"""evenshard.launch and `python -m evenshard.run`."""

import os
import pathlib
import pty
import re
import signal
import subprocess
import sys
import tempfile
import time
import unittest
import unittest.mock

from tests.python_package import running

# Stands in for `launch`: writes its arguments, environment and config to $SEEN, and then does what
# $THEN says.
_LAUNCH = """#!%s
import os, pathlib, shutil, signal, sys, time

seen = pathlib.Path(os.environ["SEEN"])
received = []

def note(number, _):
    received.append(number)
    with open(seen / "signals", "a") as file:
        file.write(signal.Signals(number).name + "\\n")

def until_a_signal():
    while not received:
        time.sleep(0.01)
    time.sleep(0.3)  # in which a second one would be noted
    sys.exit(128 + received[0])

for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
    signal.signal(number, note)
(seen / "arguments").write_text("\\n".join(sys.argv[1:]))
(seen / "environment").write_text("\\n".join("=".join(item) for item in os.environ.items()))
shutil.copy(sys.argv[1][len("--config="):], seen / "config")
(seen / "pid.part").write_text(str(os.getpid()))
os.replace(seen / "pid.part", seen / "pid")
exec(os.environ["THEN"])
""" % sys.executable
# As a program that calls the function.
_CALL = """
import sys
import evenshard
try:
    print("code", evenshard.launch(sys.argv[1], arguments=sys.argv[2:]))
except KeyboardInterrupt:
    print("interrupted")
"""


def _take_signals():
    """A program in the background may have inherited that these are ignored."""
    for number in (signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)


def _is_alive(pid):
    try:
        status = pathlib.Path(f"/proc/{pid}/stat").read_text(encoding="utf-8")
    except (FileNotFoundError, ProcessLookupError):  # the latter while it ends
        return False
    return status.rpartition(")")[2].split()[0] != "Z"


def _catches(pid, number):
    status = pathlib.Path(f"/proc/{pid}/status").read_text(encoding="utf-8")
    caught = int(re.search(r"^SigCgt:\s*(\w+)", status, re.MULTILINE)[1], 16)
    return bool(caught >> (number - 1) & 1)


class _Case(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.scratch = pathlib.Path(scratch.name)
        self.script = self.write("train.py", "print('trains')\n")

    def write(self, name, text):
        path = self.scratch / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        return str(path)

    def wait_for(self, condition):
        deadline = time.monotonic() + 60
        while not condition():
            self.assertLess(time.monotonic(), deadline, "nothing happened in time")
            time.sleep(0.01)


class StandInTest(_Case):
    """With a script in place of `launch`."""

    def setUp(self):
        super().setUp()
        program = pathlib.Path(self.write("programs/tools/launch/launch", _LAUNCH))
        program.chmod(0o755)
        self.temporary = self.scratch / "tmp"
        self.temporary.mkdir()
        self.more = {
            "EVENSHARD_PROGRAMS": str(self.scratch / "programs"),
            "SEEN": str(self.scratch),
            "TMPDIR": str(self.temporary),
            "THEN": "",
        }

    def run_it(self, *arguments, **more):
        self.done = running.run("-m", "evenshard.run", *arguments, **{**self.more, **more})
        # The config that was made is gone.
        self.assertEqual(list(self.temporary.iterdir()), [])
        return self.done

    def seen(self, name):
        return (self.scratch / name).read_text(encoding="utf-8")

    def launched(self):
        """The overrides, the other flags, and the command behind `--`."""
        lines = self.seen("arguments").splitlines()
        end = lines.index("--")
        flags = lines[1:end]
        overrides = [line[len("--set="):] for line in flags if line.startswith("--set=")]
        rest = [line for line in flags if not line.startswith("--set=")]
        return overrides, rest, lines[end + 1 :]

    def test_a_config_is_made(self):
        done = self.run_it(self.script)
        self.assertEqual(done.returncode, 0, done.stdout)
        config = self.seen("config")
        self.assertIn("model { from_workers {} }", config)
        self.assertIn('shard { address: "127.0.0.1:0" }', config)
        self.assertNotIn("optimizer", config)
        self.assertEqual(
            self.launched(), ([], ["--log_level=warning"], [sys.executable, self.script])
        )

    def test_what_is_given_changes_the_config(self):
        self.run_it(
            "--workers", "4", "--shards", "2", "--policy", "ssp", "--staleness", "3",
            "--partition", "LAYER_BASED", "--schedule", "BACKWARD",
            "--optimizer", "kind: ADAM\nlearning_rate: 0.001", "--replicas", "1",
            "--recovery", "worker_loss: CONTINUE",
            "--set", "limits.exchange_seconds=7", "--set", "recovery.checkpoint.folder=/tmp/a",
            "--save", "model.safetensors", "--stats=stats.json", "--resume",
            "--max_restarts", "3", "--name", "n", "--log_level", "info", "--log_dir", "logs",
            "--stdin", "0",
            self.script, "--epochs", "3", "--policy", "its own",
        )
        overrides, rest, command = self.launched()
        self.assertEqual(
            overrides,
            [
                "workers=4",
                'shard=[{address: "127.0.0.1:0"}, {address: "127.0.0.1:0"}]',
                "update.staleness=3",
                "update.policy=SSP",
                "partition.scheme=LAYER_BASED",
                "exchange.schedule=BACKWARD",
                "optimizer={kind: ADAM learning_rate: 0.001}",
                "recovery={replicas: 1 worker_loss: CONTINUE}",
                "limits.exchange_seconds=7",
                "recovery.checkpoint.folder=/tmp/a",
            ],
        )
        self.assertEqual(
            rest,
            [
                "--save=model.safetensors", "--stats=stats.json", "--resume", "--max_restarts=3",
                "--name=n", "--log_level=info", "--log_dir=logs", "--stdin=0",
            ],
        )
        self.assertEqual(
            command, [sys.executable, self.script, "--epochs", "3", "--policy", "its own"]
        )

    def test_a_config_of_ones_own_is_taken_as_it_is(self):
        config = self.write("own.textproto", "workers: 3\n")
        done = self.run_it("--config", config, "--shards", "1", self.script)
        self.assertEqual(done.returncode, 0, done.stdout)
        self.assertEqual(self.seen("config"), "workers: 3\n")
        self.assertEqual(self.launched()[0], ['shard=[{address: "127.0.0.1:0"}]'])

    def test_a_module_is_run(self):
        self.run_it("-m", "package.train", "--epochs", "3")
        self.assertEqual(
            self.launched()[2], [sys.executable, "-m", "package.train", "--epochs", "3"]
        )

    def test_the_environment_of_scripts(self):
        self.run_it("--workers", "1", self.script, OMP_NUM_THREADS="7")
        lines = self.seen("environment").splitlines()
        environment = dict(line.partition("=")[::2] for line in lines)
        self.assertEqual(environment["OMP_NUM_THREADS"], "7")
        self.assertEqual(environment["PYTHONUNBUFFERED"], "1")
        self.assertEqual(environment["MASTER_ADDR"], "127.0.0.1")
        self.assertGreater(int(environment["MASTER_PORT"]), 0)
        self.assertEqual(environment["PYTHONPATH"].split(os.pathsep)[0], running.PACKAGE)
        with unittest.mock.patch.dict(os.environ):
            os.environ.pop("OMP_NUM_THREADS", None)
            self.run_it("--workers", "1000", self.script)
        self.assertIn("OMP_NUM_THREADS=1", self.seen("environment").splitlines())

    def test_the_exit_code_is_passed_on(self):
        self.assertEqual(self.run_it(self.script, THEN="sys.exit(7)").returncode, 7)
        self.assertEqual(self.run_it(self.script, THEN="os.kill(os.getpid(), 9)").returncode, 137)

    def start(self, *command, **options):
        process = subprocess.Popen(
            [sys.executable, *command],
            env=running.environment(**{**self.more, "THEN": "until_a_signal()"}),
            cwd=running.ROOT, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True,
            preexec_fn=_take_signals, **options,
        )
        self.addCleanup(process.stdout.close)
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        self.launched_process()
        self.wait_for(lambda: _catches(process.pid, signal.SIGHUP))  # and forwards it
        return process

    def launched_process(self):
        """Waits for the stand-in, and returns its process id. It ends with the test."""
        self.wait_for((self.scratch / "pid").exists)
        launched = int(self.seen("pid"))
        self.addCleanup(self.end, launched)
        return launched

    @staticmethod
    def end(pid):
        if _is_alive(pid):
            os.kill(pid, signal.SIGKILL)

    def test_signals_are_forwarded_once(self):
        for number, code in ((signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)):
            with self.subTest(number.name):
                for name in ("pid", "signals"):
                    (self.scratch / name).unlink(missing_ok=True)
                process = self.start("-m", "evenshard.run", self.script)
                process.send_signal(number)
                self.assertEqual(process.wait(60), code)
                self.assertEqual(self.seen("signals"), number.name + "\n")
                self.assertEqual(list(self.temporary.iterdir()), [])

    def test_ctrl_c_on_a_terminal_comes_once(self):
        pid, terminal = pty.fork()
        if pid == 0:
            os.chdir(running.ROOT)
            _take_signals()
            os.execve(
                sys.executable, [sys.executable, "-m", "evenshard.run", self.script],
                running.environment(**{**self.more, "THEN": "until_a_signal()"}),
            )
        self.addCleanup(os.close, terminal)
        launched = self.launched_process()
        self.wait_for(lambda: _catches(pid, signal.SIGHUP))
        self.assertNotEqual(os.getpgid(launched), os.tcgetpgrp(terminal))
        os.write(terminal, b"\x03")
        _, status = os.waitpid(pid, 0)
        self.assertEqual(os.waitstatus_to_exitcode(status), 130)
        self.assertEqual(self.seen("signals"), "SIGINT\n")

    def test_the_run_ends_with_whoever_started_it(self):
        process = self.start("-m", "evenshard.run", self.script)
        process.kill()
        process.wait(60)
        launched = self.launched_process()
        self.wait_for(lambda: not _is_alive(launched))
        self.assertEqual(self.seen("signals"), "SIGTERM\n")

    def test_a_caller_gets_the_code_or_its_ctrl_c(self):
        done = running.run(
            "-c", _CALL, self.script, "--epochs", **{**self.more, "THEN": "sys.exit(3)"}
        )
        self.assertEqual(done.stdout, "code 3\n")
        self.assertEqual(self.launched()[2], [sys.executable, self.script, "--epochs"])
        (self.scratch / "pid").unlink()
        process = self.start("-c", _CALL, self.script)
        process.send_signal(signal.SIGINT)
        self.assertEqual(process.communicate(timeout=60)[0], "interrupted\n")

    def test_a_signal_ends_a_caller_too(self):
        for number in (signal.SIGTERM, signal.SIGHUP):
            with self.subTest(number.name):
                (self.scratch / "pid").unlink(missing_ok=True)
                process = self.start("-c", _CALL, self.script)
                process.send_signal(number)
                self.assertEqual(process.communicate(timeout=60)[0], "")
                self.assertEqual(process.returncode, 128 + number)
        (self.scratch / "pid").unlink()
        process = self.start("-c", "import signal\nsignal.signal(signal.SIGTERM, lambda *_:"
                             " print('handled'))" + _CALL, self.script)
        process.send_signal(signal.SIGTERM)
        self.assertEqual(process.communicate(timeout=60)[0], "handled\ncode 143\n")

    def test_what_a_handler_raises_ends_the_run(self):
        process = self.start("-c", """
import signal, sys, time
import evenshard
def late(*_):
    raise TimeoutError
signal.signal(signal.SIGALRM, late)
try:
    evenshard.launch(sys.argv[1])
except TimeoutError:
    print("late", flush=True)
    time.sleep(60)
""", self.script)
        launched = self.launched_process()
        process.send_signal(signal.SIGALRM)
        self.assertEqual(process.stdout.readline(), "late\n")
        self.assertFalse(_is_alive(launched))
        self.assertEqual(list(self.temporary.iterdir()), [])
        process.kill()
        process.communicate()

    def test_a_caller_gives_arguments_as_a_list(self):
        done = running.run("-c", """
import sys, evenshard
try:
    evenshard.launch(sys.argv[1], arguments="--rate 0.1")
except evenshard.ConfigError as error:
    print(error)
""", self.script, **self.more)
        self.assertEqual(done.stdout, "arguments: is the text \"--rate 0.1\", allowed: a list, such"
                         " as ['--rate', '0.1']\n")

    def test_wrong_arguments_say_what_is_allowed(self):
        cases = [
            (["nowhere.py"], 'SCRIPT: is "nowhere.py", allowed: a file that exists'),
            (["--workers", "0", self.script], "workers: is 0, allowed: 1 to 1024"),
            (["--workers", "1025", self.script], "workers: is 1025, allowed: 1 to 1024"),
            (["--workers", "two", self.script], "invalid int value: 'two'"),
            (["--shards", "0", self.script], "--shards: is 0, allowed: 1 to 1024"),
            (["--shards", "5000", self.script], "--shards: is 5000, allowed: 1 to 1024"),
            (["--policy", "SNYC", self.script], "--policy: is SNYC, allowed: SYNC, ASYNC, SSP"),
            (
                ["--partition", "AUTO", self.script],
                "--partition: is AUTO, allowed: STRIPED, MEMORY_BASED, LAYER_BASED",
            ),
            (
                ["--schedule", "FAST", self.script],
                "--schedule: is FAST, allowed: BACKWARD, FULL, SEQUENTIAL",
            ),
            (["--set", "workers", self.script], '--set: has "workers", allowed: FIELD=VALUE'),
            (
                ["--config", "nowhere.textproto", self.script],
                '--config: is "nowhere.textproto", allowed: a file that exists',
            ),
            (
                ["--optimizer", "kind: SGD # slow\nlearning_rate: 1", self.script],
                "--optimizer: has a comment",
            ),
            (
                ["--recovery", 'checkpoint { folder: "points" every_seconds: 9 }', self.script],
                'recovery.checkpoint.folder: is "points", allowed without a config of your own: an'
                " absolute path, such as /",
            ),
            (["--workres", "2", self.script], "SCRIPT"),
            ([], "SCRIPT"),
        ]
        for arguments, message in cases:
            with self.subTest(arguments):
                done = self.run_it(*arguments)
                self.assertEqual(done.returncode, 2, done.stdout)
                self.assertIn(message, done.stdout)
                self.assertFalse((self.scratch / "arguments").exists())

    def test_a_program_that_is_not_there_is_named(self):
        done = self.run_it(self.script, EVENSHARD_PROGRAMS="/nowhere")
        self.assertEqual(done.returncode, 1)
        self.assertIn(
            "there is no program launch: looked for /nowhere/tools/launch/launch", done.stdout
        )

    def test_help_names_every_option(self):
        done = self.run_it("--help")
        self.assertEqual(done.returncode, 0)
        self.assertTrue(done.stdout.startswith("usage: python -m evenshard.run"), done.stdout)
        for option in ("workers", "shards", "policy", "optimizer", "replicas", "config", "set"):
            self.assertIn(f"--{option}", done.stdout)


# Raises in worker 1, in the first life.
_RAISES = """
import array, os, pathlib, sys, evenshard
tensors = {"w": array.array("f", [0] * 64)}
with evenshard.Worker(tensors=tensors, optimizer="kind: SGD learning_rate: 1") as worker:
    while worker.iteration < 10:
        if worker.rank == 1 and worker.iteration == 5 and not os.path.exists(sys.argv[1]):
            pathlib.Path(sys.argv[1]).touch()
            raise ValueError("bad batch")
        worker.push_pull({"w": array.array("f", [1] * 64)})
print("done at", worker.iteration)
"""
# The shortest script that is a worker.
_TRAINS = """
import array, evenshard
with evenshard.Worker(
    tensors={"w": array.array("f", [0] * 64)}, optimizer="kind: SGD learning_rate: 1"
) as worker:
    worker.push_pull({"w": array.array("f", [1] * 64)})
"""


class RunTest(_Case):
    """With the programs."""

    def run_it(self, *arguments, **more):
        return running.run("-m", "evenshard.run", *arguments, **more)

    def test_ranks_are_in_the_environment_and_labels_before_lines(self):
        script = self.write("train.py", """
import os, sys
names = ["RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE"]
print(*[os.environ[name] for name in names], sys.argv[1:])
""" + _TRAINS)
        done = self.run_it("--workers", "3", "--shards", "2", script, "--a", "b c")
        self.assertEqual(done.returncode, 0, done.stdout)
        for rank in range(3):
            line = f"[worker {rank}] {rank} {rank} 3 3 ['--a', 'b c']"
            self.assertRegex(done.stdout, rf"(?m)^{re.escape(line)}$")
        self.assertIn("the run succeeded", done.stdout)

    def test_scripts_keep_freed_memory_unless_the_environment_has_a_say(self):
        script = self.write("train.py", """
import os
print(*[os.environ.get(f"MALLOC_{name}_") for name in ("MMAP_MAX", "TRIM_THRESHOLD")])
""")
        self.assertIn("[worker 0] 0 1099511627776\n", self.run_it(script).stdout)
        done = self.run_it(script, MALLOC_TRIM_THRESHOLD_="4096")
        self.assertIn("[worker 0] None 4096\n", done.stdout)

    def test_a_script_may_change_the_config_that_it_was_given(self):
        def run(change):
            text = _TRAINS.replace("tensors=", f"overrides=['{change}'], tensors=")
            return self.run_it("--workers", "2", "--shards", "2", self.write("train.py", text))
        done = run("limits.exchange_seconds=99")
        self.assertEqual(done.returncode, 0, done.stdout)
        # But not in what all processes have in common.
        done = run("exchange.schedule=FULL")
        self.assertEqual(done.returncode, 1, done.stdout)
        self.assertIn("modified: exchange.schedule: BACKWARD -> FULL", done.stdout)

    def test_a_script_that_fails_ends_the_run_with_its_code(self):
        script = self.write("train.py", """
import os, sys, time
if os.environ["RANK"] == "1":
    sys.exit(3)
time.sleep(1000)
""")
        done = self.run_it("--workers", "2", script)
        self.assertEqual(done.returncode, 3, done.stdout)

    def test_a_failure_is_said_by_the_rank_that_caused_it(self):
        script = self.write("train.py", _RAISES)
        for more in ([], ["--max_restarts", "0", "--recovery", "worker_loss: WAIT"]):
            once = self.scratch / "once"
            once.unlink(missing_ok=True)
            done = self.run_it("--workers", "4", "--shards", "2", *more, script, once)
            self.assertEqual(done.returncode, 1, done.stdout)
            self.assertEqual(done.stdout.count("Traceback"), 1, done.stdout)
            self.assertIn("[worker 1] ValueError: bad batch", done.stdout)
            self.assertRegex(done.stdout, r"\[launch\] the run failed: worker 1.*\n\Z")

    def test_a_worker_is_started_again_after_an_exception(self):
        script = self.write("train.py", _RAISES)
        for loss in ("WAIT", "CONTINUE"):
            once = self.scratch / "once"
            once.unlink(missing_ok=True)
            done = self.run_it(
                "--workers", "2", "--max_restarts", "1", "--recovery", f"worker_loss: {loss}",
                script, once,
            )
            self.assertEqual(done.returncode, 0, done.stdout)
            self.assertIn("[worker 0] done at 10", done.stdout)
            self.assertIn("it survived 1 death: worker 1 (1x)", done.stdout)
        done = self.run_it(
            "--workers", "2", "--max_restarts", "2", "--recovery", "worker_loss: WAIT", script,
            "/nowhere/once",
        )
        self.assertEqual(done.returncode, 1, done.stdout)
        self.assertIn("has been started again 2 times already (--max_restarts)", done.stdout)
        done = self.run_it("--max_restarts", "2", script, once)
        self.assertEqual(done.returncode, 2, done.stdout)
        self.assertIn("--max_restarts: needs recovery.worker_loss WAIT or CONTINUE", done.stdout)

    def test_output_is_quiet_and_kept_in_files(self):
        script = self.write("train.py", _TRAINS + "\nprint('10 %', end='\\r'); print('100 %')\n")
        logs = self.scratch / "logs"
        done = self.run_it("--workers", "2", "--log_dir", logs, script)
        self.assertEqual(done.returncode, 0, done.stdout)
        self.assertEqual(
            # But for the warning that an iteration waits, on a machine that stalls.
            sorted(line for line in done.stdout.splitlines() if " has waited " not in line),
            ["[launch] the run succeeded"]
            + [f"[worker {rank}] {done} %" for rank in range(2) for done in (10, 100)],
        )
        self.assertEqual((logs / "worker_1.log").read_bytes(), b"10 %\r100 %\n")
        self.assertEqual((logs / "ps_0.log").read_text(), "")
        done = self.run_it("--workers", "2", "--log_dir", logs, script)
        self.assertEqual((logs / "worker_1.log").read_bytes(), 2 * b"10 %\r100 %\n")
        done = self.run_it("--workers", "3", "--shards", "2", "--log_level", "info", script)
        self.assertEqual(done.stdout.count("all 3 workers have joined"), 2, done.stdout)
        self.assertEqual(done.stdout.count("all 3 workers have left"), 2, done.stdout)
        self.assertNotIn("joined from", done.stdout)
        done = self.run_it("--log_dir", "/nowhere/logs", script)
        self.assertEqual(done.returncode, 1)
        self.assertIn("cannot make the folder /nowhere/logs", done.stdout)

    def test_one_worker_may_have_the_terminal(self):
        script = self.write("train.py", _TRAINS + "\nprint('read', input('say: '))\n")
        script_of_both = self.write("both.py", f"""
import os
if os.environ["RANK"] == "0":
    exec(open({script!r}).read())
else:
    exec(open({script!r}).read().partition("print")[0])
""")
        done = self.run_it("--workers", "2", "--stdin", "0", script_of_both, input="hello\n")
        self.assertEqual(done.returncode, 0, done.stdout)
        self.assertIn("say: read hello\n", done.stdout)
        done = self.run_it("--workers", "2", "--stdin", "2", script)
        self.assertEqual(done.returncode, 2)
        self.assertIn("--stdin: is 2, allowed: 0 to 1", done.stdout)

    def test_a_run_is_found_by_its_name(self):
        script = self.write("train.py", """
import array, subprocess, sys, evenshard
def psctl(*arguments):
    print(subprocess.run(
        [sys.executable, "-m", "evenshard", "psctl", *arguments], stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT, text=True).stdout)
with evenshard.Worker(
    tensors={"w": array.array("f", [0] * 64)}, optimizer="kind: SGD learning_rate: 1"
) as worker:
    worker.push_pull({"w": array.array("f", [1] * 64)})
    psctl("stats", "--run", "mine")
    psctl("stats")
    psctl("save", "--run", "yours", "--out=m")
    environment = {k: sys.modules["os"].environ.pop(k) for k in ("EVENSHARD_CONFIG",)}
    for run in (None, "mine", "yours"):
        try:
            with evenshard.Reader(run=run) as reader:
                print("reader at", reader.pull().iteration)
        except evenshard.ConfigError as error:
            print(error)
""")
        place = {"XDG_RUNTIME_DIR": str(self.scratch)}
        done = self.run_it("--name", "mine", script, **place)
        self.assertEqual(done.returncode, 0, done.stdout)
        self.assertEqual(done.stdout.count(" up "), 2, done.stdout)
        self.assertEqual(done.stdout.count("reader at 1\n"), 2, done.stdout)
        self.assertIn('--run: is "yours", which no run on this machine has', done.stdout)
        self.assertIn('run: is "yours", which no run on this machine has', done.stdout)
        self.assertIn("--run=mine", done.stdout)
        self.assertEqual(list((self.scratch / "evenshard").iterdir()), [])
        done = running.run("-m", "evenshard", "psctl", "stats", **place)
        self.assertEqual(done.returncode, 2)
        self.assertIn("no run goes on that launch has started on this machine", done.stdout)
        done = self.run_it("--name", "a/b", script, **place)
        self.assertEqual(done.returncode, 2)
        self.assertIn('--name: is "a/b", allowed: a name without /', done.stdout)

    def test_a_run_that_no_worker_joined_has_failed(self):
        for more in ([], ["--replicas", "1", "--recovery", "worker_loss: CONTINUE"]):
            saved = self.scratch / "model.safetensors"
            done = self.run_it(*more, "--shards", "2", "--save", saved, self.script)
            self.assertEqual(done.returncode, 1, done.stdout)
            self.assertRegex(
                done.stdout,
                r"\[launch\] the run failed: worker 0 has never joined the run: its program has"
                r" ended with exit code 0 and has made neither an evenshard\.Optimizer nor .*\n\Z",
            )
            self.assertFalse(saved.exists())

    def test_a_worker_that_ends_before_it_joins_ends_the_run(self):
        script = self.write("one.py", """
import array, os, sys
import evenshard
if os.environ["RANK"] == "1":
    sys.exit()
worker = evenshard.Worker(
    tensors={"w": array.array("f", [0] * 64)}, optimizer="kind: SGD learning_rate: 1"
)
worker.push_pull({"w": array.array("f", [1] * 64)})
""")
        for more in ([], ["--replicas", "1", "--shards", "2", "--recovery", "worker_loss: WAIT"]):
            done = self.run_it(*more, "--workers", "2", script)
            self.assertEqual(done.returncode, 1, done.stdout)
            self.assertRegex(
                done.stdout,
                r"the run failed: worker 1 (has never joined the run: its program has ended with"
                r" exit code 0|ended, but is needed again, as did each of its last 5 starts)",
            )

    def test_more_connections_than_open_files_are_refused(self):
        few = (
            "import resource, sys; from evenshard import run;"
            " resource.setrlimit(resource.RLIMIT_NOFILE, (256, 256));"
            " sys.exit(run.main(sys.argv[1:]))"
        )
        done = running.run("-c", few, "--shards", "200", self.script)
        self.assertEqual(done.returncode, 2, done.stdout)
        self.assertRegex(
            done.stdout,
            r"\A1 workers and 200 shards need about 8\d\d open files, and this process may have 256"
            r" \(ulimit -Hn\); allowed: a higher limit, .*\n\Z",
        )

    def test_a_wrong_value_is_named_where_it_was_given(self):
        for option, value, text in [
            ("--optimizer", "kind: ADMA", r"--optimizer: optimizer\.kind: is ADMA, allowed: SGD"),
            ("--recovery", "worker_lss: WAIT", r"--recovery: recovery\.worker_lss: unknown field,"),
            ("--replicas", "1", r"--replicas: recovery\.replicas: is 1, but there is only one ps"),
            ("--set", "update.policy=SNYC", r"--set update\.policy=SNYC: update\.policy: is SNYC,"),
        ]:
            done = self.run_it(option, value, self.script)
            self.assertEqual(done.returncode, 2, done.stdout)
            self.assertRegex(done.stdout, r"\A" + text)


if __name__ == "__main__":
    unittest.main()
