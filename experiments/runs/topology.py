"""Who holds the parameters, and on which hosts: proto/experiment.proto, Topology."""

import dataclasses

from proto import config_pb2

# The names of the protobuf enum.
APART = "APART"
COLOCATED = "COLOCATED"
ONE_MASTER = "ONE_MASTER"
RING = "RING"


@dataclasses.dataclass(frozen=True)
class Wiring:
    """What a network joins. Rates are in 10^9 bits per second each way, on this machine's clock."""

    workers: int
    shards: int  # 0: the workers are a ring
    colocated: bool = False  # shard I is on the host of worker I, and shares its link
    link_gbps: float = 10
    shard_link_gbps: tuple = ()  # of the first shards, if they differ
    mtu: int = 1500
    hosts: object = None  # the Hosts of a REMOTE network


def shard_count(topology, workers, shards):
    """Returns the number of shards, which is `shards` where they have hosts of their own."""
    return {APART: shards, COLOCATED: workers, ONE_MASTER: 1, RING: 0}[topology]


def is_colocated(topology):
    return topology in (COLOCATED, ONE_MASTER)


def title(topology):
    return topology.lower().replace("_", " ")


def place(cluster, topology, addresses, *, is_private=True, certificates=""):
    """Puts the addresses of a network into a ClusterConfig: of the shards, or of a ring's workers.
    A private network is one that the experiment has made, and nobody else reaches. There the
    processes have certificates if a folder for these is named, beside the config."""
    if is_private:
        cluster.ClearField("security")
        cluster.security.insecure = not certificates
    if certificates:
        cluster.security.certificate = f"{certificates}/{{name}}.pem"
        cluster.security.key = f"{certificates}/{{name}}.key"
        cluster.security.authority = f"{certificates}/authority.pem"
    del cluster.shard[:]
    if topology == RING:
        cluster.topology = config_pb2.ClusterConfig.RING
        cluster.ring.address.extend(addresses)
        return
    for address in addresses:
        cluster.shard.add(address=address)
    if is_colocated(topology):
        cluster.colocated = True
