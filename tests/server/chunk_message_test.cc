#include "server/chunk_message.h"

#include <catch2/catch.hpp>
#include <cstring>
#include <vector>

#include "common/wire/message_slices.h"
#include "tests/server/shard_fixture.h"

namespace ps {
namespace {

// A message and what a worker reads in it.
struct Read {
  explicit Read(grpc::ByteBuffer bytes) : message(&bytes) {
    const auto decoded = DecodeParameterChunk(message.segments());
    REQUIRE(decoded.ok());
    header = decoded->header;
    data = decoded->data;
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
    return Read(ReplyMessage(shard.get(), sessions[0].get(),
                             {.chunk = 0, .iteration = 0, .written_version = written_version}));
  }
  const void* StoredParameters() {
    StoredChunk& chunk = shard->store().chunks()[0];
    absl::MutexLock lock(&chunk.mutex);
    return chunk.parameters().data();
  }
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
  const Read pulled(PullMessage(shard.get(), shard->store().chunks()[0], FLOAT32));
  CHECK(pulled.header.encoding == FLOAT32);
  CHECK(pulled.Floats() == Parameters());
  CHECK(pulled.data[0].data() != StoredParameters());
}

TEST_CASE_METHOD(Fixture, "a reply whose parameters were written to shared memory has no data") {
  Start(1);
  const Read reply = Reply(/*written_version=*/17);
  CHECK(reply.header.version == 17);
  CHECK(SegmentsSize(reply.data) == 0);
}

TEST_CASE_METHOD(Fixture, "replies are counted for shard and worker, Pulls for the shard alone") {
  Start(2);
  Reply();
  Reply(/*written_version=*/0);  // these bytes have been written
  PullMessage(shard.get(), shard->store().chunks()[0], FLOAT16);
  const ShardStats stats = shard->Stats();
  CHECK(stats.pulls() == 3);
  CHECK(stats.bytes_out() == 16 + 16 + 8);
  CHECK(stats.worker(0).bytes_out() == 16 + 16);
  CHECK(stats.worker(1).bytes_out() == 0);
}

}  // namespace ps
