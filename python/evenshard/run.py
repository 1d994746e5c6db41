"""python -m evenshard.run: starts the shards and one copy of a script per worker on this machine,
as torchrun does."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from evenshard import errors, launching

_DESCRIPTION = """\
Runs SCRIPT once for each worker, together with the shards of a run, all on this machine; with
--topology RING without shards. Each
process finds RANK, WORLD_SIZE, LOCAL_RANK and LOCAL_WORLD_SIZE in its environment, as with
torchrun, and evenshard.Optimizer finds what it needs there too. All output goes to standard output,
each line behind the name of its process. If a process fails, the others are ended. Ctrl-C ends all.

  python -m evenshard.run --workers 4 --shards 2 train.py --epochs 3
"""
_EPILOG = """\
Exit code: 0 the run has succeeded; 2 wrong usage or config; otherwise that of the process that
failed first, 128 + n if signal n has ended it or the run.
"""
_USAGE_ERROR = 2
_INTERRUPTED = 130


def main(arguments: Sequence[str] | None = None, program: str = "python -m evenshard.run") -> int:
    """Runs the command line, and returns the exit code."""
    options = vars(_parser(program).parse_args(arguments))
    command = options.pop("command")
    if command[0] == "--":
        del command[0]
    options["script"], *options["arguments"] = command  # but for replicas, all are launch()'s
    named = _names_of(options)
    options["recovery"] = _recovery(options.pop("replicas"), options["recovery"])
    try:
        return launching.launch(**options, named=named)
    except errors.Error as error:
        print(f"{program}: {error}", file=sys.stderr)
        return _USAGE_ERROR if isinstance(error, errors.ConfigError) else 1
    except KeyboardInterrupt:
        return _INTERRUPTED


def _names_of(options):
    """What errors call an argument of launch()."""
    names = {"script": "SCRIPT", "overrides": "--set", "ring": "--workers"}
    if options["replicas"] is not None:
        names["recovery"] = "--replicas" + (", --recovery" if options["recovery"] else "")
    return lambda name: names.get(name, f"--{name}")


def _recovery(replicas, recovery):
    parts = [] if replicas is None else [f"replicas: {replicas}"]
    parts += [] if recovery is None else [recovery]
    return " ".join(parts) if parts else None


def _parser(program):
    parser = argparse.ArgumentParser(
        prog=program,
        usage=f"{program} [--workers N] [--shards N] [OPTION ...] SCRIPT [ARGUMENT ...]",
        description=_DESCRIPTION,
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    add = parser.add_argument
    add("--workers", type=int, metavar="N", help="how many processes run SCRIPT; default: 1")
    add("--shards", type=int, metavar="N", help="how many hold the parameters; default: 1")
    add("--topology", metavar="T", help="PARAMETER_SERVER (default): workers exchange with the"
        " shards; RING: among themselves, without shards")
    add("--policy", metavar="P", help="SYNC (default): each update is the mean of all workers'"
        " gradients; ASYNC: each gradient is applied as it arrives; SSP: the same, within"
        " --staleness")
    add("--staleness", type=int, metavar="N", help="of SSP: how many iterations a worker may be"
        " ahead of the slowest")
    add("--partition", metavar="P", help="which shard owns which parameters: STRIPED (default),"
        " MEMORY_BASED, LAYER_BASED")
    add("--schedule", metavar="S", help="when gradients travel: BACKWARD (default), FULL"
        " (step() does not wait), SEQUENTIAL (for what changes gradients, as GradScaler)")
    add("--optimizer", metavar="TEXT", help="the rule, if SCRIPT brings none: 'kind: ADAM"
        " learning_rate: 0.001'")
    add("--replicas", type=int, metavar="N", help="1: the run survives the death of a shard, of"
        " which another one has a replica")
    add("--recovery", metavar="TEXT", help="more about deaths: 'worker_loss: CONTINUE'")
    add("--config", metavar="FILE", help="a config for one machine; what else is given takes the"
        " place of its fields")
    add("--max_restarts", type=int, metavar="N", help="how often each worker is started again,"
        " after an exception too; needs --recovery 'worker_loss: WAIT' or CONTINUE")
    add("--name", metavar="NAME", help="by which `psctl --run` and evenshard.Reader(run=...) find"
        " the run; default: SCRIPT's, and a number")
    add("--log_level", metavar="LEVEL", help="of the shards' logs: debug, info, warning (default),"
        " error")
    add("--log_dir", metavar="FOLDER", help="writes each process's output to a file of its own"
        " there, too")
    add("--stdin", type=int, metavar="RANK", help="gives this worker the terminal, without labels:"
        " `--stdin 0` for breakpoint() in rank 0")
    add("--set", dest="overrides", action="append", default=[], metavar="FIELD=VALUE",
        help="changes a field of the config; may be repeated")
    add("--save", metavar="FILE", help="writes the trained model there, as safetensors")
    add("--stats", metavar="FILE", help="writes the shards' statistics there, as JSON")
    add("--resume", action="store_true",
        help="goes on from the newest checkpoint of an earlier run")
    add("-m", "--module", dest="is_module", action="store_true",
        help="SCRIPT is the name of a module")
    # One for both: by itself SCRIPT would take a `--` behind it.
    add("command", nargs=argparse.PARSER, metavar="SCRIPT",
        help="the program that trains, and its arguments")
    return parser


if __name__ == "__main__":
    sys.exit(main())
