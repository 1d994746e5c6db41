#include "bench/wire/raw_socket_worker.h"

#include <future>
#include <utility>

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
  std::vector<std::future<absl::Status>> results;
  for (int shard = 0; shard < static_cast<int>(sockets_.size()); ++shard) {
    results.push_back(
        std::async(std::launch::async, [=, this] { return PushTo(shard, gradients); }));
    results.push_back(
        std::async(std::launch::async, [=, this] { return PullFrom(shard, parameters); }));
  }
  absl::Status first;
  for (std::future<absl::Status>& result : results) first.Update(result.get());
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
