#include "bench/wire/raw_socket_shard.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/optimizer/aggregate.h"
#include "common/placement/model/initializer.h"
#include "common/wire/non_finite.h"
#include "spdlog/spdlog.h"

namespace evenshard {

absl::StatusOr<std::unique_ptr<RawShard>> RawShard::Start(const PlannedConfig* config, int shard,
                                                          int socket_buffer_bytes) {
  std::unique_ptr<RawShard> raw(new RawShard(config));
  RETURN_IF_ERROR(raw->Allocate(shard));
  const std::string& address = config->address(shard);
  ASSIGN_OR_RETURN(raw->listener_, RawSocket::Listen(address, socket_buffer_bytes));
  ASSIGN_OR_RETURN(raw->address_, raw->listener_.BoundAddress(address));
  for (int worker = 0; worker < config->workers(); ++worker) {
    raw->connections_.push_back(std::make_unique<Connection>());
  }
  raw->accepter_ = std::thread([r = raw.get()] { r->AcceptAll(); });
  return raw;
}

absl::Status RawShard::Allocate(int shard) {
  const Plan& plan = config_.plan();
  optimizer_ = Optimizer::Create(config_.proto().optimizer(), /*clip_value=*/0);
  for (FloatBuffer* buffer : {&parameters_, &sums_}) {
    ASSIGN_OR_RETURN(*buffer, FloatBuffer::Allocate(plan.shard_buffer_size(shard)));
  }
  gathers_ = std::vector<Gather>(plan.chunks().size());
  for (const uint32_t id : plan.chunks_of_shard(shard)) {
    const Chunk& chunk = plan.chunks()[id];
    InitializeParameters(config_.proto().training().seed(), config_.model().tensors()[chunk.tensor],
                         chunk.begin, parameters_.span().subspan(chunk.shard_offset, chunk.size));
  }
  return absl::OkStatus();
}

RawShard::~RawShard() {
  listener_.Shutdown();
  if (accepter_.joinable()) accepter_.join();
  for (const auto& connection : connections_) connection->socket.Shutdown();
  for (const auto& connection : connections_) {
    if (connection->receiver.joinable()) connection->receiver.join();
    if (connection->sender.joinable()) connection->sender.join();
  }
}

void RawShard::AcceptAll() {
  // Every reply goes to all connections, so the threads start when all of them exist.
  for (const auto& connection : connections_) {
    absl::StatusOr<RawSocket> accepted = listener_.Accept();
    if (!accepted.ok()) return;  // the destructor has shut the listener down
    connection->socket = *std::move(accepted);
    connection->received.resize(config_.proto().limits().chunk_bytes() / sizeof(float));
  }
  for (const auto& connection : connections_) {
    connection->receiver = std::thread([this, c = connection.get()] { ReceiveLoop(c); });
    connection->sender = std::thread([this, c = connection.get()] { SendLoop(c); });
  }
}

void RawShard::ReceiveLoop(Connection* connection) {
  absl::Status status;
  while (status.ok()) status = ReceiveGradient(connection);
  if (!absl::IsUnavailable(status)) spdlog::error("{}", status.ToString());
  connection->socket.Shutdown();
  absl::MutexLock lock(&connection->mutex);
  connection->ended = true;
}

absl::Status RawShard::ReceiveGradient(Connection* connection) {
  RawHeader header;
  RETURN_IF_ERROR(connection->socket.Receive(&header, sizeof(header)));
  const Chunk& chunk = config_.plan().chunks()[header.chunk];
  Gather& gather = gathers_[header.chunk];
  float* const sum = sums_.data() + chunk.shard_offset;
  bool first = false;
  {
    absl::MutexLock lock(&gather.mutex);
    first = !std::exchange(gather.claimed, true);
  }
  float* const gradient = first ? sum : connection->received.data();
  RETURN_IF_ERROR(connection->socket.Receive(gradient, header.bytes));
  if (FindNonFinite(gradient, chunk.size) >= 0) {
    return absl::InvalidArgumentError(absl::StrCat("chunk ", header.chunk, " is not finite"));
  }
  {
    absl::MutexLock lock(&gather.mutex);
    if (!first) {
      const auto started = [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(gather.mutex) {
        return gather.summed > 0;
      };
      gather.mutex.Await(absl::Condition(&started));
      AddGradient(sum, gradient, chunk.size);
    }
    if (++gather.summed < config_.workers()) return absl::OkStatus();
    gather.claimed = false;
    gather.summed = 0;
    const int64_t update = ++gather.updates;
    optimizer_->Apply({parameters_.span().subspan(chunk.shard_offset, chunk.size)}, sum,
                      1.0f / static_cast<float>(config_.workers()),
                      optimizer_->NumbersOf(update - 1), update);
  }
  for (const auto& receiver : connections_) {
    absl::MutexLock lock(&receiver->mutex);
    receiver->replies.push_back(header.chunk);
  }
  return absl::OkStatus();
}

void RawShard::SendLoop(Connection* connection) {
  while (true) {
    uint32_t id = 0;
    {
      absl::MutexLock lock(&connection->mutex);
      const auto ready = [connection]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(connection->mutex) {
        return !connection->replies.empty() || connection->ended;
      };
      connection->mutex.Await(absl::Condition(&ready));
      if (connection->ended) return;
      id = connection->replies.front();
      connection->replies.pop_front();
    }
    const Chunk& chunk = config_.plan().chunks()[id];
    const RawHeader header = {id, static_cast<uint32_t>(chunk.size * sizeof(float))};
    // The parameters cannot change while they are sent: their next update needs this worker's next
    // gradient, which it sends only after it has received this reply.
    const absl::Status sent =
        connection->socket.Send(header, parameters_.data() + chunk.shard_offset);
    if (!sent.ok()) return;  // the receiving thread logs why
  }
}

}  // namespace evenshard
