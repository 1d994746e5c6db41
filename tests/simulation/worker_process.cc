#include "tests/simulation/worker_process.h"

#include <algorithm>
#include <cstring>
#include <numeric>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/base/random.h"
#include "common/control/view/worker_set.h"
#include "common/wire/encoding.h"

namespace evenshard {
namespace {

// Gradients are multiples of 1/64 of at most this many: every encoding has them exactly, and so has
// a float32 their sum.
constexpr uint64_t kSteps = 100;

}  // namespace

WorkerProcess::WorkerProcess(Context* context, int rank, NodeRef node, uint64_t incarnation)
    : context_(*context),
      rank_(rank),
      node_(node),
      incarnation_(incarnation),
      link_(context, node),
      transport_(context, rank, node, incarnation, this),
      core_({.config = &context->config,
             .rank = rank,
             .incarnation = incarnation,
             .clock = &context->world.loop(),
             .transport = &transport_,
             .has_views = true}) {
  transport_.SetCore(&core_);
  for (const Chunk& chunk : context_.config.plan().chunks()) {
    gradients_.emplace_back(chunk.size);
    parameters_.emplace_back(chunk.size);
  }
  context_.world.Run(node_, absl::ZeroDuration(), [this] {
    core_.Start();
    link_.Start([this](const View& view) { OnView(view); });
    link_.Announce(core_.State());
    Tick();
  });
}

void WorkerProcess::OnView(const View& view) {
  generation_ = view.generation();
  if (!first_worker_set_.has_value()) first_worker_set_ = view.worker_set(0);
  core_.OnView(view);
  link_.Announce(core_.State());
}

void WorkerProcess::Tick() {
  core_.round().CheckProgress(context_.world.loop().Now());
  core_.Tick();
  context_.world.Run(node_, absl::Milliseconds(100), [this] { Tick(); });
}

void WorkerProcess::AfterEvent() {
  while (step_ != Step::kDone && Advance()) {
  }
  if (step_ != Step::kDone) link_.Announce(core_.State());
}

std::string WorkerProcess::Describe() {
  static constexpr const char* kSteps[] = {"connecting", "catching up", "pulling", "computing",
                                           "exchanging", "leaving",     "done"};
  return absl::StrCat("worker ", rank_, " is ", kSteps[static_cast<int>(step_)], " iteration ",
                      iteration_, " in view ", core_.view_number(), ", with ", to_push_.size(),
                      " tensors to push, and ",
                      core_.round().AllAnswered() ? "has all answers" : "lacks answers");
}

bool WorkerProcess::Advance() {
  if (core_.went_back()) {
    ++attempt_;
    step_ = Step::kConnecting;
    core_.Resume();
    return true;
  }
  if (const absl::Status failure = core_.failure(); !failure.ok()) {
    GiveUp(failure);
    return false;
  }
  switch (step_) {
    case Step::kConnecting:
      if (!core_.ready()) return false;
      AfterConnect();
      return true;
    case Step::kCatchingUp:
      if (!core_.round().Settled()) return false;
      core_.round().End();
      {
        const bool has_parameters = !core_.catch_up().abandoned;
        core_.EndCatchUp();
        if (has_parameters) {
          BeginIteration();
        } else {
          PullSlots(absl::ZeroDuration());
        }
      }
      return true;
    case Step::kPulling:
      if (std::count(pulled_.begin(), pulled_.end(), false) > 0) return false;
      if (LacksInitial()) {
        PullSlots(absl::Milliseconds(10));
        return true;
      }
      if (core_.round().ChunksAfter(iteration_) > 0) context_.oracle.Mixed();
      BeginIteration();
      return true;
    case Step::kExchanging:
      if (!to_push_.empty() || !core_.round().Settled()) return false;
      core_.round().End();
      ++iteration_;
      // Under ASYNC a worker may be answered before worker 0 has pushed.
      if (LacksInitial()) {
        PullSlots(absl::ZeroDuration());
      } else {
        BeginIteration();
      }
      return true;
    case Step::kLeaving:
      if (!core_.finished()) return false;
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
                      absl::IsDataLoss(failure) || absl::IsOutOfRange(failure) ||
                      absl::IsDeadlineExceeded(failure);
  context_.world.Log(absl::StrCat("worker ", rank_, " gives up: ", failure.ToString()));
  if (is_bug) {
    context_.oracle.Violated(absl::StrCat("worker ", rank_, " gives up: ", failure.ToString()));
  }
  step_ = Step::kDone;
  core_.Stop(failure);
  link_.Announce(core_.State());
  // Its last words are on the way.
  context_.world.Run(node_, absl::Milliseconds(10),
                     [this, failure] { context_.exit(node_.node, failure.ToString()); });
}

void WorkerProcess::AfterConnect() {
  iteration_ = core_.round().next_iteration();
  if (const auto catch_up = core_.catch_up(); catch_up.iteration.has_value()) {
    if (!catch_up.abandoned) {
      step_ = Step::kCatchingUp;
      iteration_ = *catch_up.iteration;
      if (!core_.round().Begin(iteration_, /*skip=*/true).ok()) return;
      PushTensors(AllTensors());
      ++iteration_;
      return;
    }
    core_.EndCatchUp();
    iteration_ = core_.round().next_iteration();
  }
  if (context_.config.IsInitial(iteration_)) return PushInitial();
  PullSlots(absl::ZeroDuration());
}

void WorkerProcess::PushInitial() {
  // Each start of worker 0 begins with the same ones.
  for (std::vector<float>& parameters : parameters_) {
    std::fill(parameters.begin(), parameters.end(), 0);
  }
  share_.reset();
  ++attempt_;
  ComputeAndPush(/*skip=*/rank_ != 0);
}

bool WorkerProcess::LacksInitial() const {
  return context_.config.is_from_workers() &&
         core_.round().ChunksAfter(0) < context_.config.plan().chunks().size();
}

void WorkerProcess::PullSlots(absl::Duration delay) {
  step_ = Step::kPulling;
  pulled_.assign(context_.config.shards(), false);
  context_.world.Run(node_, delay, [this, attempt = attempt_] {
    if (attempt != attempt_) return;
    for (int slot = 0; slot < context_.config.shards(); ++slot) PullSlot(slot);
  });
}

void WorkerProcess::PullSlot(int slot) {
  transport_.Pull(slot, [this, slot, attempt = attempt_](const WorkerTransport::Answer& answer) {
    if (attempt != attempt_) return;
    if (!answer.ok()) {
      context_.world.Run(node_, absl::Milliseconds(100), [this, slot, attempt] {
        if (attempt == attempt_) PullSlot(slot);
      });
      return;
    }
    for (const PsProcess::Pulled& pulled : *answer) {
      std::memcpy(parameters_[pulled.chunk].data(), pulled.data.data(), pulled.data.size());
      if (pulled.version > 0) {
        RoundTo(context_.config.proto().exchange().parameter_encoding(),
                absl::MakeSpan(parameters_[pulled.chunk]));
      }
      core_.round().SetVersion(pulled.chunk, pulled.version);
    }
    pulled_[slot] = true;
  });
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
  const absl::StatusOr<uint64_t> end = DealImages();
  if (!end.ok()) {
    GiveUp(end.status());
    return;
  }
  ++attempt_;
  if (iteration_ >= *end) {
    step_ = Step::kLeaving;
    core_.Finish(/*announced=*/false);
    for (int slot = 0; slot < context_.config.shards(); ++slot) {
      transport_.Leave(slot, [](const absl::Status&) {});
    }
    core_.Finish(/*announced=*/true);
    return;
  }
  step_ = Step::kComputing;
  World& world = context_.world;
  world.Run(node_, context_.scenario.compute * world.dice().Scale(0.3, 3),
            [this, attempt = attempt_] {
              if (attempt == attempt_ && core_.failure().ok()) ComputeAndPush(/*skip=*/false);
            });
}

void WorkerProcess::ComputeAndPush(bool skip) {
  if (!core_.round().Begin(iteration_, skip).ok()) return;
  step_ = Step::kExchanging;
  to_push_ = AllTensors();
  Compute();
  PushNext();
}

std::vector<int> WorkerProcess::AllTensors() const {
  std::vector<int> tensors(context_.config.model().tensors().size());
  std::iota(tensors.begin(), tensors.end(), 0);
  return tensors;
}

void WorkerProcess::PushTensors(const std::vector<int>& tensors) {
  const absl::Status pushed = core_.round().Push(tensors);
  if (!pushed.ok()) context_.oracle.Violated(pushed.ToString());
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

// As in a network, each gradient follows from all parameters.
void WorkerProcess::Compute() {
  uint64_t seed = 14695981039346656037u;
  const auto mix = [&](uint64_t value) { seed = (seed ^ value) * 1099511628211u; };
  for (const std::vector<float>& parameters : parameters_) {
    for (const float parameter : parameters) {
      uint32_t bits;
      std::memcpy(&bits, &parameter, sizeof(bits));
      mix(bits);
    }
  }
  mix(rank_);
  mix(iteration_);
  mix(share_.has_value() ? 1 + share_->epoch : 0);
  mix(share_.has_value() ? share_->first : 0);
  for (size_t id = 0; id < gradients_.size(); ++id) {
    const CounterRandom random(seed, id);
    for (size_t i = 0; i < gradients_[id].size(); ++i) {
      gradients_[id][i] =
          (static_cast<float>(random.Below(i, 2 * kSteps + 1)) - static_cast<float>(kSteps)) / 64;
    }
  }
}

std::string WorkerProcess::Gradient(const GradientHeader& header) {
  PushRecord push{.skip = header.skip};
  std::string data;
  if (!header.skip) {
    const std::vector<float>& gradient = gradients_[header.chunk];
    const auto encoding = static_cast<Encoding>(header.encoding);
    data.resize(EncodedBytes(encoding, static_cast<int64_t>(gradient.size())));
    Encode(encoding, gradient, data.data());
    push.gradient = gradient;
    push.share = share_;
  }
  context_.oracle.Pushed(context_.oracle.Generation(generation_), rank_, header.iteration,
                         header.chunk, std::move(push));
  return data;
}

absl::Status WorkerProcess::TakeParameters(int slot, const ParameterHeader& header,
                                           const std::string& data, int primary) {
  const absl::StatusOr<bool> counts = core_.round().Claim(slot, header);
  if (!counts.ok()) return counts.status();
  if (!*counts) return absl::OkStatus();
  std::vector<float>& parameters = parameters_[header.chunk];
  Decode(static_cast<Encoding>(header.encoding), {{data.data(), data.size()}}, parameters.data());
  context_.oracle.Answered(primary, context_.oracle.Generation(generation_), rank_, incarnation_,
                           header, parameters);
  core_.round().Answered(header.chunk, header.version);
  return absl::OkStatus();
}

}  // namespace evenshard
