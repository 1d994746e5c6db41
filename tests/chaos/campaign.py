"""Runs of one training: undisturbed, under faults, and killed and resumed."""

import contextlib
import dataclasses
import os
import shutil
import signal
import time

from tests.chaos import cluster, faults, ground, modes, report, verdict
from tests.chaos.progress import Progress

# Training goes on when a worker has pushed the second iteration after the latest one of the first
# report that was asked for after the fault. The first of the two needs only gradients that may have
# been on their way; the second needs all processes to be at work again.
GOES_ON = 2

# How long a report may take when no process answers.
_REPORT_SECONDS = 10.0

# How long a run may need to come or to go on, on a machine that is busy with other work.
_LONGEST_SECONDS = 240.0
_CALIBRATION_SECONDS = 10.0
# About how often there is a checkpoint, if only the minutes are given; otherwise how many there
# are. The last one is of the last iteration.
_CHECKPOINT_SECONDS = 5
_CHECKPOINTS = 60
# Faults slow a run down. With so many iterations it takes about as long as it should.
_UNDER_FAULTS = 0.75


class CampaignError(Exception):
    """A run that ought to be undisturbed has failed."""


@dataclasses.dataclass
class Outcome:
    exit_code: int
    last_line: str
    start_seconds: float  # from the start of launch until the first iteration was seen
    seconds: float  # of training, from then to the last iteration seen
    iterations: int  # in that time
    samples: list  # see Progress.samples
    model: bytes
    manifest: dict  # of the last checkpoint, or None
    mixed: int  # iterations that a worker repeated with some chunks updated already
    told: list  # what the workers have logged, by rank; of pusher.c
    complaint: str = ""  # of `psctl checkpoints --verify`

    def rate(self):
        return self.iterations / self.seconds if self.seconds else 0.0


@contextlib.contextmanager
def uninterrupted():
    """Puts Ctrl-C and SIGTERM off until the end of the block: between the start of a process and
    its entry on a stack that ends it, they would leave it behind."""
    came = []
    handlers = {
        number: signal.signal(number, lambda number, frame: came.append(number))
        for number in (signal.SIGINT, signal.SIGTERM)
        if signal.getsignal(number) != signal.SIG_IGN
    }
    try:
        yield
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
    if came:
        raise KeyboardInterrupt


