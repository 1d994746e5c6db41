#include "client/client_worker.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "client/interrupt_check.h"
#include "common/base/error_kind.h"
#include "common/base/status_macros.h"
#include "common/config/asynchrony.h"
#include "common/config/optimizer_arrays.h"
#include "common/config/optimizer_rules.h"
#include "common/control/etcd/make_view_link.h"
#include "common/placement/plan/tensor_encoding.h"
#include "common/placement/rule_matching.h"
#include "common/process/exchange_setup.h"
#include "common/security/tls_files.h"
#include "common/wire/encoding.h"
#include "common/wire/hyperparameter_check.h"
#include "worker/training/connect_exchange.h"

namespace evenshard {

absl::StatusOr<std::unique_ptr<ClientWorker>> ClientWorker::Create(PlannedConfig config, int rank,
                                                                   const std::string& coordinator) {
  if (rank < 0 || rank >= config.workers()) {
    return absl::InvalidArgumentError(absl::StrCat("there is no worker ", rank, ": the config has ",
                                                   config.workers(), " workers, ranks 0 to ",
                                                   config.workers() - 1));
  }
  const std::vector<Layer>& layers = config.model().layers();
  if (config.is_ring() && !std::all_of(layers.begin(), layers.end(), [](const Layer& layer) {
        return layer.tensor_count == 1;
      })) {
    return config.FieldError("model",
                             "is the config's with topology RING, where a program exchanges single "
                             "tensors, allowed: from_workers, and a program that brings the model");
  }
  RETURN_IF_ERROR(CheckSecurity(config.proto()));
  SetUpExchange();
  ASSIGN_OR_RETURN(Exchange::Buffers buffers, Exchange::AllocateBuffers(config, {}));
  return std::unique_ptr<ClientWorker>(
      new ClientWorker(std::move(config), rank, coordinator, std::move(buffers)));
}

ClientWorker::ClientWorker(PlannedConfig config, int rank, const std::string& coordinator,
                           Exchange::Buffers buffers)
    : config_(std::move(config)),
      schedule_(config_),
      rank_(rank),
      buffers_(std::move(buffers)),
      views_(MakeViewLink(coordinator, config_.proto(), &clock_)) {}

ClientWorker::~ClientWorker() {
  if (exchange_ != nullptr && !has_left_) {
    exchange_->Leave(absl::CancelledError("the worker ended without leaving")).IgnoreError();
  }
}

int64_t ClientWorker::iteration() const {
  if (exchange_ == nullptr) return 0;
  return exchange_->next_iteration() - static_cast<int64_t>(exchange_->assignments().all);
}

int64_t ClientWorker::assignments() const {
  if (exchange_ == nullptr) return 0;
  const auto recent = static_cast<int64_t>(exchange_->assignments().recent);
  // The first assignment of the run gives the initial parameters.
  const bool has_initial = config_.is_from_workers() && iteration() == 0;
  return std::max<int64_t>(recent - (has_initial ? 1 : 0), 0);
}

ExchangeRound::Phase ClientWorker::phase() const {
  return exchange_ == nullptr ? ExchangeRound::Phase::kIdle : exchange_->phase();
}

double ClientWorker::LearningRate(int tensor) const {
  const OptimizerConfig& optimizer = config_.proto().optimizer();
  const Tensor& info = config_.model().tensors()[tensor];
  return OptimizerOfRule(optimizer, RuleOf(optimizer, info)).learning_rate();
}

absl::Status ClientWorker::CheckJoined() const {
  if (exchange_ == nullptr) return absl::FailedPreconditionError("the worker has not joined");
  return has_left_ ? absl::FailedPreconditionError("the worker has left") : absl::OkStatus();
}

absl::Status ClientWorker::Await(absl::FunctionRef<absl::Status()> call) {
  const absl::Time start = clock_.Now();
  const int64_t before = iteration();
  const absl::Status result = call();
  if (is_assigning_ && !exchange_->is_begun()) EndAssignment();
  iterations_ += iteration() - before;
  waited_ += clock_.Now() - start;
  return Explained(result);
}

absl::Status ClientWorker::Aside(absl::FunctionRef<absl::Status()> call) {
  if (!HasInterruptCheck() && give_state_ == nullptr) return Explained(call());
  runs_aside_ = true;
  const absl::Status result = RunAside(call, [this] { WhileWaiting(); });
  runs_aside_ = false;
  return Explained(result);
}

void ClientWorker::WhileWaiting() {
  const auto check = [this] {
    if (AskInterruptCheck()) Interrupt();
  };
  check();
  if (give_state_ != nullptr && has_joined_) exchange_->OfferState(give_state_, check);
}

absl::Status ClientWorker::Explained(const absl::Status& status) const {
  if (status.ok() || exchange_ == nullptr || !exchange_->went_back()) return status;
  return WithKind(ErrorDetail::WENT_BACK,
                  absl::AbortedError(absl::StrCat(
                      "the run has gone back to a checkpoint, from which the worker can resume: ",
                      status.message())));
}

absl::Status ClientWorker::TakeParameters(absl::Span<const float> initial) {
  const absl::Span<float> parameters = buffers_.parameters.span();
  if (!config_.is_from_workers()) return exchange_->Pull(parameters);
  if (rank_ == 0) {
    // They are assigned, as float32 and from the memory of gradients.
    const char* const bytes = reinterpret_cast<const char*>(initial.data());
    for (const Tensor& tensor : config_.model().tensors()) {
      Decode(tensor.type,
             {{bytes + tensor.parameters_begin,
               static_cast<size_t>(EncodedBytes(tensor.type, tensor.size))}},
             buffers_.gradients.span().subspan(tensor.offset, tensor.size));
    }
  }
  const absl::Status initialized = exchange_->Initialize(buffers_.gradients.span(), parameters);
  if (initialized.ok()) EndAssignment();
  return initialized;
}

void ClientWorker::EndAssignment() {
  is_assigning_ = false;
  buffers_.gradients.GiveBack(config_.model().gradient_bytes() /
                              static_cast<int64_t>(sizeof(float)));
}

bool ClientWorker::parameters_are_exact() const {
  const std::vector<Tensor>& tensors = config_.model().tensors();
  return std::all_of(tensors.begin(), tensors.end(), [this](const Tensor& tensor) {
    return ParameterEncodingOf(config_.proto().exchange(), tensor) == FLOAT32;
  });
}

absl::Status ClientWorker::Join() {
  if (exchange_ != nullptr) return absl::FailedPreconditionError("the worker has joined already");
  if (config_.has_quorum()) {
    return config_.FieldError("update.policy",
                              "is QUORUM, under which a worker may have to leave out iterations, "
                              "allowed: SYNC, SSP, ASYNC, or the `worker` program");
  }
  const absl::Span<const float> initial = buffers_.parameters.span();
  if (views_ != nullptr && config_.is_from_workers() && rank_ == 0) {
    initial_.assign(initial.begin(), initial.end());
  }
  const absl::Status joined = Aside([this, initial]() -> absl::Status {
    ASSIGN_OR_RETURN(exchange_, ConnectProgram({.config = &config_,
                                                .rank = rank_,
                                                .clock = &clock_,
                                                .view_link = views_.get(),
                                                .buffers = &buffers_,
                                                .while_waiting =
                                                    [this] {
                                                      if (!runs_aside_) WhileWaiting();
                                                    },
                                                .stop = stop_.get_token()}));
    joined_late_ = exchange_->next_iteration() > 0;
    absl::Status taken = TakeParameters(initial);
    // The program has nothing yet that would go back.
    while (!taken.ok() && exchange_->went_back()) {
      ASSIGN_OR_RETURN(const int64_t iteration, exchange_->Resume());
      joined_late_ = iteration > 0;
      taken = TakeParameters(initial_);
    }
    return taken;
  });
  has_joined_ = joined.ok();
  return joined;
}

absl::Status ClientWorker::SetHyperparameters(std::vector<Hyperparameters> by_tensor) {
  RETURN_IF_ERROR(CheckJoined());
  for (size_t i = 0; i < by_tensor.size(); ++i) {
    const Tensor& tensor = config_.model().tensors()[i];
    if (tensor.role != TensorRole::kParameter) continue;
    const absl::Status status =
        CheckHyperparameters(by_tensor[i], config_.proto().optimizer().kind());
    if (!status.ok()) {
      return absl::InvalidArgumentError(absl::StrCat(tensor.name, ": ", status.message()));
    }
  }
  exchange_->SetHyperparameters(std::move(by_tensor));
  return absl::OkStatus();
}

absl::Status ClientWorker::SetWeight(float weight) {
  RETURN_IF_ERROR(CheckJoined());
  if (!(weight > 0 && std::isfinite(weight))) {
    return absl::InvalidArgumentError(
        absl::StrCat("the weight is ", weight, ", allowed: a number above 0"));
  }
  exchange_->SetWeight(weight);
  return absl::OkStatus();
}

absl::Status ClientWorker::Begin(bool contributes, std::vector<Hyperparameters> by_tensor) {
  RETURN_IF_ERROR(SetHyperparameters(std::move(by_tensor)));
  const absl::Span<const float> gradients = buffers_.gradients.span();
  return Explained(exchange_->Begin(exchange_->next_iteration(),
                                    contributes ? gradients : gradients.first(0),
                                    buffers_.parameters.span()));
}

absl::Status ClientWorker::BeginAssignment(int array, std::vector<uint64_t> steps) {
  RETURN_IF_ERROR(CheckJoined());
  const int arrays = OptimizerArrays(config_.proto().optimizer().kind());
  if (array < 0 || array > arrays) {
    return absl::InvalidArgumentError(
        absl::StrCat("there is no array ", array, " of the state, allowed: 0 to ", arrays));
  }
  if (config_.proto().update().policy() != Update::SYNC) {
    return absl::FailedPreconditionError(
        "values can be assigned under SYNC only, where the workers have iterations in common; "
        "allowed: under SYNC");
  }
  const absl::Status begun =
      exchange_->Begin({.assigned = static_cast<uint32_t>(array), .steps = std::move(steps)},
                       buffers_.gradients.span(), buffers_.parameters.span());
  is_assigning_ = begun.ok();
  return Explained(begun);
}

absl::Status ClientWorker::PullState(int array, float* const* out, uint64_t* steps) {
  RETURN_IF_ERROR(CheckJoined());
  if (array > 0 && HasVelocityPerWorker(config_.proto())) {
    return absl::FailedPreconditionError(absl::StrCat(
        "under ", Update::Policy_Name(config_.proto().update().policy()), " with ",
        OptimizerConfig::Kind_Name(config_.proto().optimizer().kind()),
        " the optimizer's state is one velocity for each worker, allowed: update.asynchrony "
        "{ velocity: SHARED }, which has one for all"));
  }
  absl::Mutex mutex;  // the shards' chunks come at the same time
  return Aside([&] {
    return exchange_->PullState(array, [&](const Chunk& chunk, const ParameterChunk& message) {
      if (float* const tensor = out[chunk.tensor]; tensor != nullptr) {
        std::memcpy(tensor + chunk.begin, message.data().data(), message.data().size());
      }
      absl::MutexLock lock(&mutex);
      steps[chunk.tensor] = std::max(steps[chunk.tensor], message.steps());
      return absl::OkStatus();
    });
  });
}

absl::Status ClientWorker::Mean(const std::string& place, absl::Span<double> value) {
  RETURN_IF_ERROR(CheckJoined());
  return Aside([&]() -> absl::Status {
    ASSIGN_OR_RETURN(const std::vector<double> mean,
                     exchange_->Mean(place, {value.begin(), value.end()}));
    std::copy(mean.begin(), mean.end(), value.begin());
    return absl::OkStatus();
  });
}

absl::Status ClientWorker::KeepState(StatesByName states) {
  RETURN_IF_ERROR(CheckJoined());
  if (exchange_->is_begun()) {
    return absl::FailedPreconditionError(absl::StrCat("iteration ", iteration(), " has begun"));
  }
  const absl::Time start = clock_.Now();
  const absl::Status kept = Aside([&] { return exchange_->KeepState(std::move(states)); });
  waited_ += clock_.Now() - start;  // in a ring until all have begun
  return kept;
}

absl::Status ClientWorker::TakeState() {
  RETURN_IF_ERROR(CheckJoined());
  return Aside([this]() -> absl::Status {
    ASSIGN_OR_RETURN(taken_states_, exchange_->TakeState());
    return absl::OkStatus();
  });
}

absl::Status ClientWorker::ReceiveState(const WorkerState::Place& place) {
  RETURN_IF_ERROR(CheckJoined());
  return Aside([&]() -> absl::Status {
    while (true) {
      const absl::Status received = exchange_->ReceiveState(place);
      if (!absl::IsOutOfRange(received) || config_.proto().has_local()) return received;
      // Takes part in what the others have completed, without contributing.
      RETURN_IF_ERROR(exchange_->Begin(ExchangeKind{.skip = true}, {}, buffers_.parameters.span()));
      const auto layers = static_cast<int>(config_.model().layers().size());
      for (int layer = 0; layer < layers; ++layer) RETURN_IF_ERROR(exchange_->Push(layer));
      RETURN_IF_ERROR(exchange_->AwaitAll());
    }
  });
}

absl::Status ClientWorker::Push(absl::Span<const int> tensors, Contribution contribution) {
  RETURN_IF_ERROR(CheckJoined());
  return exchange_->PushTensors(tensors, contribution);
}

absl::Status ClientWorker::Wait(int tensor) {
  RETURN_IF_ERROR(CheckJoined());
  if (!exchange_->is_begun()) return absl::OkStatus();
  return Await([&] { return exchange_->AwaitTensor(tensor); });
}

bool ClientWorker::IsPushed(int tensor) const {
  return exchange_ != nullptr && exchange_->TensorPushed(tensor);
}

int ClientWorker::Received(int tensor) const {
  const int end = static_cast<int>(config_.model().tensors().size());
  int next = tensor;
  while (next < end && (exchange_ == nullptr || exchange_->TensorAnswered(next))) ++next;
  return next - tensor;
}

uint64_t ClientWorker::Updates(int tensor) const {
  return exchange_ == nullptr ? 0 : exchange_->UpdatesOf(tensor);
}

bool ClientWorker::AllAbsent(int tensor) const {
  return exchange_ != nullptr && exchange_->TensorAllAbsent(tensor);
}

absl::Status ClientWorker::WaitAll() {
  RETURN_IF_ERROR(CheckJoined());
  if (!exchange_->is_begun()) return absl::OkStatus();
  return Await([&] { return exchange_->AwaitAll(); });
}

absl::Status ClientWorker::PushPull(std::vector<Hyperparameters> by_tensor) {
  RETURN_IF_ERROR(SetHyperparameters(std::move(by_tensor)));
  return Await([this] {
    return exchange_->PushPull(exchange_->next_iteration(), buffers_.gradients.span(),
                               buffers_.parameters.span());
  });
}

absl::Status ClientWorker::Pull() {
  RETURN_IF_ERROR(CheckJoined());
  if (exchange_->is_begun()) {
    return absl::FailedPreconditionError(absl::StrCat(
        "iteration ", iteration(), " has begun, and its tensors have to be waited for"));
  }
  return Aside([this] { return exchange_->Pull(buffers_.parameters.span()); });
}

absl::Status ClientWorker::Resume() {
  RETURN_IF_ERROR(CheckJoined());
  const absl::Status resumed = Aside([this]() -> absl::Status {
    RETURN_IF_ERROR(exchange_->Resume().status());
    return TakeParameters(initial_);
  });
  has_joined_ = has_joined_ || resumed.ok();  // the run may have gone back as Join returned
  return resumed;
}

absl::Status ClientWorker::Leave(const char* error) {
  RETURN_IF_ERROR(CheckJoined());
  if (error == nullptr) {
    RETURN_IF_ERROR(WaitAll());
  }
  // What it has may be half of a step.
  if (error != nullptr) give_state_ = nullptr;
  const absl::Status outcome = error == nullptr ? absl::OkStatus()
                               : *error == '\0' ? absl::AbortedError("the program gave no reason")
                                                : absl::AbortedError(error);
  const absl::Status told = Aside([&] { return exchange_->Leave(outcome); });
  has_left_ = !exchange_->went_back() || error != nullptr;
  return told;
}

TrainingExchange::Traffic ClientWorker::traffic() const {
  return exchange_ == nullptr ? TrainingExchange::Traffic() : exchange_->traffic();
}

}  // namespace evenshard
