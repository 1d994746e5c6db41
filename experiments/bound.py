"""The least time of an iteration: what the links, and the device, allow.

A TCP segment of MTU m carries m - 52 bytes: 20 are the IP header's, 32 TCP's with
timestamps. Its frame has 14 bytes more for Ethernet, which is what `tc tbf` counts, and on
a cable another 24: preamble, check sequence and gap. The payload rate B of a link is its
rate times (m - 52) / frame. Each direction of a link has this rate for itself.

Of one direction, W workers and shards i of b_i bytes from or to all workers together:

    max( sum(b_i) / W / B,   max over i of b_i / B_i )

The full-duplex bound of the exchange is the larger of the two directions: with M bytes of
parameters, max(M/B, W * max_shard_bytes / B). SEQUENTIAL computes, then pushes, then pulls:
its bound is the sum. The other schedules can overlap all of it: theirs is the maximum.
"""

_IP_AND_TCP_BYTES = 52
_ETHERNET_BYTES = 14
_CABLE_BYTES = 24


def payload_bytes_per_second(gbps, mtu, on_cable):
    frame = mtu + _ETHERNET_BYTES + (_CABLE_BYTES if on_cable else 0)
    return gbps * 1e9 / 8 * (mtu - _IP_AND_TCP_BYTES) / frame


def direction_seconds(bytes_by_shard, workers, worker_rate, shard_rates):
    """Of one direction of all links. Rates are of payload, in bytes per second."""
    return max(
        sum(bytes_by_shard) / workers / worker_rate,
        *(size / rate for size, rate in zip(bytes_by_shard, shard_rates)),
    )


def iteration_seconds(plan, workers, schedule, compute_seconds, worker_rate, shard_rates):
    push = direction_seconds(plan.bytes_in, workers, worker_rate, shard_rates)
    pull = direction_seconds(plan.bytes_out, workers, worker_rate, shard_rates)
    if schedule == "SEQUENTIAL":
        return compute_seconds + push + pull
    return max(compute_seconds, push, pull)
