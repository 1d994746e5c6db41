"""The emulated network: joined, shaped, apart from the host's, and gone without a trace."""

import os
import subprocess
import tempfile
import unittest
from unittest import mock

from experiments.cluster import network
from experiments.runs import experiment_config, matrix, topology
from tests.experiments import fixture

_TEXT = fixture.EXPERIMENT + "shard_link_gbps: 0.5\n"


class NetworkTest(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.folder = scratch.name
        fixture.require_namespaces(self, self.folder)
        self.experiment = experiment_config.parse(_TEXT, "e.textproto")
        self.run_of = [run for run in matrix.runs(self.experiment) if run.workers == 4][0]

    def make(self):
        return network.make(network.NAMESPACES, self.experiment.wiring(self.run_of), self.folder)

    def output(self, host, *command):
        with subprocess.Popen(
            host.command(command), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        ) as process:
            return process.stdout.read()

    def namespace(self, host):
        return self.output(host, "readlink", "/proc/thread-self/ns/net").strip()

    def test_every_process_has_a_namespace_of_its_own_and_none_is_the_hosts(self):
        with self.make() as net:
            hosts = [*net.shard_hosts, *net.worker_hosts, net.control]
            self.assertEqual(len(hosts), 2 + 4 + 1)
            namespaces = {self.namespace(host) for host in hosts}
            self.assertEqual(len(namespaces), len(hosts))
            self.assertNotIn(os.readlink("/proc/self/ns/net"), namespaces)

    def test_both_ends_of_every_link_have_the_dilated_rate(self):
        with self.make() as net:
            for host, rate in [
                (net.shard_hosts[0], "250Mbit"),
                (net.shard_hosts[1], "500Mbit"),
                (net.worker_hosts[3], "500Mbit"),
            ]:
                shaped = self.output(host, "/usr/sbin/tc", "qdisc", "show", "dev", "eth0")
                self.assertRegex(shaped, f"^qdisc tbf .* rate {rate} ")
            shaped = self.output(net.control, "/usr/sbin/tc", "qdisc", "show")
            self.assertIn("dev ps0", shaped)
            self.assertEqual(shaped.count(" rate 250Mbit "), 1)
            self.assertEqual(shaped.count(" rate 500Mbit "), 5)

    def test_tcp_is_the_same_on_every_host(self):
        with self.make() as net:
            for host in (net.shard_hosts[0], net.worker_hosts[3]):
                settings = [
                    self.output(host, "cat", f"/proc/sys/net/ipv4/{name}").strip()
                    for name in ("tcp_congestion_control", "tcp_min_tso_segs")
                ]
                self.assertEqual(settings, ["reno", "44"])

    def test_there_is_no_way_to_the_host(self):
        with self.make() as net:
            routes = self.output(net.worker_hosts[0], "/usr/sbin/ip", "route")
            self.assertEqual(routes.split()[:3], ["10.0.0.0/16", "dev", "eth0"])
            self.assertEqual(len(routes.splitlines()), 1)
            links = self.output(net.control, "/usr/sbin/ip", "-oneline", "link")
            names = {line.split()[1].rstrip(":").partition("@")[0] for line in links.splitlines()}
            processes = {"ps0", "ps1", "worker0", "worker1", "worker2", "worker3"}
            self.assertEqual(names, processes | {"lo", "bridge"})

    def test_colocated_shards_share_the_namespaces_and_links_of_their_workers(self):
        wiring = topology.Wiring(workers=3, shards=2, colocated=True, link_gbps=0.5)
        with network.make(network.NAMESPACES, wiring, self.folder) as net:
            workers = [self.namespace(host) for host in net.worker_hosts]
            self.assertEqual([self.namespace(host) for host in net.shard_hosts], workers[:2])
            self.assertEqual(len(set(workers)), 3)
            self.assertEqual(net.addresses, ["10.0.0.2:50051", "10.0.0.3:50051"])
            shaped = self.output(net.control, "/usr/sbin/tc", "qdisc", "show")
            self.assertEqual(shaped.count(" rate 500Mbit "), 3)

    def test_the_addresses_of_a_ring_are_its_workers(self):
        wiring = topology.Wiring(workers=2, shards=0)
        with network.make(network.NAMESPACES, wiring, self.folder) as net:
            self.assertEqual(net.shard_hosts, [])
            self.assertEqual(net.addresses, ["10.0.0.2:50051", "10.0.0.3:50051"])

    def test_nothing_is_left_when_it_ends(self):
        before = set(os.listdir("/sys/class/net"))
        with self.make() as net:
            namespaces = {self.namespace(host) for host in (*net.worker_hosts, net.control)}
            self.assertEqual(set(os.listdir("/sys/class/net")), before)
            # One that never ends.
            sleeper = subprocess.Popen(
                net.worker_hosts[0].command(["sleep", "infinity"]), stdin=subprocess.PIPE
            )
        sleeper.wait()
        sleeper.stdin.close()
        for namespace in namespaces:
            self.assertFalse(fixture.in_network(namespace))
        self.assertEqual(set(os.listdir("/sys/class/net")), before)


class RefusalTest(unittest.TestCase):
    def test_without_namespaces_the_user_learns_of_the_alternative(self):
        experiment = fixture.experiment()
        with tempfile.TemporaryDirectory() as folder:
            path = os.environ["PATH"]
            try:
                with open(os.path.join(folder, "unshare"), "w", encoding="utf-8") as file:
                    file.write("#!/bin/sh\necho unshare: Operation not permitted >&2\nexit 1\n")
                os.chmod(os.path.join(folder, "unshare"), 0o755)
                os.environ["PATH"] = f"{folder}:{path}"
                with self.assertRaises(network.NetworkError) as refusal:
                    wiring = experiment.wiring(matrix.runs(experiment)[0])
                    network.make(network.NAMESPACES, wiring, folder)
            finally:
                os.environ["PATH"] = path
        self.assertEqual(
            str(refusal.exception),
            "this machine allows no network namespaces (unshare: Operation not permitted):"
            " run as root, or with --network=host, which uses this machine's network unshaped",
        )

    def test_a_machine_without_unshare_has_no_network(self):
        experiment = fixture.experiment()
        wiring = experiment.wiring(matrix.runs(experiment)[0])
        with tempfile.TemporaryDirectory() as folder, mock.patch.dict(os.environ, PATH=folder):
            with self.assertRaisesRegex(network.NetworkError, "cannot start unshare"):
                network.make(network.NAMESPACES, wiring, folder)


if __name__ == "__main__":
    unittest.main()
