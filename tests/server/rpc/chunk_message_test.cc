#include "server/rpc/chunk_message.h"

#include <catch2/catch.hpp>
#include <cstring>
#include <optional>
#include <string>
#include <vector>

#include "common/wire/message_slices.h"
#include "proto/parameter_server.pb.h"
#include "tests/server/shard/shard_fixture.h"

namespace evenshard {
namespace {

// A message and what a worker reads in one of its chunks.
struct Read {
  explicit Read(grpc::ByteBuffer bytes, size_t index = 0) : message(&bytes) {
    const auto decoded = DecodeParameterChunks(message.segments());
    REQUIRE(decoded.ok());
    REQUIRE(index < decoded->size());
    header = (*decoded)[index].header;
    data = (*decoded)[index].data;
  }

  std::vector<float> Floats() const {
    REQUIRE(data.size() == 1);
    std::vector<float> floats(data[0].size() / sizeof(float));
    std::memcpy(floats.data(), data[0].data(), data[0].size());
    return floats;
  }

  ReceivedMessage message;
  ParameterHeader header;
  Segments data;
};

struct Fixture : ShardFixture {
  // The reply to worker 0's push of iteration 0.
  Read Reply(std::optional<uint64_t> written_version = std::nullopt) {
    return Read(MessageOf({{.chunk = 0, .iteration = 0, .written_version = written_version}}));
  }
  grpc::ByteBuffer MessageOf(const std::vector<PendingReply>& replies) {
    std::vector<PendingReply> deferred;
    const grpc::ByteBuffer message =
        ReplyMessage(shard.get(), sessions[0].get(), replies, deferred);
    CHECK(deferred.empty());
    return message;
  }
  // A state of the chunk that SetState takes.
  Segments AllArrays(const StoredChunk& chunk) {
    zeros.resize((chunk.arrays() + 2) * chunk.info().size);
    return {{reinterpret_cast<const char*>(zeros.data()), zeros.size() * sizeof(float)}};
  }
  const void* StoredParameters() {
    StoredChunk& chunk = shard->store().chunks()[0];
    absl::MutexLock lock(&chunk.mutex);
    return chunk.parameters().data();
  }

