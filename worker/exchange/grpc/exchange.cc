// A push-pull, step by step:
//   1. Begin and Push tell the ExchangeRound, which queues chunks for the streams of their shards
//      when the schedule lets them leave. Under FULL, when all are queued, those that have not left
//      are sorted in the order in which the next forward pass needs them. An earlier layer does not
//      overtake others before that: each worker would leave other chunks behind, and a shard
//      answers a chunk only when it has that chunk from all workers.
//   2. A ShardStream takes the next chunk, or several small ones, when those before have passed
//      flow control (ChunkTransfer::NextGradients).
//   3. The shard answers (server/rpc/exchange_stream.cc). ChunkTransfer::TakeParameters writes the
//      parameters to their final place, and tells the round.
//   4. AwaitLayer returns when the layer's chunks are answered. When all chunks are answered,
//      AwaitLayer and AwaitAll also wait until gRPC has given all memory back, and for the view of
//      the newest answer.

#include "worker/exchange/grpc/exchange.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <numeric>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/base/error_kind.h"
#include "common/base/incarnation.h"
#include "common/base/status_macros.h"
#include "common/net/same_host.h"
#include "spdlog/spdlog.h"
#include "worker/exchange/core/parameter_bootstrap.h"

namespace evenshard {
namespace {

// See JoinRequest.process.
std::string ThisProcess() {
  std::array<char, 256> host = {};
  gethostname(host.data(), host.size() - 1);
  return absl::StrCat(host.data(), ", process ", getpid());
}

// Runs `call(shard)` for every shard at the same time. Returns all errors in one message, with the
// code of the first.
absl::Status ForEachShard(int shards, const std::function<absl::Status(int)>& call) {
  std::vector<absl::Status> results(shards, absl::UnknownError("the call did not run"));
  std::vector<std::thread> threads;
  for (int shard = 0; shard < shards; ++shard) {
    threads.emplace_back([&, shard] { results[shard] = call(shard); });
  }
  for (std::thread& thread : threads) thread.join();
  absl::Status first;
  std::vector<absl::string_view> messages;
  for (const absl::Status& result : results) {
    if (result.ok()) continue;
    first.Update(result);
    messages.push_back(result.message());
  }
  return first.ok() ? first : Reworded(first, absl::StrJoin(messages, "; "));
}

// Returns the shards' addresses: those `given`, or the config's if none are given.
std::vector<std::string> AddressesOf(const PlannedConfig& config,
                                     const std::vector<std::string>& given) {
  if (!given.empty()) return given;
  std::vector<std::string> addresses;
  for (int shard = 0; shard < config.shards(); ++shard) addresses.push_back(config.address(shard));
  return addresses;
}

const Clock& ClockOf(const Exchange::Options& options) {
  static const RealClock system;
  return options.clock == nullptr ? system : *options.clock;
}

// Returns `buffers`, or null if they cannot be shared.
const Exchange::Buffers* IfShared(const Exchange::Buffers* buffers) {
  const bool shared = buffers != nullptr && !buffers->gradients.place().name().empty() &&
                      !buffers->parameters.place().name().empty();
  return shared ? buffers : nullptr;
}

}  // namespace

void LogStall(const Stall& stall) {
  if (!stall.is_news) return;
  const std::string lasted = absl::FormatDuration(absl::Trunc(stall.lasted, absl::Seconds(1)));
  if (stall.missing.empty()) {
    spdlog::info("iteration {} goes on after {}", stall.iteration, lasted);
  } else {
    spdlog::warn("iteration {} has waited {}: {}", stall.iteration, lasted, stall.missing);
  }
}

struct Exchange::ViewListener {
  absl::Mutex mutex;
  Exchange* exchange ABSL_GUARDED_BY(mutex) = nullptr;
};

absl::StatusOr<Exchange::Buffers> Exchange::AllocateBuffers(
    const PlannedConfig& config, const std::vector<std::string>& addresses) {
  const std::vector<std::string> shards = AddressesOf(config, addresses);
  const bool may_share = MayShareMemory(config.proto().exchange()) &&
                         std::any_of(shards.begin(), shards.end(), IsOfThisHost);
  Buffers buffers;
  for (FloatBuffer* buffer : {&buffers.gradients, &buffers.parameters}) {
    const int64_t floats = config.model().buffer_size();
    if (may_share) {
      absl::StatusOr<FloatBuffer> shared = FloatBuffer::AllocateShared(floats);
      if (shared.ok()) {
        *buffer = *std::move(shared);
        continue;
      }
      spdlog::warn("no shared memory: {}", std::string(shared.status().message()));
    }
    ASSIGN_OR_RETURN(*buffer, FloatBuffer::Allocate(floats));
  }
  return buffers;
}

Exchange::Exchange(const Options& options)
    : config_(*options.config),
      rank_(options.rank),
      clock_(ClockOf(options)),
      stop_(options.stop),
      on_parameters_written_(options.on_parameters_written),
      on_stall_(options.on_stall),
      shared_buffers_(IfShared(options.buffers)),
      view_link_(options.view_link),
      core_({.config = &config_,
             .rank = options.rank,
             .incarnation = NewIncarnation(),
             .clock = &clock_,
             .transport = &transport_,
             .addresses = AddressesOf(config_, options.addresses),
             .has_views = view_link_ != nullptr,
             .process = ThisProcess(),
             .trace = options.trace,
             .while_waiting = options.while_waiting}),
      transfer_(&config_, &core_, options.on_parameters_written),
      on_stop_(stop_,
               [this] { core_.Fail(absl::CancelledError("the exchange was told to stop")); }) {
  std::optional<SharedBuffers> offered;
  if (shared_buffers_ != nullptr && MayShareMemory(config_.proto().exchange()) &&
      !config_.proto().recovery().has_etcd()) {
    offered.emplace();
    *offered->mutable_gradients() = shared_buffers_->gradients.place();
    *offered->mutable_parameters() = shared_buffers_->parameters.place();
  }
  for (int slot = 0; slot < config_.shards(); ++slot) {
    connections_.push_back(std::make_unique<ShardConnection>(
        ShardConnection::Options{.control = {.config = &config_,
                                             .slot = slot,
                                             .address = "",
                                             .names_slot = view_link_ != nullptr,
                                             .rank = options.rank,
                                             .incarnation = core_.State().incarnation(),
                                             .clock = &clock_,
                                             .stop = stop_},
                                 .buffers = offered,
                                 .handler = &transfer_}));
  }
  watcher_ = std::jthread([this](const std::stop_token& stop) { Watch(stop); });
}

Exchange::~Exchange() {
  if (listener_ != nullptr) {
    absl::MutexLock lock(&listener_->mutex);
    listener_->exchange = nullptr;
  }
  watcher_ = {};  // joined first, since it uses the other members
  if (!leave_called_) Leave(absl::CancelledError("the worker ended")).IgnoreError();
}

absl::StatusOr<std::unique_ptr<Exchange>> Exchange::Connect(const Options& options) {
  std::unique_ptr<Exchange> exchange(new Exchange(options));
  exchange->core_.Start();
  if (options.view_link != nullptr) {
    exchange->listener_ = std::make_shared<ViewListener>();
    {
      absl::MutexLock lock(&exchange->listener_->mutex);
      exchange->listener_->exchange = exchange.get();
    }
    options.view_link->Start({
        .on_view =
            [listener = exchange->listener_](const View& view) {
              absl::MutexLock lock(&listener->mutex);
              if (listener->exchange == nullptr) return;
              listener->exchange->core_.OnView(view);
              listener->exchange->Announce();
            },
        .on_end =
            [listener = exchange->listener_](const absl::Status& reason) {
              absl::MutexLock lock(&listener->mutex);
              if (listener->exchange == nullptr) return;
              listener->exchange->core_.OnEnd(reason);
            },
    });
    exchange->Announce();
  }
  const absl::Status ready = exchange->core_.AwaitReady();
  if (ready.ok()) return exchange;
  // Tell the shards that have accepted this worker.
  exchange->Leave(ready).IgnoreError();
  return ready;
}

void Exchange::Announce() {
  if (view_link_ == nullptr) return;
  absl::MutexLock lock(&announce_mutex_);
  view_link_->Announce(core_.State());
}

void Exchange::Watch(const std::stop_token& stop) {
  while (clock_.SleepUntil(clock_.Now() + core_.tick_period(), stop)) {
    if (const std::optional<Stall> stall = core_.round().CheckProgress(clock_.Now());
        stall.has_value()) {
      on_stall_(*stall);
    }
    if (core_.Tick()) Announce();
  }
}

absl::StatusOr<int64_t> Exchange::Resume() {
  if (!went_back()) return absl::FailedPreconditionError("the run has not gone back");
  while (went_back()) {  // it may do so once more meanwhile
    for (const auto& connection : connections_) connection->AwaitDisconnected();
    if (!transfer_.AwaitGivenBack(core_.round().limit())) {
      return absl::InternalError(
          "gRPC has not given back gradients of connections that were closed");
    }
    core_.Resume();
    Announce();
    if (const absl::Status ready = core_.AwaitReady(); !ready.ok() && !went_back()) return ready;
  }
  return next_iteration();
}

absl::Status Exchange::Pull(absl::Span<float> parameters) {
  return Bootstrap(/*brings_parameters=*/false, {}, parameters);
}

absl::Status Exchange::Initialize(absl::Span<const float> initial, absl::Span<float> parameters) {
  return Bootstrap(/*brings_parameters=*/true, initial, parameters);
}

absl::Status Exchange::Bootstrap(bool brings_parameters, absl::Span<const float> initial,
                                 absl::Span<float> parameters) {
  ParameterBootstrap bootstrap({.config = &config_,
                                .clock = &clock_,
                                .core = &core_,
                                .rank = rank_,
                                .brings_parameters = brings_parameters});
  while (true) {
    ASSIGN_OR_RETURN(const ParameterBootstrap::Step step, bootstrap.Next());
    switch (step.kind) {
      case ParameterBootstrap::Step::Kind::kExchange:
        RETURN_IF_ERROR(PushPull(static_cast<int64_t>(step.iteration),
                                 step.contributes ? initial : initial.first(0), parameters));
        break;
      case ParameterBootstrap::Step::Kind::kPull:
        if (step.not_before > clock_.Now()) clock_.SleepUntil(step.not_before, stop_);
        RETURN_IF_ERROR(
            ForEachShard(config_.shards(), [&](int slot) { return PullSlot(slot, parameters); }));
        break;
      case ParameterBootstrap::Step::Kind::kDone:
        return absl::OkStatus();
    }
  }
}

absl::Status Exchange::PullSlot(int slot, absl::Span<float> parameters) {
  SlotPull pull = core_.StartPull();
  while (true) {
    RETURN_IF_ERROR(core_.AwaitConnected(slot));
    const absl::Status pulled =
        connections_[slot]->control()->Pull([&](const Chunk& chunk, const ParameterChunk& message) {
          const absl::Span<float> to = parameters.subspan(chunk.model_offset, chunk.size);
          std::memcpy(to.data(), message.data().data(), message.data().size());
          core_.round().TakePulled(chunk.id, message.version(), to);
          on_parameters_written_(chunk.model_offset, chunk.size);
          return absl::OkStatus();
        });
    ASSIGN_OR_RETURN(const std::optional<absl::Time> again, pull.Ended(pulled));
    if (!again.has_value()) return absl::OkStatus();
    clock_.SleepUntil(*again, stop_);
  }
}

absl::Status Exchange::PushPull(int64_t iteration, absl::Span<const float> gradients,
                                absl::Span<float> parameters) {
  RETURN_IF_ERROR(Begin(iteration, gradients, parameters));
  std::vector<int> tensors(config_.model().tensors().size());
  std::iota(tensors.begin(), tensors.end(), 0);
  RETURN_IF_ERROR(PushTensors(tensors, Contribution::kGradient));
  return AwaitAll();
}

absl::Status Exchange::Begin(int64_t iteration, absl::Span<const float> gradients,
                             absl::Span<float> parameters) {
  if (shared_buffers_ != nullptr &&
      (parameters.data() != shared_buffers_->parameters.span().data() ||
       (!gradients.empty() && gradients.data() != shared_buffers_->gradients.span().data()))) {
    return absl::InvalidArgumentError(
        "the exchange was given other buffers than those that it shares with shards");
  }
  RETURN_IF_ERROR(core_.round().Begin(static_cast<uint64_t>(iteration),
                                      /*skip=*/gradients.empty(), hyperparameters_));
  transfer_.SetBuffers(gradients, parameters);
  return absl::OkStatus();
}

absl::Status Exchange::Push(int layer) {
  const Layer& pushed = config_.model().layers()[layer];
  std::vector<int> tensors(pushed.tensor_count);
  std::iota(tensors.begin(), tensors.end(), pushed.first_tensor);
  return PushTensors(tensors, Contribution::kGradient);
}

absl::Status Exchange::Settle(const absl::Status& awaited) {
  if (!awaited.ok() || !core_.round().AllAnswered()) return awaited;
  RETURN_IF_ERROR(core_.round().AwaitView());
  // Every chunk was answered, so gRPC gives its memory back at once.
  if (!transfer_.AwaitGivenBack(core_.round().limit())) {
    return absl::InternalError("gRPC has not given back gradients that were answered");
  }
  core_.round().End();
  return absl::OkStatus();
}

absl::Status Exchange::Report(const WorkerUsage& usage, const std::stop_token& stop) {
  const std::shared_ptr<ShardControl> control = connections_[0]->control();
  if (control == nullptr) return absl::UnavailableError("it is not known where shard 0 is");
  return control->Report(usage, stop);
}

absl::Status Exchange::SendLeave(const absl::Status& outcome, absl::Duration timeout) {
  const LeaveRequest message = core_.LeaveMessage(outcome);
  return ForEachShard(config_.shards(), [&](int slot) {
    const std::shared_ptr<ShardControl> control = connections_[slot]->control();
    if (control == nullptr) return absl::OkStatus();
    return control->Leave(message, core_.StartLeave(outcome, timeout));
  });
}

absl::Status Exchange::Leave(const absl::Status& outcome) {
  core_.BeginLeave(outcome);
  Announce();
  absl::Status told = SendLeave(outcome, ShardControl::kTimeout);
  if (outcome.ok() && view_link_ != nullptr) {
    // A shard out of reach does not matter here: the view says when the training has ended.
    if (!told.ok()) spdlog::info("{}", std::string(told.message()));
    core_.EndLeave();
    Announce();
    told = core_.AwaitFinished();
    if (went_back()) return told;
    core_.Stop(told);
    Announce();
  }
  leave_called_ = true;
  for (const auto& connection : connections_) {
    const std::shared_ptr<ShardControl> control = connection->control();
    if (outcome.ok() && control != nullptr && control->has_left()) connection->CloseStreams();
    connection->Disconnect();
  }
  for (const auto& connection : connections_) connection->AwaitDisconnected();
  if (!transfer_.AwaitGivenBack(ShardControl::kTimeout)) {
    spdlog::error("gRPC still holds gradient memory {} after its connections were closed",
                  absl::FormatDuration(ShardControl::kTimeout));
  }
  return told;
}

}  // namespace evenshard
