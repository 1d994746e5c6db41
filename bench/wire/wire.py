"""The program //bench:wire, which measures how fast gradients and parameters are exchanged."""

import argparse
import signal
import sys
import tempfile

from bench.wire import measure, report
from bench.wire.cluster import WireError

_USAGE = """\
Exchanges a whole model between real processes, by Evenshard and by raw sockets in turn. Verifies
what both compute, then measures goodput, CPU time, latency and memory. Lists are separated by
commas. Exit code: 0, 1 after a failure, 2 for a wrong command line."""

_TRANSPORTS = ("tcp", "unix", "shared", "tls")
_DEFAULT_TRANSPORTS = ("tcp", "unix", "shared")
_LOG_LEVELS = ("trace", "debug", "info", "warning", "error", "critical", "off")

# The sizes with which this program's figures in docs/performance.md were measured. A config would
# choose smaller chunks for models that are small or have many shards.
_LIMITS = {"chunk_bytes": 640 << 10, "window_bytes": 640 << 10, "lead_bytes": 2 << 20}


def _count(text):
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f'"{text}" is not a whole number above 0')
    return int(text)


def _counts(text):
    return [_count(item) for item in text.split(",")]


def _transports(text):
    for item in text.split(","):
        if item not in _TRANSPORTS:
            raise argparse.ArgumentTypeError(f'"{item}" is not tcp, unix, shared or tls')
    return text.split(",")


def _options():
    """Returns what to measure, as given on the command line."""
    options = _parser().parse_args()
    quick, limits = options.quick, " ".join(options.limit)
    options.limit += [f"{name}: {size}" for name, size in _LIMITS.items() if name not in limits]
    options.workers = options.workers or ([1] if quick else [1, 2, 4, 8])
    options.shards = options.shards or ([1] if quick else [1, 2, 4])
    options.repeat = options.repeat or (3 if quick else 5)
    options.window_seconds = 0.5 if quick else 1  # at least, of each window
    options.latency_count = 500 if quick else 1000
    # Every combination is tried for the raw baseline. With 0 the kernel sizes its buffers.
    options.raw_chunk_bytes = [1 << 20] if quick else [256 << 10, 1 << 20, 4 << 20]
    options.raw_socket_buffer_bytes = [0] if quick else [0, 1 << 20]
    return options


def _parser():
    parser = argparse.ArgumentParser(
        prog="wire", description=_USAGE, allow_abbrev=False,
        formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("--quick", action="store_true", help="takes less than 50 s, with 1 worker and 1 shard")
    add("--format", choices=["table", "json"], default="table", help="default table")
    add("--workers", metavar="LIST", type=_counts,
        help="numbers of workers; default 1,2,4,8 (--quick: 1)")
    add("--shards", metavar="LIST", type=_counts,
        help="numbers of shards; default 1,2,4 (--quick: 1)")
    add("--transports", metavar="LIST", type=_transports, default=list(_DEFAULT_TRANSPORTS),
        help="some of tcp, unix, shared and tls, which is mTLS over TCP; default tcp,unix,shared")
    add("--repeat", metavar="N", type=_count, help="windows of each system; default 5 (--quick: 3)")
    add("--model", metavar="NAME", default="vgg16",
        help="a built-in model, or the text of a ModelSpec; default vgg16")
    add("--clip", action="store_true",
        help="measures Evenshard with clipping by the norm of the gradient too, in turn")
    add("--encoding", choices=["float32", "float16", "bfloat16", "int8", "int4", "e3m0"],
        default="float32",
        help="of Evenshard's gradients, and one of 16 bits of its parameters too; raw sockets "
             "always send float32")
    add("--error_feedback", action="store_true", help="with int8, int4 and e3m0")
    add("--limit", metavar='"FIELD: VALUE"', action="append", default=[],
        help='sets a field of Evenshard\'s `limits`, as in "connections: 4"; repeatable. Default: '
             "chunk_bytes and window_bytes of 640 KiB, lead_bytes of 2 MiB")
    add("--log_level", choices=_LOG_LEVELS, default="warning",
        help="the least severe level that Evenshard's processes log; default warning")
    return parser


def _interrupted(*_):
    raise KeyboardInterrupt


def main():
    options = _options()
    signal.signal(signal.SIGTERM, _interrupted)
    where = report.origin()
    try:
        with tempfile.TemporaryDirectory(prefix="wire.") as folder:
            results = measure.measure(options, folder)
        print((report.to_json if options.format == "json" else report.table)(where, results),
              flush=True)
    except (WireError, OSError) as error:
        sys.exit(str(error))
    except KeyboardInterrupt:
        sys.exit("interrupted")


if __name__ == "__main__":
    main()