  std::vector<float> zeros;
};

}  // namespace

TEST_CASE_METHOD(Fixture, "a reply has the current parameters and their version") {
  Start(1);
  REQUIRE(Push(0, 0, {1, 2, 3, 4}).ok());
  const Read reply = Reply();
  CHECK(reply.header.iteration == 0);
  CHECK(reply.header.chunk == 0);
  CHECK(reply.header.version == 1);
  CHECK(reply.header.encoding == FLOAT32);
  CHECK(reply.Floats() == Parameters());
}

TEST_CASE_METHOD(Fixture, "a reply says if no worker had a gradient in its iteration") {
  Start(1);
  StoredChunk& chunk = shard->store().chunks()[0];
  const auto set = [&](uint64_t iteration, bool all_absent) {
    absl::MutexLock lock(&chunk.mutex);
    chunk.mutable_clock().iteration = iteration;
    chunk.mutable_clock().all_absent = all_absent;
  };
  set(1, true);
  CHECK(Reply().header.all_absent);
  set(1, false);
  CHECK_FALSE(Reply().header.all_absent);
  set(2, true);  // of the iteration after
  CHECK_FALSE(Reply().header.all_absent);
}

TEST_CASE_METHOD(Fixture, "SYNC lends the parameters to a reply, ASYNC copies them") {
  const std::string policy = GENERATE("SYNC", "ASYNC");
  Start(1, {"update.policy=" + policy});
  const Read reply = Reply();
  REQUIRE(reply.data.size() == 1);
  CHECK((reply.data[0].data() == StoredParameters()) == (policy == "SYNC"));
}

TEST_CASE_METHOD(Fixture, "a reply has the run's encoding, a Pull the one that was asked for") {
  Start(1, {"exchange.parameter_encoding=FLOAT16"});
  const Read reply = Reply();
  CHECK(reply.header.encoding == FLOAT16);
  CHECK(SegmentsSize(reply.data) == 4 * 2);
  grpc::ByteBuffer bytes =
      *PullMessage(shard.get(), shard->store().chunks()[0], /*array=*/0, FLOAT32, std::nullopt);
  const ReceivedMessage message(&bytes);
  std::string joined;
  for (const auto& segment : message.segments()) joined.append(segment.data(), segment.size());
  ParameterChunk pulled;
  REQUIRE(pulled.ParseFromString(joined));
  CHECK(pulled.encoding() == FLOAT32);
  const std::vector<float> parameters = Parameters();
  CHECK(pulled.data() ==
        std::string(reinterpret_cast<const char*>(parameters.data()), 4 * sizeof(float)));
}

TEST_CASE_METHOD(Fixture, "a reply whose parameters were written to shared memory has no data") {
  Start(1);
  const Read reply = Reply(/*written_version=*/17);
  CHECK(reply.header.version == 17);
  CHECK(SegmentsSize(reply.data) == 0);
}

TEST_CASE_METHOD(Fixture, "a reply to a worker that has these parameters has no data") {
  Start(1);
  REQUIRE(Push(0, 0, {1, 2, 3, 4}).ok());
  const std::vector<PendingReply> replies = {{.chunk = 0, .iteration = 0, .base_version = 1},
                                             {.chunk = 0, .iteration = 0, .base_version = 0}};
  const grpc::ByteBuffer message = MessageOf(replies);
  const Read unchanged(message, 0);
  CHECK(unchanged.header.unchanged);
  CHECK(unchanged.header.version == 1);
  CHECK(SegmentsSize(unchanged.data) == 0);
  const Read changed(message, 1);
  CHECK_FALSE(changed.header.unchanged);
  CHECK(changed.Floats() == Parameters());
  CHECK(shard->Stats().worker(0).bytes_out() == 16);
}

TEST_CASE_METHOD(Fixture, "replies share a message, with and without data") {
  Start(1);
  REQUIRE(Push(0, 0, {1, 2, 3, 4}).ok());
  const std::vector<PendingReply> replies = {{.chunk = 0, .iteration = 5, .written_version = 17},
                                             {.chunk = 0, .iteration = 6}};
  CHECK(DataBytes(shard.get(), replies[0]) == 0);
  CHECK(DataBytes(shard.get(), replies[1]) == 16);
  const Read first(MessageOf(replies), 0);
  CHECK(first.header.iteration == 5);
  CHECK(first.header.version == 17);
  CHECK(SegmentsSize(first.data) == 0);
  const Read second(MessageOf(replies), 1);
  CHECK(second.header.iteration == 6);
  CHECK(second.header.version == 1);
  CHECK(second.Floats() == Parameters());
}

TEST_CASE_METHOD(Fixture, "a worker is noted for what it was sent, however it was") {
  Start(2, {"update={policy: ASYNC asynchrony { correction: GAP_AWARE }}"});
  StoredChunk& chunk = shard->store().chunks()[0];
  const auto noted = [&] {
    absl::MutexLock lock(&chunk.mutex);
    const SentParameters::Ranks ranks = chunk.sent().NotedBut(/*pusher=*/1);
    // Nobody is noted any more.
    chunk.SetState(chunk.clock(), chunk.sent().versions(), AllArrays(chunk)).IgnoreError();
    CHECK(chunk.sent().NotedBut(1).empty());
    return !ranks.empty();
  };
  Reply();
  CHECK(noted());
  // It has this version already.
  MessageOf({{.chunk = 0, .iteration = 0, .base_version = 0}});
  CHECK(noted());
  // What is in its memory was noted when it was written.
  Reply(/*written_version=*/0);
  CHECK_FALSE(noted());
  const auto pull = [&](int array, std::optional<uint32_t> worker) {
    PullMessage(shard.get(), chunk, array, FLOAT32, worker);
    return noted();
  };
  CHECK(pull(0, 0));
  CHECK_FALSE(pull(1, 0));
  CHECK_FALSE(pull(0, std::nullopt));
  CHECK_FALSE(pull(0, 99));  // a stranger's
}

TEST_CASE_METHOD(Fixture, "replies are counted for shard and worker, Pulls for the shard alone") {
  Start(2);
  Reply();
  Reply(/*written_version=*/0);  // these bytes have been written
  PullMessage(shard.get(), shard->store().chunks()[0], /*array=*/0, FLOAT16, std::nullopt);
  const ShardStats stats = shard->Stats();
  CHECK(stats.pulls() == 3);
  CHECK(stats.bytes_out() == 16 + 16 + 8);
  CHECK(stats.worker(0).bytes_out() == 16 + 16);
  CHECK(stats.worker(1).bytes_out() == 0);
}

}  // namespace evenshard
