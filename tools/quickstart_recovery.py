#!/usr/bin/env python3
"""Kills a shard and a worker in the middle of a run, which has to survive both.

    quickstart_recovery.py LOG COMMAND...

COMMAND is launch with a config with `recovery`, at least two shards, three workers and two
evaluations before the last one. Its output goes to LOG. The shard dies after the first evaluation,
the worker after the second one. Fails if the run fails, or if it ended without both deaths.
"""

import os
import pathlib
import re
import signal
import subprocess
import sys
import threading

# Who is killed after each evaluation: a label, and the program and flag of the process.
_VICTIMS = [("shard 1", "ps", "--shard=1"), ("worker 2", "worker", "--rank=2")]
# The run takes some seconds.
_PATIENCE_SECONDS = 180


def child_process(parent, program, flag):
    """Returns the process id of the child that runs a program with a flag, or None."""
    for task in pathlib.Path(f"/proc/{parent}/task").iterdir():
        for child in (task / "children").read_text().split():
            try:
                arguments = pathlib.Path(f"/proc/{child}/cmdline").read_text().split("\0")
            except OSError:
                continue  # it has ended
            if os.path.basename(arguments[0]) == program and flag in arguments:
                return int(child)
    return None


def fail(log, reason):
    sys.stderr.write(pathlib.Path(log).read_text())
    sys.exit(f"quickstart: {reason}; the output of the run is above")


def main():
    log, *command = sys.argv[1:]
    victims = list(_VICTIMS)
    said = []  # what launch itself said
    with open(log, "w") as output, subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as launch:
        timer = threading.Timer(_PATIENCE_SECONDS, launch.terminate)
        timer.daemon = True
        timer.start()
        for line in launch.stdout:
            output.write(line)
            if line.startswith("[launch]"):
                said.append(line.removeprefix("[launch]").strip())
            evaluated = re.search(r"iteration (\d+): accuracy", line)
            if not evaluated or not victims:
                continue
            label, program, flag = victims[0]
            process = child_process(launch.pid, program, flag)
            if process is None:
                continue
            os.kill(process, signal.SIGKILL)
            victims.pop(0)
            print(
                f"  killed {label} (process {process}) with SIGKILL after iteration"
                f" {int(evaluated[1]):,}",
                flush=True,
            )
        code = launch.wait()
        timer.cancel()
    if code != 0:
        fail(log, f"the run did not survive: launch ended with exit code {code}")
    if victims or "it survived 2 deaths" not in said[-1]:
        fail(log, "the run has ended, but not with one death of a shard and one of a worker")
    for line in said:
        print(f"  launch: {line}")


if __name__ == "__main__":
    main()
