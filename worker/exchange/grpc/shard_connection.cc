#include "worker/exchange/grpc/shard_connection.h"

#include <algorithm>
#include <utility>

#include "common/base/text.h"
#include "common/net/channel_options.h"
#include "common/net/same_host.h"
#include "common/net/unix_socket.h"
#include "spdlog/spdlog.h"

namespace evenshard {
namespace {

// How often abandoned channels are looked at.
constexpr absl::Duration kAbandonedPeriod = absl::Milliseconds(50);
// gRPC's own threads may be late by so much on a machine that is overloaded.
constexpr absl::Duration kShortestKeepalive = absl::Seconds(2);

}  // namespace

ShardConnection::ShardConnection(const Options& options)
    : options_(options), thread_([this] { Run(); }) {}

ShardConnection::~ShardConnection() {
  Disconnect();
  {
    absl::MutexLock lock(&mutex_);
    ends_ = true;
  }
  thread_.join();
}

void ShardConnection::Connect(const ExchangeTransport::Attempt& attempt) {
  absl::MutexLock lock(&mutex_);
  attempt_stop_.request_stop();
  has_request_ = true;
  requested_ = attempt;
  is_disconnected_ = false;
}

void ShardConnection::Disconnect() {
  absl::MutexLock lock(&mutex_);
  attempt_stop_.request_stop();
  has_request_ = true;
  requested_.reset();
}

void ShardConnection::Wake() {
  absl::MutexLock lock(&streams_mutex_);
  for (const Lane& lane : lanes_) lane.stream->Wake();
}

void ShardConnection::CloseStreams() {
  absl::MutexLock lock(&streams_mutex_);
  for (const Lane& lane : lanes_) lane.stream->Close();
}

void ShardConnection::AwaitDisconnected() {
  absl::MutexLock lock(&mutex_);
  mutex_.Await(absl::Condition(
      +[](ShardConnection* self)
           ABSL_EXCLUSIVE_LOCKS_REQUIRED(self->mutex_) { return self->is_disconnected_; },
      this));
}

std::shared_ptr<ShardControl> ShardConnection::control() const {
  absl::MutexLock lock(&mutex_);
  return control_;
}

std::shared_ptr<ShardControl> ShardConnection::ControlAt(const std::string& address) const {
  if (const std::shared_ptr<ShardControl> present = control();
      present == nullptr || address.empty() || present->address() == address) {
    return present;
  }
  ShardControl::Options options = options_.control;
  options.address = address;
  return std::make_shared<ShardControl>(options);
}

void ShardConnection::SetControl(const std::string& address) {
  ShardControl::Options options = options_.control;
  options.address = address;
  auto control = std::make_shared<ShardControl>(options);
  {
    absl::MutexLock lock(&mutex_);
    control_.swap(control);
  }
  if (control != nullptr) abandoned_.Add(control->channel());
}

void ShardConnection::EndStreams() {
  std::vector<Lane> ended;
  {
    absl::MutexLock lock(&streams_mutex_);
    ended.swap(lanes_);
  }
  // Their connections end too, so that gRPC gives its memory back.
  for (Lane& lane : ended) {
    lane.stream.reset();
    if (lane.channel != nullptr) abandoned_.Add(std::move(lane.channel));
  }
}

void ShardConnection::Run() {
  const auto requested = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return has_request_ || ends_;
  };
  while (true) {
    abandoned_.Drop();
    const absl::Duration patience =
        abandoned_.is_empty() ? absl::InfiniteDuration() : kAbandonedPeriod;
    std::optional<ExchangeTransport::Attempt> attempt;
    std::stop_token stop;
    {
      absl::MutexLock lock(&mutex_);
      if (!mutex_.AwaitWithTimeout(absl::Condition(&requested), patience)) continue;
      if (!has_request_) return;
      has_request_ = false;
      attempt = std::exchange(requested_, std::nullopt);
      attempt_stop_ = std::stop_source();
      stop = attempt_stop_.get_token();
    }
    EndStreams();
    if (attempt.has_value()) {
      Try(*std::move(attempt), stop);
      continue;
    }
    absl::MutexLock lock(&mutex_);
    is_disconnected_ = !has_request_;
  }
}

void ShardConnection::Try(ExchangeTransport::Attempt attempt, const std::stop_token& stop) {
  const ShardControl::Options& self = options_.control;
  if (!self.clock->SleepUntil(attempt.not_before, stop)) return;
  std::shared_ptr<ShardControl> control = this->control();
  if (control == nullptr || control->address() != attempt.address) {
    SetControl(attempt.address);
    control = this->control();
  }
  if (!control->AwaitUp(stop).ok()) return;
  if (absl::Status allowed = CheckUnixPeer(attempt.address); !allowed.ok()) {
    options_.handler->Ended(self.slot, attempt.number, allowed);
    return;
  }

  const Limits& limits = self.config->proto().limits();
  // With views a slot can move while its shard is out of reach, if that is noticed soon enough.
  const absl::Duration keepalive =
      self.names_slot
          ? std::clamp(absl::Seconds(limits.exchange_seconds()) / 6, kShortestKeepalive, kKeepalive)
          : kKeepalive;
  const auto open_stream = [&](int index) {
    auto channel =
        CreateBulkChannel(attempt.address, self.config->proto(), {.role = Role::kShard}, keepalive);
    auto stream = std::make_unique<ShardStream>(channel,
                                                ShardStream::Options{
                                                    .slot = self.slot,
                                                    .attempt = attempt.number,
                                                    .index = index,
                                                    .names_slot = self.names_slot,
                                                    .worker = self.rank,
                                                    .incarnation = self.incarnation,
                                                },
                                                options_.handler);
    if (UnixPath(attempt.address).has_value()) channel.reset();
    absl::MutexLock lock(&streams_mutex_);
    return lanes_.emplace_back(Lane{std::move(channel), std::move(stream)}).stream.get();
  };
  // Open the streams first, so that the shard notices if this worker dies from the moment at which
  // it holds the rank. The others follow the first, so that an attempt in vain costs the shard one
  // connection. All are open before the worker joins: none may arrive after it has left.
  std::vector<ShardStream*> opened = {open_stream(0)};
  if (!opened[0]->AwaitOpen(stop).ok()) return;  // the stream reports its end itself
  for (int i = 1; i < limits.connections(); ++i) opened.push_back(open_stream(i));
  for (size_t i = 1; i < opened.size(); ++i) {
    if (!opened[i]->AwaitOpen(stop).ok()) return;
  }

  if (options_.buffers.has_value() && IsOfThisHost(attempt.address)) {
    *attempt.join.mutable_shared_buffers() = *options_.buffers;
  }
  const absl::StatusOr<JoinResponse> joined = control->Join(attempt.join, stop);
  if (!joined.ok()) {
    options_.handler->Ended(self.slot, attempt.number, joined.status());
    return;
  }
  if (!joined->shared_buffers_refusal().empty()) {
    spdlog::info("{}: exchanging by messages: {}", control->name(),
                 Printable(joined->shared_buffers_refusal()));
  }
  options_.handler->Joined(self.slot, attempt.number, *joined);
}

}  // namespace evenshard