class Campaign:
    """All runs have the same config but for the iterations. Not thread-safe."""

    # Between two reports of psctl, which needs processor time: with up to 16 workers, with more.
    PERIOD_SECONDS = (0.05, 0.1)

    def __init__(self, options, programs, folder, say):
        self._options = options
        self._mode = modes.MODES[options.mode]
        self._programs = programs
        self._folder = folder
        self._say = say
        self._period = self.PERIOD_SECONDS[options.workers > 16]
        self._starts = 0

    def has_network(self):
        """Returns whether links and disks can be disturbed on this machine."""
        with ground.make(self._new_folder(), self._options.shards) as place:
            return place.has_network

    def size(self):
        """Returns the iterations of the training, and of those between checkpoints."""
        if self._options.iterations:
            every = self._options.every or max(1, self._options.iterations // _CHECKPOINTS)
            return self._options.iterations // every * every, every
        self._say("measuring how fast the training is")
        with self._run(10**9, 10**9) as (_, run, progress):
            if not progress.wait_for(1, _LONGEST_SECONDS):
                raise CampaignError(f"the training did not begin: {_last_line(run)}")
            progress.wait_for(10**9, _CALIBRATION_SECONDS)
            begin, end, iterations = progress.trained()
        rate = iterations / max(end - begin, 1e-9)
        wanted = rate * self._options.minutes * 60 * _UNDER_FAULTS
        every = max(1, round(rate * _UNDER_FAULTS * _CHECKPOINT_SECONDS))
        if self._mode.trains:
            wanted = min(wanted, modes.MOST_ITERATIONS)
        return max(int(wanted // every), 1) * every, every

    def undisturbed(self, iterations, every):
        with self._run(iterations, every) as (place, run, progress):
            outcome = self._finish(place, run, progress)
        if outcome.exit_code != 0:
            raise CampaignError(f"the undisturbed run failed: {outcome.last_line}")
        return outcome

    def under_faults(self, iterations, every, drawn):
        """Returns the outcome, the strikes, and the faults that could not be done."""
        strikes, missed = [], []
        plant, trained = self._options.plant, iterations
        if plant and self._mode.trains:  # what every iteration pushes is known to that program only
            plant, trained = "", iterations + (1 if plant == "doubled" else -1)
        with self._run(trained, every, plant) as (place, run, progress):
            for fault in drawn:
                came = self._reach(run, progress, fault.at * iterations)
                if not came or run.exit_code() is not None:
                    missed.append(f"{fault}: the run had ended or stood still")
                    break
                try:
                    strikes.append(self._strike(fault, place, run, progress))
                except faults.Missed as why:
                    missed.append(str(why))
                    continue
                self._say(_told(strikes[-1]))
                if strikes[-1].recovery_seconds is None:
                    break
            outcome = self._finish(place, run, progress)
        return outcome, strikes, missed

    def killed(self, iterations, every, moments, start_seconds):
        """Kills the whole run at each of the moments, and resumes it. `start_seconds`: as of the
        undisturbed run. Returns the outcome and what was done."""
        lives = []
        with ground.make(self._new_folder(), self._options.shards) as place:
            folder = self._last_folder
            text = cluster.config(self._options, place, iterations, every)
            resume = False
            for moment in moments:
                lives.append(
                    self._live(place, folder, text, iterations, resume, moment, start_seconds)
                )
                self._say(_told_life(lives[-1]))
                resume = self._newest(place) is not None
                if not resume:
                    # Nothing to go back to: the run begins anew, in an empty folder.
                    place.call("sh", "-c", f"rm -rf {place.checkpoints}/*")
            with contextlib.ExitStack() as stack:
                run, progress = self._start(stack, place, folder, text, iterations, resume)
                outcome = self._finish(place, run, progress)
        return outcome, lives

    def _live(self, place, folder, text, iterations, resume, moment, start_seconds):
        begin = time.monotonic()
        with contextlib.ExitStack() as stack:
            run, progress = self._start(stack, place, folder, text, iterations, resume)
            if moment.iteration is not None:
                self._reach(run, progress, moment.iteration)
            else:
                time.sleep(moment.start * start_seconds)
            exit_code = run.exit_code()
            iteration = progress.latest()
            run.kill_everything()
        newest = self._newest(place)
        return {
            "moment": str(moment),
            "resumed": resume,
            "seconds": time.monotonic() - begin,
            "iteration": iteration,
            "checkpoint": newest["content"]["checkpoint"]["iteration"] if newest else None,
            # launch is to run until it is killed.
            "ended_before": exit_code,
            "last_line": _last_line(run),
        }

    @contextlib.contextmanager
    def _run(self, iterations, every, plant=""):
        with contextlib.ExitStack() as stack:
            place = stack.enter_context(ground.make(self._new_folder(), self._options.shards))
            text = cluster.config(self._options, place, iterations, every)
            started = self._start(stack, place, self._last_folder, text, iterations, False, plant)
            yield (place, *started)

    def _start(self, stack, place, folder, text, iterations, resume, plant=""):
        # Under CONTINUE, who counts depends on the moments of the faults, so nothing else may.
        gradients = "own" if self._options.worker_loss == "WAIT" else "alike"
        if self._mode.judged_by == modes.LEDGER:
            gradients = "ledger"
        if self._mode.trains:
            gradients = ""
        with uninterrupted():
            run = stack.enter_context(
                cluster.Cluster(
                    self._programs, place, folder, text, iterations, gradients, resume, plant
                )
            )
            progress = Progress(self._programs, place, run.config, self._period)
            return run, stack.enter_context(progress)

    def _new_folder(self):
        self._starts += 1
        self._last_folder = os.path.join(self._folder, str(self._starts))
        os.mkdir(self._last_folder)
        return self._last_folder

    def _reach(self, run, progress, iteration):
        """Waits for an iteration, as long as there is progress. Returns whether it came."""
        latest, deadline = progress.latest(), time.monotonic() + _LONGEST_SECONDS
        while not progress.wait_for(iteration, 0.2):
            if progress.latest() > latest:
                latest, deadline = progress.latest(), time.monotonic() + _LONGEST_SECONDS
            if run.exit_code() is not None or time.monotonic() > deadline:
                return False
        return True

    def _strike(self, fault, place, run, progress):
        for target in fault.targets:
            run.find(target)  # it may be about to start
        before = progress.latest()
        begin = faults.strike(fault, run, place)
        lasted = time.monotonic() - begin if fault.seconds else 0.0
        goal = progress.after(begin, _REPORT_SECONDS) + GOES_ON
        went_on = progress.when(goal) if self._reach(run, progress, goal) else None
        return report.Strike(
            str(fault),
            fault.group,
            begin - progress.trained()[0],
            before,
            None if went_on is None else went_on - begin,
            lasted,
        )

    def _finish(self, place, run, progress):
        """Waits for the end of a run, as long as there is progress."""
        self._reach(run, progress, 10**18)
        begin, end, iterations = progress.trained()
        exit_code = run.exit_code()
        if exit_code is None:
            run.kill_everything()
        checked = place.call(
            self._programs.psctl, "checkpoints", f"--folder={place.checkpoints}", "--verify"
        )
        model = b""
        with contextlib.suppress(OSError):
            with open(run.model, "rb") as file:
                model = file.read()
        if self._options.keep_logs:
            shutil.copy(run.log, f"{self._options.keep_logs}.{self._starts}.log")
        return Outcome(
            -1 if exit_code is None else exit_code,
            _last_line(run),
            begin - run.begin,
            end - begin,
            iterations,
            progress.samples(),
            model,
            self._newest(place),
            _count_lines(run, " chunks are updated already"),
            [] if self._mode.trains else run.told(self._options.workers),
            checked.stdout + checked.stderr if checked.returncode else "",
        )

    def _newest(self, place):
        """Returns the manifest of the newest complete checkpoint, or None."""
        listed = place.call(
            "sh", "-c", f"ls -d {place.checkpoints}/generation-*/manifest.json 2>/dev/null | sort"
        )
        names = listed.stdout.split()
        return verdict.parse(place.call("cat", names[-1]).stdout) if names else None


def _lines(run):
    with open(run.log, encoding="utf-8", errors="replace") as file:
        return file.read().splitlines()


def _last_line(run):
    return (_lines(run) or ["launch said nothing"])[-1]


def _count_lines(run, part):
    return sum(part in line for line in _lines(run))


def _told(strike):
    recovery = "NEVER" if strike.recovery_seconds is None else f"{strike.recovery_seconds:.2f} s"
    return (
        f"{strike.at_seconds:8.1f} s  iteration {strike.iteration:7}  {strike.fault:36}"
        f"  went on after {recovery}"
    )


def _told_life(life):
    newest = "none" if life["checkpoint"] is None else f"of iteration {life['checkpoint']}"
    return (
        f"killed everything {life['moment']}, after {life['seconds']:.1f} s, when the latest"
        f" iteration was {life['iteration']} and the newest checkpoint {newest}"
    )


def rate_of(outcomes):
    return sum(outcome.iterations for outcome in outcomes) / max(
        sum(outcome.seconds for outcome in outcomes), 1e-9
    )
