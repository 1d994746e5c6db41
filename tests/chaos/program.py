"""The command line of //tests/chaos, and what it prints and writes."""

import argparse
import dataclasses
import json
import os
import signal
import sys
import tempfile

from tests.chaos import campaign, modes, report, schedule, verdict

_USAGE = 2
_FAILURE = 1

# About 62 in 30 minutes.
_FAULTS_PER_MINUTE = 62 / 30

_DESCRIPTION = """\
Runs a training of real processes by launch, disturbs it by faults drawn from a seed, and compares
the result, bit by bit, with that of an undisturbed run. The exit code is 1 if an update was lost or
doubled, if a bit differs, or if the run failed; 2 for wrong usage.
"""


@dataclasses.dataclass(frozen=True)
class Programs:
    launch: str
    psctl: str
    pusher: str


def main():
    # SIGTERM ends it as Ctrl-C does: all that it has started ends with it.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    options = parse(sys.argv[1:])
    try:
        with tempfile.TemporaryDirectory(prefix="chaos-") as folder:
            return _run(options, folder)
    except KeyboardInterrupt:
        print("interrupted; nothing is left behind", file=sys.stderr)
        return 130
    except campaign.CampaignError as error:
        print(error, file=sys.stderr)
        return _FAILURE


def parse(arguments):
    parser = argparse.ArgumentParser(prog="chaos", description=_DESCRIPTION)
    parser.add_argument("--workers", type=int, default=32)
    parser.add_argument("--shards", type=int, default=4)
    parser.add_argument("--minutes", type=float, default=30, help="about how long the run takes")
    parser.add_argument("--iterations", type=int, help="how long it is, instead of --minutes")
    parser.add_argument("--every", type=int, help="iterations between checkpoints; --iterations")
    parser.add_argument("--faults", type=int, help="default: 62 in 30 minutes")
    parser.add_argument("--only", choices=schedule.ONLY, help="all faults are of this kind")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--mode", choices=list(modes.MODES), default="SYNC",
                        help="the update mode (README.md)")
    parser.add_argument(
        "--plant", choices=["lost", "doubled"],
        help="loses or doubles an update under faults, to see that it is found",
    )
    parser.add_argument(
        "--kill_everything", type=int, metavar="N",
        help="kills all processes N times, and resumes the run each time, instead of faults",
    )
    parser.add_argument(
        "--worker_loss", choices=["WAIT", "CONTINUE"], default="WAIT",
        help="recovery.worker_loss. With CONTINUE all workers push the same gradients",
    )
    parser.add_argument("--silence_seconds", type=float, default=1)
    parser.add_argument("--out", metavar="FILE", help="writes the result there as JSON")
    parser.add_argument("--keep_logs", metavar="PREFIX", help="keeps launch's output there")
    parser.add_argument("--programs", metavar="FOLDER", help="default: those built with this")
    options = parser.parse_args(arguments)
    for name, least in (("workers", 1), ("shards", 2), ("iterations", 1), ("every", 1),
                        ("faults", 0), ("kill_everything", 1)):
        value = getattr(options, name)
        if value is not None and value < least:
            parser.error(f"--{name}: is {value}, allowed: {least} or more")
    if options.kill_everything and options.worker_loss != "WAIT":
        parser.error("--worker_loss: is CONTINUE with --kill_everything, allowed: WAIT")
    mode = modes.MODES[options.mode]
    if options.worker_loss != "WAIT" and options.mode != "SYNC":
        parser.error(f"--worker_loss: is CONTINUE with --mode={options.mode}, allowed: SYNC")
    if options.plant and options.kill_everything:
        parser.error("--plant: is given with --kill_everything, allowed: with faults")
    if mode.trains:
        if options.workers > modes.MOST_WORKERS:
            parser.error(f"--workers: is {options.workers} with --mode={options.mode}, allowed: up"
                         f" to {modes.MOST_WORKERS}")
        if options.iterations and options.iterations > modes.MOST_ITERATIONS:
            parser.error(f"--iterations: is {options.iterations} with --mode={options.mode},"
                         f" allowed: up to {modes.MOST_ITERATIONS}")
    if options.minutes <= 0 or options.silence_seconds <= 0:
        parser.error("--minutes, --silence_seconds: allowed: above 0")
    # `bazel run` changes the working folder.
    for name in ("out", "keep_logs", "programs"):
        if value := getattr(options, name):
            setattr(options, name, _from_user(value))
    return options


def _from_user(path):
    return os.path.abspath(os.path.join(os.environ.get("BUILD_WORKING_DIRECTORY", ""), path))


def _programs(options):
    root = options.programs or os.path.dirname(
        os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    )
    return Programs(
        os.path.join(root, "tools/launch/launch"),
        os.path.join(root, "tools/psctl/psctl"),
        os.path.join(root, "tests/chaos/pusher"),
    )


def _say(text):
    print(text, flush=True)


def _run(options, folder):
    runs = campaign.Campaign(options, _programs(options), folder, _say)
    load = os.getloadavg()[0]
    iterations, every = runs.size()
    if options.kill_everything:
        result = _kill_everything(options, runs, iterations, every)
    else:
        result = _faults(options, runs, iterations, every)
    result.update(
        mode=options.mode,
        workers=options.workers,
        shards=options.shards,
        seed=options.seed,
        worker_loss=options.worker_loss,
        silence_seconds=options.silence_seconds,
        iterations=iterations,
        checkpoint_every=every,
        processors=os.cpu_count(),
        load_before=load,
    )
    result["problems"] = report.problems(result)
    _say(_ending(result))
    if options.out:
        with open(options.out, "w", encoding="utf-8") as file:
            json.dump(result, file, indent=2)
            file.write("\n")
    return _FAILURE if result["problems"] else 0


