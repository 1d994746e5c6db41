"""Clusters for the benchmarks of the Python package, and their results."""

import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import types

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
LAUNCH = ROOT / "bazel-bin" / "tools" / "launch" / "launch"
PROGRAM = pathlib.Path(__file__).resolve().with_name("python_package.py")
TIMEOUT_SECONDS = 600
# What launch sets for scripts.
KEEPING_MEMORY = {"MALLOC_MMAP_MAX_": "0", "MALLOC_TRIM_THRESHOLD_": str(2**40)}
TRANSPORTS = {"true": "shared memory", "false": "TCP"}  # by exchange.shared_memory


def config(workers, shards, *, shared_memory, model="from_workers {}", more=""):
    """A config text with shards on loopback, at ports that launch chooses."""
    lines = [f"model {{ {model} }}", "partition { scheme: STRIPED }", f"workers: {workers}"]
    lines += ['shard { address: "127.0.0.1:0" }'] * shards
    lines.append("update { policy: SYNC }")
    lines.append("limits { chunk_bytes: 655360 }")
    return "\n".join(lines) + f"\nexchange {{ shared_memory: {shared_memory} {more} }}\n"


def ring_config(workers, *, addresses=None, bucket_bytes=26214400):
    """A config text of a ring, by default on loopback, at ports that launch chooses."""
    places = " ".join(f'address: "{each}"' for each in addresses or ["127.0.0.1:0"] * workers)
    return (f"model {{ from_workers {{}} }}\ntopology: RING\n"
            f"ring {{ {places} bucket_bytes: {bucket_bytes} }}\n"
            f"workers: {workers}\nupdate {{ policy: SYNC }}\n")


def in_role(role, iterations=0, *options):
    """The command of this program as a worker."""
    return [sys.executable, str(PROGRAM), "worker", role, f"--iterations={iterations}", *options]


def seed_option(seed):
    return [] if seed is None else [f"--seed={seed}"]


def run(text, role=None, iterations=0, *options):
    """Runs a cluster to its end. Returns what worker 0 in the role has printed as JSON, or without
    a role the summary of the C++ worker."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "python")}
    with tempfile.TemporaryDirectory() as folder:
        path, summary = pathlib.Path(folder, "cluster.textproto"), pathlib.Path(folder, "summary")
        path.write_text(text)
        command = [str(LAUNCH), f"--config={path}"]
        if role is None:
            command.append(f"--summary={summary}")
        else:
            command += ["--", *in_role(role, iterations, *options)]
        done = subprocess.run(command, env=environment, capture_output=True, text=True,
                              timeout=TIMEOUT_SECONDS, check=False)
        if done.returncode != 0:
            sys.exit(f"{' '.join(command)} failed:\n{done.stdout}{done.stderr}")
        if role is None:
            return json.loads(summary.read_text())
    lines = [line for line in done.stdout.splitlines() if line.startswith("[worker 0] {")]
    return json.loads(lines[-1].partition("] ")[2])


# What a config of an emulated network says, which nobody else reaches.
INSECURE = "security { insecure: true }\n"


def emulated_network(folder, *, workers, shards, link_gbps):
    """A network.NamespaceNetwork, in which each process has a host of its own."""
    sys.path.insert(0, str(ROOT))
    from experiments.cluster import network

    # A topology.Wiring, without the protobuf modules that only Bazel makes.
    wiring = types.SimpleNamespace(workers=workers, shards=shards, colocated=False,
                                   link_gbps=link_gbps, shard_link_gbps=(), mtu=1500)
    return network.NamespaceNetwork(wiring, folder)


def worker_environment(path, rank, workers):
    """What a script finds that trains with the config in a file."""
    return {**os.environ, **KEEPING_MEMORY, "EVENSHARD_CONFIG": str(path), "RANK": str(rank),
            "WORLD_SIZE": str(workers), "PYTHONPATH": str(ROOT / "python")}


def start_on(host, command, **options):
    """Starts a command in one of the namespaces of an emulated network."""
    return subprocess.Popen(host.command(command), stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                            text=True, **options)


def report(what, ratios):
    print(f"{what}: {statistics.median(ratios):.3f} ({min(ratios):.3f} to {max(ratios):.3f}, "
          f"{len(ratios)} rounds)", flush=True)
