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
#include <numeric>

#include "absl/strings/str_cat.h"
#include "common/base/incarnation.h"
#include "common/base/status_macros.h"
#include "common/net/same_host.h"
#include "common/process/open_files.h"
#include "spdlog/spdlog.h"
#include "worker/exchange/grpc/for_each_shard.h"

namespace evenshard {
namespace {

// See JoinRequest.process.
std::string ThisProcess() {
  std::array<char, 256> host = {};
  gethostname(host.data(), host.size() - 1);
  return absl::StrCat(host.data(), ", process ", getpid());
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

std::vector<int> TensorsFrom(int first, size_t count) {
  std::vector<int> tensors(count);
  std::iota(tensors.begin(), tensors.end(), first);
  return tensors;
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
  const Model& model = config.model();
  for (const auto& [buffer, floats] :
       {std::pair(&buffers.gradients, model.buffer_size()),
        std::pair(&buffers.parameters,
                  model.parameter_bytes() / static_cast<int64_t>(sizeof(float)))}) {
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

Exchange::Exchange(const Options& options, std::unique_ptr<GradientEncoder> encoder)
    : config_(*options.config),
      rank_(options.rank),
      clock_(ClockOf(options)),
      stop_(options.stop),
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
      transfer_(&config_, &core_, std::move(encoder), options.on_parameters_written),
      calls_({.clock = &clock_,
              .control = [this] { return connections_[0]->control(); },
              .failure = [this] { return core_.failure(); },
              .generation = [this] { return core_.generation(); },
              .stop = stop_}),
      means_(
          &calls_, [this] { return core_.view_number(); }, [this] { return ControlInView(0); }),
      states_({.config = &config_,
               .calls = &calls_,
               .control = [this](int slot) { return ControlInView(slot); }}),
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
  const int shards = options.config->shards();
  RETURN_IF_ERROR(ReserveOpenFiles(shards * (options.config->proto().limits().connections() + 1),
                                   absl::StrCat("connections to ", shards, " shards")));
  ASSIGN_OR_RETURN(std::unique_ptr<GradientEncoder> encoder,
                   GradientEncoder::Create(*options.config, options.rank));
  std::unique_ptr<Exchange> exchange(new Exchange(options, std::move(encoder)));
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
  // If the run has just gone back, whoever uses the exchange next is told so, and can resume.
  if (ready.ok() || exchange->went_back()) return exchange;
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
    const uint64_t exchange = core_.round().next_iteration();
    // That of a catch-up is the one before. The others may be past it, and wait in a mean.
    const bool catches_up = core_.catch_up().iteration.has_value();
    const std::optional<Stall> stall = core_.round().CheckProgress(clock_.Now());
    if (stall.has_value()) on_stall_(*stall);
    if (core_.Tick()) Announce();
    means_.Retell();
    RetellKept();
    if (stall.has_value() && stall->is_news && !stall->missing.empty() && !catches_up) {
      CheckMeans(exchange, stall->iteration);
    }
  }
}

void Exchange::CheckMeans(uint64_t exchange, uint64_t iteration) {
  const std::string other = means_.WhoWaits(exchange);
  // It may have gone on meanwhile, or back.
  if (other.empty() || core_.round().next_iteration() != exchange) return;
  core_.Fail(absl::FailedPreconditionError(absl::StrCat(
      "worker ", rank_, " waits in iteration ", iteration, ", and ", other,
      " for its mean() or barrier() before it; allowed: the same calls in all workers, and in one "
      "that was started again those of the iteration at which the run is")));
}

std::shared_ptr<ShardControl> Exchange::ControlInView(int slot) const {
  return connections_[slot]->ControlAt(core_.PrimaryInView(slot));
}

void Exchange::RetellKept() {
  const uint64_t view = core_.view_number();
  KeepStateRequest request;
  request.set_generation(core_.generation());
  const std::optional<RegisteredState> kept = core_.KeptAtEnd();
  if (!kept.has_value() || view == retold_in_) return;
  *request.mutable_state() = *kept;
  const std::shared_ptr<ShardControl> control = ControlInView(0);
  if (control != nullptr && control->KeepState(request, PersistentCalls::kRetellTimeout).ok())
    retold_in_ = view;
}

absl::StatusOr<int64_t> Exchange::Resume() {
  if (!went_back()) return absl::FailedPreconditionError("the run has not gone back");
  while (went_back()) {  // it may do so once more meanwhile
    for (const auto& connection : connections_) connection->AwaitDisconnected();
    if (!transfer_.AwaitGivenBack(core_.round().limit())) {
      return absl::InternalError(
          "gRPC has not given back gradients of connections that were closed");
    }
    means_.Forget();
    transfer_.ForgetErrors();
    core_.Resume();
    Announce();
    if (const absl::Status ready = core_.AwaitReady(); !ready.ok() && !went_back()) return ready;
  }
  return next_iteration();
}

absl::Status Exchange::PushPull(int64_t iteration, absl::Span<const float> gradients,
                                absl::Span<float> parameters) {
  RETURN_IF_ERROR(Begin(iteration, gradients, parameters));
  RETURN_IF_ERROR(
      PushTensors(TensorsFrom(0, config_.model().tensors().size()), Contribution::kGradient));
  return AwaitAll();
}

absl::Status Exchange::Begin(int64_t iteration, absl::Span<const float> gradients,
                             absl::Span<float> parameters) {
  return BeginAt(
      static_cast<uint64_t>(iteration),
      {.skip = gradients.empty(), .weight = weight_, .hyperparameters = hyperparameters_},
      gradients, parameters);
}

absl::Status Exchange::Begin(ExchangeKind kind, absl::Span<const float> pushed,
                             absl::Span<float> parameters) {
  return BeginAt(round().next_iteration(), std::move(kind), pushed, parameters);
}

absl::Status Exchange::BeginAt(uint64_t iteration, ExchangeKind kind,
                               absl::Span<const float> gradients, absl::Span<float> parameters) {
  if (shared_buffers_ != nullptr &&
      (parameters.data() != shared_buffers_->parameters.span().data() ||
       (!gradients.empty() && gradients.data() != shared_buffers_->gradients.span().data()))) {
    return absl::InvalidArgumentError(
        "the exchange was given other buffers than those that it shares with shards");
  }
  RETURN_IF_ERROR(core_.round().Begin(iteration, std::move(kind)));
  transfer_.SetBuffers(gradients, parameters);
  return absl::OkStatus();
}

absl::Status Exchange::Push(int layer) {
  const Layer& pushed = config_.model().layers()[layer];
  return PushTensors(TensorsFrom(pushed.first_tensor, pushed.tensor_count),
                     Contribution::kGradient);
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

absl::Status Exchange::KeepState(StatesByName states) {
  KeepStateRequest request;
  request.set_generation(core_.generation());
  request.mutable_state()->set_iteration(round().next_iteration());
  request.mutable_state()->mutable_value()->insert(states.begin(), states.end());
  core_.Keep(request.state());
  return calls_.Repeat([&](ShardControl& control) -> absl::StatusOr<bool> {
    RETURN_IF_ERROR(control.KeepState(request, ShardControl::kTimeout));
    return true;
  });
}

absl::StatusOr<StatesByName> Exchange::TakeState() {
  StatesByName states;
  RETURN_IF_ERROR(calls_.Repeat([&](ShardControl& control) -> absl::StatusOr<bool> {
    ASSIGN_OR_RETURN(const TakeStateResponse response, control.TakeState(round().next_iteration()));
    states = {response.state().value().begin(), response.state().value().end()};
    return response.complete();
  }));
  return states;
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