def _faults(options, runs, iterations, every):
    count = options.faults
    if count is None:
        count = max(1, round(_FAULTS_PER_MINUTE * options.minutes))
    drawn = schedule.draw(
        options.seed, count, options.workers, options.shards, options.silence_seconds,
        runs.has_network(), options.only,
    )
    _say(f"{count} faults in {iterations} iterations:")
    for fault in drawn:
        _say(f"  at {100 * fault.at:5.1f} %  iteration {fault.at * iterations:7.0f}  {fault}")
    _say("the undisturbed run")
    reference = runs.undisturbed(iterations, every)
    _say(f"{reference.rate():.2f} iterations/s\nthe run under faults")
    outcome, strikes, missed = runs.under_faults(iterations, every, drawn)
    _say(f"{outcome.rate():.2f} iterations/s, exit code {outcome.exit_code}:"
         f" {outcome.last_line}\nundisturbed again, for a part of the iterations")
    after = runs.undisturbed(max(1, iterations // every // 4) * every, every)
    undisturbed = campaign.rate_of([reference, after])
    rows = report.by_group(strikes)
    _say(report.table(rows))
    return {
        "run": "faults",
        "only": options.only,
        "schedule": [dataclasses.asdict(fault) for fault in drawn],
        "faults": [dataclasses.asdict(strike) for strike in strikes],
        "missed": missed,
        "recovery": rows,
        "recovery_means": (
            f"from the fault until a worker has pushed the {campaign.GOES_ON}nd iteration after"
            " it, as seen by polling `psctl stats`; a fault that lasts, and iterations repeated"
            " from a checkpoint, are within that time"
        ),
        "report_seconds": runs.PERIOD_SECONDS[options.workers > 16],
        "undisturbed_iterations_per_second": undisturbed,
        "undisturbed_before_and_after": [reference.rate(), after.rate()],
        "iterations_per_second": outcome.rate(),
        "throughput_retained": outcome.rate() / undisturbed if undisturbed else 0.0,
        "throughput_retained_within": report.retained_within(outcome.samples, strikes),
        **_judged(options, outcome, reference, iterations),
    }


def _kill_everything(options, runs, iterations, every):
    moments = schedule.draw_killings(options.seed, options.kill_everything, iterations)
    _say(f"{len(moments)} killings in {iterations} iterations:")
    for moment in moments:
        _say(f"  {moment}")
    _say("the undisturbed run")
    reference = runs.undisturbed(iterations, every)
    _say(f"{reference.rate():.2f} iterations/s\nthe run that is killed")
    outcome, lives = runs.killed(iterations, every, moments, reference.start_seconds)
    missed = [
        f"the killing {life['moment']}: {life['last_line']}"
        for life in lives
        if life["ended_before"] is not None
    ]
    return {
        "run": "kill everything",
        "killings": lives,
        "missed": missed,
        "undisturbed_iterations_per_second": reference.rate(),
        **_judged(options, outcome, reference, iterations),
    }


def _judged(options, outcome, reference, iterations):
    judged = verdict.of_run(
        modes.MODES[options.mode],
        iterations,
        (options.workers, options.worker_loss == "WAIT"),
        outcome,
        reference,
    )
    if outcome.complaint:
        judged["problems"].append(f"psctl checkpoints --verify: {outcome.complaint.strip()}")
    return {
        "exit_code": outcome.exit_code,
        "last_line": outcome.last_line,
        "seconds": outcome.seconds,
        "iterations_repeated_in_part": outcome.mixed,
        "verdict": judged,
    }


def _findings(judged):
    if "left_out" in judged:
        return (f"the parameters have the marks of {judged['pushes']} pushes of chunks' elements;"
                f" {judged['left_out']} were left out in the middle of an iteration, and the run"
                f" went back {judged['went_back']}x")
    if "parts" in judged:
        return f"{judged['parts']} parts of the model were compared by updates and their workers"
    same = judged.get("state_is_equal") and judged.get("model_is_equal")
    return (f"{judged['chunks']} chunks: parameters and optimizer state have "
            + ("the same bits as" if same else "OTHER bits than") + " the undisturbed run's")


def _ending(result):
    judged = result["verdict"]
    lines = [
        f"launch: exit code {result['exit_code']}; {result['last_line']}",
        "a worker was started again in the middle of its pushes"
        f" {result['iterations_repeated_in_part']}x",
        _findings(judged),
    ]
    if "throughput_retained" in result:
        lines.append(
            f"throughput retained: {100 * result['throughput_retained']:.1f} %"
            f" ({result['iterations_per_second']:.2f} of"
            f" {result['undisturbed_iterations_per_second']:.2f} iterations/s)"
        )
    if result.get("throughput_retained_within") is not None:
        lines.append(
            "by the run's own rates between the faults:"
            f" {100 * result['throughput_retained_within']:.1f} %"
        )
    lines += [f"PROBLEM: {problem}" for problem in result["problems"]]
    lines.append("failed" if result["problems"] else "all is well")
    return "\n".join(lines)
