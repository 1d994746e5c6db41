#!/usr/bin/env python3
"""A worker in another language: generated messages and grpc, nothing else of ours.

    python_client.py MESSAGES PLAN RANK ITERATIONS

MESSAGES is the folder of the modules that protoc --python_out made of proto/, PLAN what
`psctl plan --format=json` printed. Takes part in a SYNC run with plain SGD and a constant
learning rate of 0.01 as one of two workers, the other of which has the EMULATED backend, and
compares every chunk that it receives, bit by bit, with its own arithmetic.
"""

import array
import json
import queue
import struct
import sys

import grpc

sys.path.insert(0, sys.argv[1])
from proto import admin_pb2, parameter_server_pb2  # noqa: E402

DEADLINE_SECONDS = 60
INCARNATION = 0x1122334455667788


def float32(value):
    """The float32 next to a number. +, - and * of two float32 become exact this way."""
    return struct.unpack("<f", struct.pack("<f", value))[0]


LEARNING_RATE = float32(0.01)


def emulated_gradient(rank, element):
    """What a C++ worker with the EMULATED backend computes for an element of a tensor."""
    return float32(((element + rank) % 17 - 8) * float32(1e-3))


def own_gradient(element, iteration):
    return float32((element % 5 - 2) * 0.25 + iteration)


class Chunk:
    """Where a chunk lies, and the parameters that we hold of it."""

    def __init__(self, message, begin):
        self.id = message.chunk
        self.begin = begin  # in its tensor
        self.version = message.version
        self.values = array.array("f", message.data)

    def gradient(self, iteration):
        return array.array(
            "f", [own_gradient(self.begin + i, iteration) for i in range(len(self.values))]
        )

    def update(self, gradient, other_rank):
        """SGD with the mean of both workers' gradients, each operation rounded to float32."""
        for i, (own, weight) in enumerate(zip(gradient, self.values)):
            total = float32(own + emulated_gradient(other_rank, self.begin + i))
            self.values[i] = weight - float32(LEARNING_RATE * float32(0.5 * total))


class Shard:
    """One shard, by its service and method names."""

    def __init__(self, plan, index, rank):
        self.index = index
        self.rank = rank
        self.plan = plan
        self.channel = grpc.insecure_channel(plan["shards"][index]["address"])
        grpc.channel_ready_future(self.channel).result(timeout=DEADLINE_SECONDS)

    def unary(self, method, request, response_type):
        call = self.channel.unary_unary(
            method, type(request).SerializeToString, response_type.FromString
        )
        return call(request, timeout=DEADLINE_SECONDS)

    def join(self):
        response = self.unary(
            "/evenshard.v1.ParameterServer/Join",
            parameter_server_pb2.JoinRequest(
                worker=self.rank,
                incarnation=INCARNATION,
                config_fingerprint=int(self.plan["config_fingerprint"], 16),
                plan_fingerprint=int(self.plan["plan_fingerprint"], 16),
                plan_version=self.plan["plan_version"],
                protocol_version=self.plan["protocol_version"],
            ),
            parameter_server_pb2.JoinResponse,
        )
        check(response.shard, self.index, "the shard that answers Join")
        check(response.start_iteration, 0, "start_iteration")

    def open_exchange(self):
        self.outgoing = queue.SimpleQueue()
        self.replies = self.channel.stream_stream(
            "/evenshard.v1.ParameterServer/Exchange",
            request_serializer=lambda message: message,
            response_deserializer=parameter_server_pb2.ParameterChunks.FromString,
        )(
            iter(self.outgoing.get, None),
            timeout=DEADLINE_SECONDS,
            metadata=(("ps-worker", str(self.rank)), ("ps-incarnation", str(INCARNATION))),
        )

    def pull(self):
        """The shard's chunks: Pull sends them in the order of the slices in the plan."""
        messages = self.channel.unary_stream(
            "/evenshard.v1.ParameterServer/Pull",
            parameter_server_pb2.PullRequest.SerializeToString,
            parameter_server_pb2.ParameterChunk.FromString,
        )(
            parameter_server_pb2.PullRequest(
                plan_fingerprint=int(self.plan["plan_fingerprint"], 16)
            ),
            timeout=DEADLINE_SECONDS,
        )
        self.chunks = {}
        for piece in self.plan["shards"][self.index]["slices"]:
            begin = piece["begin"]
            while begin < piece["begin"] + piece["size"]:
                chunk = Chunk(next(messages), begin)
                self.chunks[chunk.id] = chunk
                begin += len(chunk.values)
            check(begin, piece["begin"] + piece["size"], "the end of a slice")
        check(next(messages, None), None, "what follows the last chunk of a Pull")

    def push(self, chunk, iteration, encode):
        message = parameter_server_pb2.GradientChunk(
            worker=self.rank,
            incarnation=INCARNATION,
            iteration=iteration,
            chunk=chunk.id,
            base_version=chunk.version,
            data=chunk.gradient(iteration).tobytes(),
        )
        # `chunk`, field 1, once: a message may have several.
        chunk = encode(message)
        self.outgoing.put(b"\x0a" + varint(len(chunk)) + chunk)

    def push_pull(self, iteration, encode):
        for chunk in self.chunks.values():
            self.push(chunk, iteration, encode)
        answered = 0
        while answered < len(self.chunks):
            for reply in next(self.replies).chunk:
                self.take(reply, iteration)
                answered += 1

    def take(self, reply, iteration):
        chunk = self.chunks[reply.chunk]
        chunk.update(chunk.gradient(iteration), other_rank=1 - self.rank)
        chunk.version += 1
        self.check_reply(reply, iteration)

    def check_reply(self, reply, iteration):
        chunk = self.chunks[reply.chunk]
        where = f"chunk {chunk.id} of shard {self.index} at iteration {iteration}"
        check(reply.iteration, iteration, f"the iteration of {where}")
        check(reply.version, chunk.version, f"the version of {where}")
        if reply.unchanged:  # to a push that had this version as its base: a repeat
            check(len(reply.data), 0, f"the bytes of {where}, which is unchanged")
            return
        received = array.array("f", reply.data)
        check(len(received), len(chunk.values), f"the parameters of {where}")
        for i, (value, computed) in enumerate(zip(received, chunk.values)):
            check(value, computed, f"element {i} of {where}")

    def statistics(self):
        return self.unary(
            "/evenshard.v1.Admin/GetStats", admin_pb2.GetStatsRequest(), admin_pb2.ShardStats
        )

    def leave(self):
        self.unary(
            "/evenshard.v1.ParameterServer/Leave",
            parameter_server_pb2.LeaveRequest(worker=self.rank, incarnation=INCARNATION),
            parameter_server_pb2.LeaveResponse,
        )
        self.outgoing.put(None)
        check(list(self.replies), [], "what comes after Leave")


