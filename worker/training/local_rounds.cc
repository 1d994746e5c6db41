#include "worker/training/local_rounds.h"

#include <algorithm>
#include <iterator>

#include "absl/algorithm/container.h"
#include "common/base/status_macros.h"
#include "common/placement/plan/fragments.h"
#include "spdlog/spdlog.h"

namespace evenshard {

LocalRounds::LocalRounds(const Options& options)
    : TrainingSchedule(options.clock),
      options_(options),
      config_(*options.config),
      local_(config_.proto().local()),
      schedule_(config_),
      steps_(local_.steps()),
      fragment_of_(config_.model().layers().size(), -1),
      is_due_(fragment_of_.size(), true),
      next_(options.start) {
  for (std::vector<int>& layers : FragmentsOf(config_.model(), local_.fragments())) {
    for (const int layer : layers) fragment_of_[layer] = static_cast<int>(fragments_.size());
    fragments_.push_back({.layers = std::move(layers), .due = options.start});
  }
}

template <typename Float>
absl::Span<Float> LocalRounds::Of(int layer, absl::Span<Float> buffer) const {
  const Model& model = config_.model();
  const Layer& of = model.layers()[layer];
  const Tensor& first = model.tensors()[of.first_tensor];
  const Tensor& last = model.tensors()[of.first_tensor + of.tensor_count - 1];
  return buffer.subspan(first.offset, last.offset + last.size - first.offset);
}

int64_t LocalRounds::EndOfRound(int64_t iteration) const {
  return std::min((iteration / steps_ + 1) * steps_, options_.length());
}

int64_t LocalRounds::PushedAfter(size_t fragment, int64_t end) const {
  if (is_last_round_) return end - 1;
  const auto count = static_cast<int64_t>(fragments_.size());
  return end - steps_ + (static_cast<int64_t>(fragment) + 1) * steps_ / count - 1;
}

void LocalRounds::Start(int64_t iteration) {
  iteration_ = iteration;
  ForgetWaits();
  if (iteration % steps_ != 0) return;
  taken_ = 0;
  round_began_ = options_.clock->Now();
  is_last_round_ = EndOfRound(iteration) == options_.length();
}

absl::Status LocalRounds::AwaitParameters(int layer) {
  // The last pass waits for all answers, since everything is pushed after it.
  const bool is_last = iteration_ + 1 >= options_.length();
  const bool is_later = iteration_ < fragments_[fragment_of_[layer]].due && !is_last;
  if (is_later || !is_due_[layer]) return absl::OkStatus();
  RETURN_IF_ERROR(Timed([&] { return options_.exchange->AwaitLayer(layer); }));
  Adopt(layer);
  is_due_[layer] = false;
  return absl::OkStatus();
}

void LocalRounds::Adopt(int layer) {
  const absl::Span<float> own = Of(layer, parameters());
  const absl::Span<const float> received = Of(layer, options_.received);
  if (const float mixing = local_.mixing(); mixing > 0 && !is_first_) {
    for (size_t i = 0; i < own.size(); ++i) {
      own[i] = mixing * own[i] + (1 - mixing) * received[i];
    }
  } else {
    std::copy(received.begin(), received.end(), own.begin());
  }
  options_.backend->ParametersWritten(own.data() - parameters().data(),
                                      static_cast<int64_t>(own.size()));
}

absl::Status LocalRounds::Finish(bool contributes, bool everything) {
  if (contributes) {
    options_.model->Step(iteration_);
    options_.backend->ParametersWritten(0, static_cast<int64_t>(parameters().size()));
    ++taken_;
  }
  // A wait for the answers of the round before is for slower workers, and is no part of this one.
  round_began_ += waited();
  const int64_t end = EndOfRound(iteration_);
  const bool is_over = local_.seconds() > 0 &&
                       options_.clock->Now() - round_began_ >= absl::Seconds(local_.seconds());
  next_ = is_over ? end : iteration_ + 1;
  const int64_t planned = end - iteration_ / steps_ * steps_;
  // With several fragments, which local.seconds does not go with, all workers take all steps.
  const float weight =
      fragments_.size() == 1 ? static_cast<float>(taken_) / static_cast<float>(planned) : 1.0f;
  const bool waits_now = local_.overlap_steps() == 0 && !schedule_.waits_in_forward();
  std::vector<int> awaited;
  for (size_t i = 0; i < fragments_.size(); ++i) {
    if (!is_over && PushedAfter(i, end) != iteration_) continue;
    RETURN_IF_ERROR(PushFragment(fragments_[i], weight));
    if (waits_now) absl::c_copy(fragments_[i].layers, std::back_inserter(awaited));
    options_.exchange->Flush();
  }
  return Timed([&]() -> absl::Status {
    for (const int layer : awaited) RETURN_IF_ERROR(options_.exchange->AwaitLayer(layer));
    return everything ? options_.exchange->AwaitAll() : absl::OkStatus();
  });
}

absl::Status LocalRounds::PushFragment(Fragment& fragment, float weight) {
  if (!options_.exchange->is_begun()) {
    const bool skips = options_.model->is_joining() || weight == 0;
    if (options_.model->is_joining()) {
      RETURN_IF_ERROR(TakeState());
    }
    RETURN_IF_ERROR(options_.exchange->Begin(
        ExchangeKind{.skip = skips, .weight = skips ? 1.0f : weight},
        skips ? absl::Span<const float>() : options_.pushed, options_.received));
  }
  for (auto layer = fragment.layers.rbegin(); layer != fragment.layers.rend(); ++layer) {
    const absl::Span<const float> own = Of(*layer, parameters());
    const absl::Span<const float> received = Of(*layer, options_.received);
    const absl::Span<float> pushed = Of(*layer, options_.pushed);
    for (size_t i = 0; i < own.size(); ++i) pushed[i] = weight * (received[i] - own[i]);
    is_due_[*layer] = true;
    RETURN_IF_ERROR(options_.exchange->Push(*layer));
  }
  fragment.due = iteration_ + 1 + local_.overlap_steps();
  is_first_ = false;
  return absl::OkStatus();
}

absl::Status LocalRounds::TakeState() {
  if (config_.proto().update().policy() == Update::SYNC) {
    const absl::Status taken = options_.exchange->ReceiveState(
        [this](const std::string& text) { return options_.model->PlaceState(text); });
    // The others are in the next round, with what was pushed before this worker was started again.
    if (absl::IsOutOfRange(taken)) return absl::OkStatus();
    if (!taken.ok() && !absl::IsNotFound(taken)) return taken;
    if (!taken.ok()) options_.model->ForgetState();  // a part of one may have come
    spdlog::info("the local optimizer {}", taken.ok() ? "goes on with the state of another worker's"
                                                      : "begins anew, as nobody has its state");
  }
  options_.model->set_joining(false);
  return absl::OkStatus();
}

void LocalRounds::CaughtUp() {
  is_due_.assign(is_due_.size(), true);
  is_first_ = true;  // nothing stays of what was not taken
}

void LocalRounds::SwapReceived() {
  std::swap_ranges(options_.received.begin(), options_.received.end(), parameters().begin());
  options_.backend->ParametersWritten(0, static_cast<int64_t>(parameters().size()));
}

}  // namespace evenshard
