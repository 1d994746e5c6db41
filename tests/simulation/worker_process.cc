#include "tests/simulation/worker_process.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "common/base/random.h"
#include "common/config/optimizer_arrays.h"
#include "common/wire/encoding.h"
#include "tests/simulation/control/coordinator.h"
#include "tests/simulation/made_up_gradients.h"

namespace evenshard {
namespace {

// As of ShardControl.
constexpr absl::Duration kLeaveTimeout = absl::Seconds(5);

}  // namespace

WorkerProcess::WorkerProcess(Context* context, int rank, NodeRef node, uint64_t incarnation)
    : context_(*context),
      rank_(rank),
      node_(node),
      incarnation_(incarnation),
      link_(context->coordinator()->MakeLink(node)),
      transport_(context, rank, node, incarnation, this),
      core_({.config = &context->config,
             .rank = rank,
             .incarnation = incarnation,
             .clock = &context->world.clock(node.node),
             .transport = &transport_,
             .has_views = true}),
      gradients_(&context->config, rank, context->plant == Plant::kSettlesEarly) {
  transport_.SetCore(&core_);
  for (const Chunk& chunk : context_.config.plan().chunks()) {
    parameters_.emplace_back(chunk.size);
  }
  context_.world.Run(node_, absl::ZeroDuration(), [this] {
    core_.Start();
    link_->Start({.on_view = [this](const View& view) { OnView(view); },
                  .on_end =
                      [this](const absl::Status& reason) {
                        context_.exit(node_.node, std::string(reason.message()));
                      }});
    Announce();
    Tick();
  });
}

void WorkerProcess::OnView(const View& view) {
  view_ = view;
  const absl::Time now = Now();
  const auto is_lost = [](const SlotView& slot) { return !slot.has_primary(); };
  lacks_slot_since_ = absl::c_any_of(view.slot(), is_lost) ? std::min(lacks_slot_since_, now)
                                                           : absl::InfiniteFuture();
  untaken_since_ = view.worker(rank_).incarnation() == incarnation_ ? absl::InfiniteFuture()
                                                                    : std::min(untaken_since_, now);
  if (!first_worker_set_.has_value()) first_worker_set_ = view.worker_set(0);
  core_.OnView(view);
  Announce();
}

void WorkerProcess::Announce() {
  const ProcessState state = core_.State();
  if (std::string text = state.SerializeAsString(); text != announced_) {
    announced_ = std::move(text);
    link_->Announce(state);
  }
}

void WorkerProcess::Tick() {
  core_.round().CheckProgress(Now());
  core_.Tick();
  GiveUpAsPlanted();
  context_.world.Run(node_, absl::Milliseconds(100), [this] { Tick(); });
}

void WorkerProcess::GiveUpAsPlanted() {
  if (step_ == Step::kDone) return;
  const absl::Time now = Now();
  const absl::Duration limit = absl::Seconds(context_.config.proto().limits().exchange_seconds());
  if (context_.plant == Plant::kGivesUpLostSlots &&
      now > lacks_slot_since_ + 1.1 * limit + absl::Seconds(1)) {
    GiveUp(absl::DeadlineExceededError("a shard could not be reached"));
  } else if (context_.plant == Plant::kGivesUpUntaken && now > untaken_since_ + limit) {
    GiveUp(absl::DeadlineExceededError("the run has not taken this worker in"));
  }
}

void WorkerProcess::AfterEvent() {
  while (step_ != Step::kDone && Advance()) {
  }
  if (step_ != Step::kDone) Announce();
}

std::string WorkerProcess::Describe() {
  static constexpr const char* kSteps[] = {"connecting", "pulling", "computing",
                                           "exchanging", "leaving", "done"};
  return absl::StrCat("worker ", rank_, " is ", kSteps[static_cast<int>(step_)], " iteration ",
                      iteration_, " in view ", core_.view_number(), ", with ", to_push_.size(),
                      " tensors to push, and ",
                      core_.round().AllAnswered() ? "has all answers" : "lacks answers");
}

bool WorkerProcess::Advance() {
  if (core_.went_back()) {
    ++attempt_;
    step_ = Step::kConnecting;
    gradients_.GoBack();
    core_.Resume();
    return true;
  }
  if (const absl::Status failure = core_.failure(); !failure.ok()) {
    GiveUp(failure);
    return false;
  }
  switch (step_) {
    case Step::kConnecting: {
      if (!core_.ready()) return false;
      const uint64_t first = context_.config.is_from_workers() ? 1 : 0;
      if (context_.config.proto().exchange().error_feedback() &&
          core_.round().next_iteration() > first) {
        context_.oracle.Forgot();
      }
      has_pulled_ = false;
      bootstrap_.reset();
      Bootstrap();
      return true;
    }
    case Step::kPulling: {
      const auto is_over = [](const Pull& pull) { return pull.state == Pull::State::kDone; };
      for (size_t slot = 0; slot < pulls_.size(); ++slot) {
        if (pulls_[slot].state == Pull::State::kDue && core_.IsConnected(static_cast<int>(slot))) {
          StartPull(static_cast<int>(slot));
        }
      }
      if (pulls_.empty() || !absl::c_all_of(pulls_, is_over)) return false;
      Bootstrap();
      return true;
    }
    case Step::kExchanging:
      if (!to_push_.empty() || !core_.round().Settled()) return false;
      core_.round().End();
      if (bootstrap_.has_value() || core_.round().is_behind()) {
        Bootstrap();
      } else {
        BeginIteration();
      }
      return true;
    case Step::kLeaving:
      if (!core_.finished() && !(context_.plant == Plant::kEndsWhenFinished &&
                                 view_.worker(rank_).state() == WorkerView::FINISHED)) {
        return false;
      }
      step_ = Step::kDone;
      core_.Stop(absl::OkStatus());
      context_.exit(node_.node, "");
      return false;
    case Step::kComputing:
    case Step::kDone:
      return false;
  }
  return false;
}

void WorkerProcess::GiveUp(const absl::Status& failure) {
  const bool is_bug = absl::IsInternal(failure) || absl::IsInvalidArgument(failure) ||
                      absl::IsDataLoss(failure) || absl::IsOutOfRange(failure);
  context_.world.Log(absl::StrCat("worker ", rank_, " gives up: ", failure.ToString()));
  if (is_bug) {
    context_.oracle.Violated(absl::StrCat("worker ", rank_, " gives up: ", failure.ToString()));
  }
  step_ = Step::kDone;
  gives_up_ = failure;
  Leave(failure);
}

void WorkerProcess::Bootstrap() {
  if (!bootstrap_.has_value()) {
    bootstrap_.emplace(
        ParameterBootstrap::Options{.config = &context_.config,
                                    .clock = &context_.world.clock(node_.node),
                                    .core = &core_,
                                    .rank = rank_,
                                    .brings_parameters = context_.config.is_from_workers()});
  }
  const absl::StatusOr<ParameterBootstrap::Step> step = bootstrap_->Next();
  if (!step.ok()) {
    GiveUp(step.status());
    return;
  }
  switch (step->kind) {
    case ParameterBootstrap::Step::Kind::kExchange:
      if (step->exchange.assigned.has_value()) {
        // Each start of worker 0 begins with the same parameters.
        for (std::vector<float>& parameters : parameters_) absl::c_fill(parameters, 0);
      }
      share_.reset();
      ++attempt_;
      iteration_ = step->iteration;
      ComputeAndPush(step->exchange, step->contribution == Contribution::kGradient);
      return;
    case ParameterBootstrap::Step::Kind::kPull:
      PullSlots(step->not_before);
      return;
    case ParameterBootstrap::Step::Kind::kDone:
      bootstrap_.reset();
      if (has_pulled_ && core_.round().PulledAhead() > 0) context_.oracle.Mixed();
      BeginIteration();
  }
}

void WorkerProcess::PullSlots(absl::Time not_before) {
  step_ = Step::kPulling;
  has_pulled_ = true;
  pulls_.clear();
  const absl::Time now = Now();
  context_.world.Run(node_, std::max(not_before - now, absl::ZeroDuration()),
                     [this, attempt = attempt_] {
                       if (attempt != attempt_) return;
                       const int slots = context_.config.shards();
                       for (int i = 0; i < slots; ++i) pulls_.push_back({core_.StartPull()});
                     });
}

void WorkerProcess::StartPull(int slot) {
  pulls_[slot].state = Pull::State::kUnderWay;
  transport_.Pull(slot, [this, slot, attempt = attempt_](const WorkerTransport::Answer& answer) {
    if (attempt == attempt_) Pulled(slot, answer);
  });
}

void WorkerProcess::Pulled(int slot, const WorkerTransport::Answer& answer) {
  if (answer.ok()) {
    for (const PsProcess::Pulled& pulled : *answer) {
      std::vector<float>& parameters = parameters_[pulled.chunk];
      std::memcpy(parameters.data(), pulled.data.data(), pulled.data.size());
      core_.round().TakePulled(pulled.chunk, pulled.version, pulled.iteration,
                               absl::MakeSpan(parameters));
    }
  }
  Pull& pull = pulls_[slot];
  const absl::StatusOr<std::optional<absl::Time>> again = pull.call.Ended(answer.status());
  if (!again.ok()) {
    GiveUp(again.status());
    return;
  }
  pull.state = again->has_value() ? Pull::State::kPaused : Pull::State::kDone;
  if (!again->has_value()) return;
  context_.world.Run(node_, **again - Now(), [this, slot, attempt = attempt_] {
    if (attempt == attempt_) pulls_[slot].state = Pull::State::kDue;
  });
}

void WorkerProcess::Leave(const absl::Status& outcome) {
  ++attempt_;
  context_.oracle.Left(context_.oracle.Generation(view_.generation()), rank_);
  core_.BeginLeave(outcome);
  Announce();
  const LeaveRequest message = core_.LeaveMessage(outcome);
  farewells_.clear();
  const int slots = context_.config.shards();
  for (int i = 0; i < slots; ++i) farewells_.push_back({core_.StartLeave(outcome, kLeaveTimeout)});
  for (int slot = 0; slot < slots; ++slot) {
    Tell(slot, message);
    context_.world.Run(node_, kLeaveTimeout, [this, slot, message, attempt = attempt_] {
      if (attempt == attempt_) Told(slot, message, absl::DeadlineExceededError("no answer"));
    });
  }
}

void WorkerProcess::Tell(int slot, const LeaveRequest& message) {
  transport_.Leave(slot, message,
                   [this, slot, message, attempt = attempt_](const absl::Status& status) {
                     if (attempt == attempt_) Told(slot, message, status);
                   });
}

void WorkerProcess::Told(int slot, const LeaveRequest& message, const absl::Status& status) {
  Farewell& farewell = farewells_[slot];
  if (farewell.is_over) return;
  const absl::StatusOr<std::optional<absl::Time>> again = farewell.call.Ended(status);
  if (again.ok() && again->has_value()) {
    context_.world.Run(node_, **again - Now(), [this, slot, message, attempt = attempt_] {
      if (attempt == attempt_) Tell(slot, message);
    });
    return;
  }
  farewell.is_over = true;
  if (!absl::c_all_of(farewells_, [](const Farewell& each) { return each.is_over; })) return;
  if (gives_up_.has_value()) {
    context_.exit(node_.node, gives_up_->ToString());
  } else {
    core_.EndLeave();
  }
}

absl::StatusOr<Dealing> WorkerProcess::Deal() const {
  std::vector<WorkerSet> worker_sets = core_.worker_sets();
  if (context_.plant == Plant::kDealsByFirstWorkerSet) worker_sets = {*first_worker_set_};
  const ClusterConfig& proto = context_.config.proto();
  return Dealing::Create({.images = proto.data().synthetic().images(),
                          .batch_size = proto.training().batch_size(),
                          .worker_sets = std::move(worker_sets)});
}

absl::StatusOr<uint64_t> WorkerProcess::DealImages() {
  share_.reset();
  if (context_.config.is_from_workers()) return context_.scenario.exchanges();
  const Training& training = context_.config.proto().training();
  absl::StatusOr<Dealing> dealing = Deal();
  if (!dealing.ok()) return dealing.status();
  const int64_t end =
      training.has_epochs() ? dealing->IterationsOf(training.epochs()) : training.iterations();
  const auto iteration = static_cast<int64_t>(iteration_);
  if (iteration < end) share_ = dealing->ShareOf(rank_, iteration);
  return end;
}

void WorkerProcess::BeginIteration() {
  iteration_ = core_.round().next_iteration();
  const absl::StatusOr<uint64_t> end = DealImages();
  if (!end.ok()) {
    GiveUp(end.status());
    return;
  }
  ++attempt_;
  if (iteration_ >= *end) {
    step_ = Step::kLeaving;
    context_.has_trained();
    Leave(absl::OkStatus());
    return;
  }
  step_ = Step::kComputing;
  World& world = context_.world;
  world.Run(node_, context_.scenario.compute * world.dice().Scale(0.3, 3),
            [this, attempt = attempt_] {
              if (attempt == attempt_ && core_.failure().ok()) PushIteration();
            });
}

void WorkerProcess::PushIteration() {
  const uint64_t every = context_.scenario.assigns_every;
  if (every == 0 || iteration_ % every != 0) {
    // Powers of two, so that products are exact.
    const uint64_t drawn = CounterRandom(rank_, "weight").Below(iteration_, 4);
    const float weight = std::exp2(static_cast<float>(drawn) - 2);
    return ComputeAndPush({.weight = context_.scenario.weighs ? weight : 1}, true);
  }
  const int arrays = 1 + OptimizerArrays(context_.config.proto().optimizer().kind());
  ComputeAndPush({.assigned = static_cast<uint32_t>(iteration_ / every) % arrays,
                  .steps = std::vector<uint64_t>(AllTensors().size(), iteration_)},
                 /*contributes=*/rank_ == 0);
}

void WorkerProcess::ComputeAndPush(ExchangeKind kind, bool contributes) {
  assigned_array_ = kind.assigned.value_or(0);
  const bool assigns = kind.assigned.has_value();
  const float weight = kind.weight;
  if (!core_.round().Begin(iteration_, std::move(kind)).ok()) return;
  contributes_ = contributes;
  step_ = Step::kExchanging;
  to_push_ = AllTensors();
  if (contributes && !std::exchange(has_pulled_, false)) {
    context_.oracle.Computes(context_.oracle.Generation(view_.generation()), rank_, iteration_,
                             parameters_);
  }
  MakeUpGradients(parameters_, rank_, iteration_, share_, &gradients_.values());
  for (std::vector<float>& values : gradients_.values()) {
    for (float& value : values) value *= weight;
  }
  if (assigned_array_ > 0) {  // no square, nor a mean of squares, is negative
    for (std::vector<float>& values : gradients_.values()) {
      for (float& value : values) value = std::abs(value);
    }
  }
  gradients_.Begin(assigns);
  PushNext();
}

std::vector<int> WorkerProcess::AllTensors() const {
  std::vector<int> tensors(context_.config.model().tensors().size());
  std::iota(tensors.begin(), tensors.end(), 0);
  return tensors;
}

void WorkerProcess::PushTensors(const std::vector<int>& tensors) {
  for (const int tensor : tensors) {
    const bool has_array = assigned_array_ == 0 ||
                           context_.config.model().tensors()[tensor].role == TensorRole::kParameter;
    const absl::Status pushed = core_.round().Push(
        {&tensor, 1}, contributes_ && has_array ? Contribution::kGradient : Contribution::kZeros);
    if (!pushed.ok()) context_.oracle.Violated(pushed.ToString());
  }
}

// In several portions.
void WorkerProcess::PushNext() {
  if (!core_.failure().ok()) return;
  World& world = context_.world;
  std::vector<int> portion;
  const int count = world.dice().Int(1, static_cast<int>(to_push_.size()));
  for (int i = 0; i < count; ++i) {
    portion.push_back(to_push_.back());
    to_push_.pop_back();
  }
  PushTensors(portion);
  if (to_push_.empty()) return;
  // Chunks are small, so they would wait for the last portion otherwise.
  if (world.dice().Once(2)) core_.round().Flush();
  world.Run(node_, context_.scenario.compute * world.dice().Between(0, 0.5),
            [this, attempt = attempt_] {
              if (attempt == attempt_) PushNext();
            });
}

std::string WorkerProcess::Gradient(const GradientHeader& header) {
  PushRecord push{.skip = !header.has_data()};
  std::string data;
  if (header.has_data()) {
    absl::StatusOr<PushedGradients::Push> taken = gradients_.Take(header);
    if (!taken.ok()) {
      context_.oracle.Violated(taken.status().ToString());
      return data;
    }
    data = std::move(taken->data);
    push.gradient = std::move(taken->arrives);
    push.weight = header.weight;
    push.share = share_;
    if (context_.scenario.corrects) push.read = parameters_[header.chunk];
  }
  if (header.onlooks) return data;
  context_.oracle.Pushed(context_.oracle.Generation(view_.generation()), rank_, header.iteration,
                         header.chunk, std::move(push));
  return data;
}

absl::Status WorkerProcess::TakeParameters(int slot, const ParameterHeader& header,
                                           const std::string& data, int primary) {
  const absl::StatusOr<bool> counts = core_.round().Claim(slot, header);
  if (!counts.ok()) return counts.status();
  if (!*counts) return absl::OkStatus();
  if (header.dropped) {
    context_.oracle.Dropped(context_.oracle.Generation(view_.generation()), rank_, header);
    gradients_.Answered(header, contributes_);
    core_.round().Dropped(header.chunk);
    return absl::OkStatus();
  }
  std::vector<float>& parameters = parameters_[header.chunk];
  if (header.has_data()) {
    std::vector<float> brought(parameters.size());
    Decode(static_cast<Encoding>(header.encoding), {{data.data(), data.size()}},
           absl::MakeSpan(brought));
    for (size_t i = 0; i < parameters.size(); ++i) {
      parameters[i] = header.is_difference ? parameters[i] + brought[i] : brought[i];
    }
  }
  context_.oracle.Answered(primary, context_.oracle.Generation(view_.generation()), rank_,
                           incarnation_, header, parameters, contributes_);
  gradients_.Answered(header, contributes_);
  core_.round().Answered(header.chunk, header.version);
  return absl::OkStatus();
}

}  // namespace evenshard