def check(value, expected, what):
    if value != expected:
        sys.exit(f"{what}: is {value}, expected {expected}")


def varint(number):
    encoded = b""
    while number >= 0x80:
        encoded += bytes([number & 0x7F | 0x80])
        number >>= 7
    return encoded + bytes([number])


def in_order(message):
    return message.SerializeToString()


def in_odd_order(message):
    """The same message with `data` first, a field twice and two fields that nobody knows."""
    data = parameter_server_pb2.GradientChunk(data=message.data)
    # The last of two values counts; the right one is not 0, which would not be sent.
    wrong_iteration = parameter_server_pb2.GradientChunk(iteration=message.iteration + 7)
    rest = parameter_server_pb2.GradientChunk()
    rest.CopyFrom(message)
    rest.ClearField("data")
    return (
        data.SerializeToString()
        + b"\xa0\x06\x2a"  # field 100, the number 42
        + wrong_iteration.SerializeToString()
        + b"\xaa\x06\x03abc"  # field 101, three bytes
        + rest.SerializeToString()
    )


def main():
    plan_path, rank, iterations = sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
    with open(plan_path) as file:
        plan = json.load(file)["plans"][0]
    shards = [Shard(plan, index, rank) for index in range(len(plan["shards"]))]
    for shard in shards:
        shard.join()
    for shard in shards:
        shard.open_exchange()
        shard.pull()
    check(sum(len(shard.chunks) for shard in shards), plan["chunks"], "the chunks of all shards")

    for iteration in range(iterations):
        for shard in shards:
            shard.push_pull(iteration, in_odd_order if iteration == 1 else in_order)

    for shard in shards:
        # A push that was counted before is answered with the same parameters.
        again = next(iter(shard.chunks.values()))
        shard.push(again, iterations - 1, in_order)
        shard.check_reply(next(shard.replies).chunk[0], iterations - 1)
        stats = shard.statistics()
        check(stats.pushes, 2 * iterations * len(shard.chunks), "pushes of both workers")
        check(stats.updates, iterations * len(shard.chunks), "updates")
        check(stats.repeated_pushes, 1, "repeated pushes")
        check(stats.worker[rank].state, admin_pb2.WorkerStats.JOINED, "our state")
        floats = iterations * stats.parameters + len(again.values)
        check(stats.worker[rank].bytes_in, 4 * floats, "our bytes")
        shard.leave()
        check(shard.statistics().worker[rank].state, admin_pb2.WorkerStats.LEFT, "our state")
    print(f"{plan['parameters']} parameters, {iterations} iterations: all as computed here")


if __name__ == "__main__":
    main()
