#include "bench/wire/raw_socket_worker.h"

#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"

namespace evenshard {

absl::StatusOr<std::unique_ptr<RawWorker>> RawWorker::Connect(
    const PlannedConfig* config, const std::vector<std::string>& addresses,
    int socket_buffer_bytes) {
  std::unique_ptr<RawWorker> worker(new RawWorker(config));
  for (const std::string& address : addresses) {
    ASSIGN_OR_RETURN(RawSocket socket, RawSocket::Connect(address, socket_buffer_bytes));
    worker->sockets_.push_back(std::move(socket));
  }
  return worker;
}

absl::Status RawWorker::PushPull(absl::Span<const float> gradients, absl::Span<float> parameters) {
  const int shards = static_cast<int>(sockets_.size());
  std::vector<absl::Status> results(2 * shards, absl::UnknownError("did not run"));
  std::vector<std::thread> threads;
  for (int shard = 0; shard < shards; ++shard) {
    threads.emplace_back([&, shard] { results[2 * shard] = PushTo(shard, gradients); });
    threads.emplace_back([&, shard] { results[2 * shard + 1] = PullFrom(shard, parameters); });
  }
  for (std::thread& thread : threads) thread.join();
  absl::Status first;
  for (const absl::Status& result : results) first.Update(result);
  return first;
}

absl::Status RawWorker::PushTo(int shard, absl::Span<const float> gradients) const {
  for (const uint32_t id : config_.plan().chunks_of_shard(shard)) {
    const Chunk& chunk = config_.plan().chunks()[id];
    const RawHeader header = {id, static_cast<uint32_t>(chunk.size * sizeof(float))};
    RETURN_IF_ERROR(sockets_[shard].Send(header, gradients.data() + chunk.model_offset));
  }
  return absl::OkStatus();
}

absl::Status RawWorker::PullFrom(int shard, absl::Span<float> parameters) const {
  for (size_t left = config_.plan().chunks_of_shard(shard).size(); left > 0; --left) {
    RawHeader header;
    RETURN_IF_ERROR(sockets_[shard].Receive(&header, sizeof(header)));
    const Chunk& chunk = config_.plan().chunks()[header.chunk];
    RETURN_IF_ERROR(sockets_[shard].Receive(parameters.data() + chunk.model_offset, header.bytes));
  }
  return absl::OkStatus();
}

}  // namespace evenshard
