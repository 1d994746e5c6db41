#include "server/session/worker_buffers.h"

#include <catch2/catch.hpp>
#include <string>
#include <vector>

#include "common/base/float_buffer.h"
#include "tests/server/shard/shard_fixture.h"

namespace evenshard {
namespace {

FloatBuffer MakeShared(int64_t floats) {
  absl::StatusOr<FloatBuffer> buffer = FloatBuffer::AllocateShared(floats);
  REQUIRE(buffer.ok());
  return *std::move(buffer);
}

struct Fixture : ShardFixture {
  // A worker's buffers, and the Join that offers them.
  void Offer(int64_t gradients_size, int64_t parameters_size) {
    gradients = MakeShared(gradients_size);
    parameters = MakeShared(parameters_size);
    *request.mutable_shared_buffers()->mutable_gradients() = gradients.place();
    *request.mutable_shared_buffers()->mutable_parameters() = parameters.place();
  }

  FloatBuffer gradients, parameters;
  JoinRequest request;
};

}  // namespace

TEST_CASE_METHOD(Fixture, "a shard reads gradients and writes parameters in the worker's memory") {
  Start(1);
  Offer(config->model().buffer_size(), config->model().buffer_size());
  const auto buffers = WorkerBuffers::Map(*config, request);
  INFO(buffers.status());
  REQUIRE(buffers.ok());

  StoredChunk& chunk = shard->store().chunks()[0];
  gradients.span()[chunk.info().model_offset] = 5;
  const Segments gradient = (*buffers)->GradientOf(*config, /*assigned=*/false, chunk.info());
  REQUIRE(SegmentsSize(gradient) == 4 * sizeof(float));
  CHECK(reinterpret_cast<const float*>(gradient[0].data())[0] == 5);

  REQUIRE(Push(0, 0, {1, 2, 3, 4}).ok());
  CHECK((*buffers)->Write(*config, /*rank=*/0, chunk, /*held_version=*/0) == 1);
  const auto written = parameters.span().subspan(chunk.info().model_offset, chunk.info().size);
  CHECK(std::vector<float>(written.begin(), written.end()) == Parameters());

  // A worker that has this version keeps what it has.
  written[0] = 7;
  CHECK((*buffers)->Write(*config, /*rank=*/0, chunk, /*held_version=*/1) == 1);
  CHECK(written[0] == 7);
}

TEST_CASE_METHOD(Fixture, "what is written is noted as sent to the worker") {
  Start(2, {"update={policy: ASYNC asynchrony { correction: GAP_AWARE }}"});
  Offer(config->model().buffer_size(), config->model().buffer_size());
  const auto buffers = WorkerBuffers::Map(*config, request);
  REQUIRE(buffers.ok());
  StoredChunk& chunk = shard->store().chunks()[0];
  (*buffers)->Write(*config, /*rank=*/1, chunk, /*held_version=*/0);
  absl::MutexLock lock(&chunk.mutex);
  CHECK(chunk.sent().NotedBut(/*pusher=*/0) == SentParameters::Ranks{1});
}

TEST_CASE_METHOD(Fixture, "a worker that offers no buffers shares none") {
  Start(1);
  CHECK(absl::IsNotFound(WorkerBuffers::Map(*config, request).status()));
}

TEST_CASE_METHOD(Fixture, "a config without shared memory refuses a worker's buffers") {
  Start(1, {"exchange.shared_memory=false"});
  Offer(config->model().buffer_size(), config->model().buffer_size());
  const absl::Status refused = WorkerBuffers::Map(*config, request).status();
  CHECK(absl::IsFailedPrecondition(refused));
  CHECK_THAT(std::string(refused.message()), Catch::Contains("exchange.shared_memory: false"));
}

TEST_CASE_METHOD(Fixture, "a buffer that is not the model's size is refused by its name") {
  Start(1);
  Offer(config->model().buffer_size(), config->model().buffer_size() + 100'000);
  const absl::Status refused = WorkerBuffers::Map(*config, request).status();
  CHECK(absl::IsInvalidArgument(refused));
  CHECK_THAT(std::string(refused.message()), Catch::StartsWith("parameters: "));
}

}  // namespace evenshard
