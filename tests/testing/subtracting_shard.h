#ifndef EVENSHARD_TESTS_TESTING_SUBTRACTING_SHARD_H_
#define EVENSHARD_TESTS_TESTING_SUBTRACTING_SHARD_H_

#include <algorithm>
#include <atomic>
#include <catch2/catch.hpp>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "common/placement/planned_config.h"
#include "common/wire/encoding.h"
#include "grpcpp/grpcpp.h"
#include "proto/parameter_server.grpc.pb.h"
#include "tests/testing/chunk_messages.h"

namespace evenshard {

// What a slot's primary and its copy have in common. Thread-safe.
class SubtractingSlot {
 public:
  SubtractingSlot(const PlannedConfig* config, int slot)
      : config_(*config),
        slot_(slot),
        next_(config->plan().chunks().size()),
        parameters_(config->model().buffer_size()) {}

  int slot() const { return slot_; }
  absl::Span<const uint32_t> chunks() const { return config_.plan().chunks_of_shard(slot_); }
  int64_t repeats() const { return repeats_; }
  uint64_t history() const { return history_; }
  // The parameters are made anew, as those from which `iteration` goes on.
  void GoBack(uint64_t iteration, const std::vector<float>& parameters) {
    absl::MutexLock lock(&mutex_);
    std::fill(next_.begin(), next_.end(), iteration);
    parameters_ = parameters;
    ++history_;
  }
  uint64_t StartIteration() {
    absl::MutexLock lock(&mutex_);
    uint64_t least = UINT64_MAX;
    for (const uint32_t chunk : chunks()) least = std::min(least, next_[chunk]);
    return least;
  }

  // Subtracts a gradient, once for each iteration. Returns false for an iteration that cannot be.
  bool Push(const GradientChunk& push) {
    absl::MutexLock lock(&mutex_);
    uint64_t& next = next_[push.chunk()];
    if (push.iteration() + 1 == next) ++repeats_;
    if (push.iteration() != next) return push.iteration() + 1 == next;
    ++next;
    const Chunk& chunk = config_.plan().chunks()[push.chunk()];
    ForEachDecodedRun(push.encoding(), {absl::MakeConstSpan(push.data())}, chunk.size,
                      [&](int64_t first, const UnalignedFloat* gradient, int64_t count) {
                        float* const at = parameters_.data() + chunk.model_offset + first;
                        for (int64_t i = 0; i < count; ++i) at[i] -= gradient[i];
                      });
    return true;
  }
  ParameterChunk Answer(uint32_t id, uint64_t iteration, uint64_t view) {
    absl::MutexLock lock(&mutex_);
    const Chunk& chunk = config_.plan().chunks()[id];
    ParameterChunk answer;
    answer.set_chunk(id);
    answer.set_iteration(iteration);
    answer.set_version(next_[id]);
    answer.set_view(view);
    answer.set_data(reinterpret_cast<const char*>(parameters_.data() + chunk.model_offset),
                    chunk.size * sizeof(float));
    return answer;
  }

 private:
  const PlannedConfig& config_;
  const int slot_;
  std::atomic<int64_t> repeats_{0};
  std::atomic<uint64_t> history_{1};
  absl::Mutex mutex_;
  std::vector<uint64_t> next_;  // by chunk: the iteration to subtract
  std::vector<float> parameters_;
};

// A process that is the primary of a slot, for one worker.
class SubtractingShard final : public ParameterServer::Service {
 public:
  explicit SubtractingShard(SubtractingSlot* slot) : slot_(*slot) {
    int port = 0;
    grpc::ServerBuilder builder;
    builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port);
    builder.RegisterService(this);
    server_ = builder.BuildAndStart();
    REQUIRE(server_ != nullptr);
    address_ = absl::StrCat("127.0.0.1:", port);
  }
  ~SubtractingShard() override { server_->Shutdown(std::chrono::system_clock::now()); }

  const std::string& address() const { return address_; }
  int64_t joins() const { return joins_; }
  void Follow(uint64_t view) { view_ = view; }
  // From now on Join is answered so.
  void Refuse(const grpc::Status& status) {
    absl::MutexLock lock(&mutex_);
    refusal_ = status;
  }

  grpc::Status Join(grpc::ServerContext*, const JoinRequest* request,
                    JoinResponse* response) override {
    ++joins_;
    if (request->view() != view_) return {grpc::StatusCode::UNAVAILABLE, "is of another view"};
    response->set_shard(slot_.slot());
    response->set_history(slot_.history());
    response->set_start_iteration(slot_.StartIteration());
    absl::MutexLock lock(&mutex_);
    return refusal_;
  }
  grpc::Status Leave(grpc::ServerContext*, const LeaveRequest*, LeaveResponse*) override {
    if (!has_left_.exchange(true)) return grpc::Status::OK;
    return {grpc::StatusCode::FAILED_PRECONDITION, "does not hold the rank"};
  }
  grpc::Status Pull(grpc::ServerContext*, const PullRequest*,
                    grpc::ServerWriter<ParameterChunk>* writer) override {
    for (const uint32_t chunk : slot_.chunks()) writer->Write(slot_.Answer(chunk, 0, 0));
    return grpc::Status::OK;
  }
  grpc::Status Exchange(
      grpc::ServerContext*,
      grpc::ServerReaderWriter<ParameterChunks, GradientChunks>* stream) override {
    stream->SendInitialMetadata();
    ChunkReader<GradientChunks> pushes;
    GradientChunk push;
    while (pushes.Read(*stream, &push)) {
      const uint64_t view = view_;
      if (push.view() < view) continue;
      if (push.view() > view) return {grpc::StatusCode::UNAVAILABLE, "is of an older view"};
      if (!slot_.Push(push)) {
        if (view_ != view) continue;  // the slot has gone back meanwhile
        return {grpc::StatusCode::FAILED_PRECONDITION, "cannot be at this iteration"};
      }
      stream->Write(MessageOf(slot_.Answer(push.chunk(), push.iteration(), view)));
    }
    return grpc::Status::OK;
  }

 private:
  SubtractingSlot& slot_;
  std::atomic<uint64_t> view_{0};
  std::atomic<int64_t> joins_{0};
  std::atomic<bool> has_left_{false};
  absl::Mutex mutex_;
  grpc::Status refusal_;
  std::unique_ptr<grpc::Server> server_;
  std::string address_;
};

}  // namespace evenshard

#endif  // EVENSHARD_TESTS_TESTING_SUBTRACTING_SHARD_H_
