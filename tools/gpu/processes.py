"""Programs that run within a time limit and leave nothing behind."""

import contextlib
import json
import os
import select
import signal
import subprocess
import time

_GRACE_SECONDS = 8  # between SIGTERM and SIGKILL


class ProgramError(Exception):
    """A program failed, ended or did not answer in time."""


def _end(process):
    """Ends a program and all its children."""
    if process.poll() is None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(_GRACE_SECONDS)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


@contextlib.contextmanager
def _running(command, **options):
    """Runs a program in a session of its own, so that its children are ended with it. Signals that
    end this process are blocked until the program is sure to be ended too."""
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM, signal.SIGINT})

    def restore_mask():
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)

    try:
        process = subprocess.Popen(
            command, start_new_session=True, preexec_fn=restore_mask, **options
        )
    except OSError as error:
        restore_mask()
        raise ProgramError(f"{command[0]}: {error.strerror}") from None
    try:
        restore_mask()
        yield process
    finally:
        _end(process)


def _log_command(command, log):
    log.write(f"\n$ {' '.join(command)}\n".encode())
    log.flush()


def run(command, seconds, log, env=None, cwd=None):
    """Runs a program for at most `seconds`, and a grace to end, and returns its output, which goes
    to `log` too, a binary file open for appending and reading, to which others append as well.
    Raises ProgramError if the program cannot be started, fails or takes longer."""
    _log_command(command, log)
    begin = os.fstat(log.fileno()).st_size
    start = time.monotonic()
    timed_out = False
    with _running(
        command, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT, env=env, cwd=cwd
    ) as process:
        try:
            process.wait(max(0.0, seconds))
        except subprocess.TimeoutExpired:
            timed_out = True
    if timed_out:
        raise ProgramError(f"did not end within {time.monotonic() - start:.0f} s")
    log.seek(begin)
    output = log.read().decode(errors="replace")
    if process.returncode != 0:  # negative: the number of a signal
        lines = [line for line in output.splitlines() if line.strip()]
        raise ProgramError(f"exit code {process.returncode}: {' | '.join(lines[-3:])}")
    return output


def launch(command, path, seconds, log, **options):
    """Runs launch with these flags, and returns the summary of the run, which it writes to `path`.
    Raises ProgramError if the run fails."""
    run([*command, f"--summary={path}"], seconds, log, **options)
    with open(path, encoding="utf-8") as file:
        return json.load(file)


class Responder:
    """A program that answers requests among other lines that it prints. Use it in a `with`."""

    def __init__(self, command, log, env=None, cwd=None):
        self._command = command
        self._options = {"env": env, "cwd": cwd}
        self._log = log
        self._name = os.path.basename(command[0] if "python" not in command[0] else command[1])
        self._unread = b""
        self._failure = None  # after it, answers no longer belong to requests
        self._program = contextlib.ExitStack()
        self._process = None

    def __enter__(self):
        _log_command(self._command, self._log)
        self._process = self._program.enter_context(
            _running(
                self._command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._log,
                **self._options,
            )
        )
        return self

    def __exit__(self, *_):
        with contextlib.suppress(OSError):
            self._process.stdin.close()
        self._program.close()
        self._process.stdout.close()

    def ask(self, request, parse, seconds):
        """Sends `request`, calls `parse` for each line, and returns its first result that is not
        None. If `request` is None, nothing is sent. Raises ProgramError if there is no answer in
        time, and then in every later call."""
        if self._failure is not None:
            raise self._failure
        if request is not None:
            try:
                self._process.stdin.write(request.encode() + b"\n")
                self._process.stdin.flush()
            except OSError:
                pass  # it has ended; its last lines are read first
        deadline = time.monotonic() + seconds
        try:
            while (answer := parse(self._line(deadline, seconds))) is None:
                pass
        except ProgramError as error:
            self._failure = error
            raise
        return answer

    def _line(self, deadline, seconds):
        while b"\n" not in self._unread:
            left = deadline - time.monotonic()
            if left <= 0 or not select.select([self._process.stdout], [], [], left)[0]:
                raise ProgramError(f"{self._name} did not answer within {seconds:.0f} s")
            read = os.read(self._process.stdout.fileno(), 65536)
            self._log.write(read)
            self._log.flush()
            if not read:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    self._process.wait(_GRACE_SECONDS)
                raise ProgramError(
                    f"{self._name} ended with exit code {self._process.poll()}; log.txt says why"
                )
            self._unread += read
        line, self._unread = self._unread.split(b"\n", 1)
        return line.decode(errors="replace")
