"""What several tests need."""

import os

from experiments.cluster import network
from experiments.cluster.plans import Plan, Timeline
from experiments.runs import experiment_config, matrix

# Layer-based against memory-based, with 1 worker and with 4, dilated twofold.
EXPERIMENT = """\
cluster {
  model { builtin: "vgg16" }
  training { batch_size: 10 }
  compute { backend: EMULATED }
}
workers: [1, 4]
partition { scheme: LAYER_BASED placement: GREEDY }
partition { scheme: MEMORY_BASED }
schedule: FULL
time_dilation: 2
link_gbps: 1
"""

# 1,000,000 bytes of parameters; wall seconds of an iteration by workers and scheme.
_BYTES = {
    (1, "LAYER_BASED"): [1e6],
    (1, "MEMORY_BASED"): [1e6],
    (4, "LAYER_BASED"): [3e6, 1e6],
    (4, "MEMORY_BASED"): [2e6, 2e6],
}
_SECONDS = {
    (1, "LAYER_BASED"): 0.02,
    (1, "MEMORY_BASED"): 0.02,
    (4, "LAYER_BASED"): 0.06,
    (4, "MEMORY_BASED"): 0.04,
}


class Programs:
    """Where the tests find them."""

    psctl = "tools/psctl/psctl"
    simulate = "tools/simulate/simulate"


def experiment():
    return experiment_config.parse(EXPERIMENT, "e.textproto")


def measured(an_experiment):
    """The plans of all cells, and a result for each run."""
    plans, results = {}, {}
    for run in matrix.runs(an_experiment):
        sizes = _BYTES[run.workers, run.scheme]
        median = _SECONDS[run.workers, run.scheme]
        # Links pass 100 MB/s.
        bound = max(1e6, max(sizes)) / 1e8
        plans[run.cell] = Plan(
            run.model or "vgg16", sizes, sizes, bound, 1.25 * bound, 0.003,
            Timeline(bound / 4, [[1, 0.5, 0, 1]] * len(sizes), [[0, 1, 1, 0]] * len(sizes)),
            2 * bound if run.schedule == "SEQUENTIAL" else None,
        )
        results[run] = {
            "iteration_seconds": [median * part for part in (0.9, 1, 1, 1, 1.2)],
            "mean_seconds": median,
            "compute_seconds": 0.004,
            "exchange_wait_seconds": median - 0.005,
            "bytes_in": [size * 1.01 for size in sizes],
            "bytes_out": sizes,
            "processor_use": 0.95 if run.workers == 4 else 0.5,
            "run_seconds": 3.0,
        }
    return plans, results


def require_namespaces(test, folder):
    """Skips the test where the kernel does not let us make networks."""
    try:
        an_experiment = experiment()
        wiring = an_experiment.wiring(matrix.runs(an_experiment)[0])
        with network.make(network.NAMESPACES, wiring, folder):
            pass
    except network.NetworkError as error:
        test.skipTest(f"needs network namespaces: {error}")


def processes():
    """The command line of every process, by its number."""
    found = {}
    for number in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{number}/cmdline", encoding="utf-8", errors="replace") as file:
                found[int(number)] = file.read().replace("\0", " ")
        except OSError:
            pass  # it is gone
    return found


def in_network(namespace):
    """Whether a process is in that network namespace."""
    for number in processes():
        try:
            if os.readlink(f"/proc/{number}/ns/net") == namespace:
                return True
        except OSError:
            pass  # it is gone
    return False
