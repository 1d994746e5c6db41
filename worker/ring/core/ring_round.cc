#include "worker/ring/core/ring_round.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/wire/encoding.h"

namespace evenshard {
namespace {

constexpr absl::Duration kLongestWatchPeriod = absl::Seconds(1);

size_t IndexOf(RingWay way) { return static_cast<size_t>(way); }

}  // namespace

RingRound::RingRound(const Options& options)
    : options_(options),
      plan_(*options.plan),
      sums_(options.config, options.rank),
      parameter_encoding_(options.config->proto().exchange().parameter_encoding()),
      workers_(plan_.workers()),
      connections_(options.config->proto().limits().connections()),
      limit_(options.config->worker_patience()),
      watch_period_(std::min(limit_ / 10, kLongestWatchPeriod)),
      watch_(watch_period_),
      is_pushed_(options.config->model().layers().size()),
      segments_(plan_.segments().size()),
      incomplete_of_layer_(is_pushed_.size()),
      norm_(options.config, options.plan, options.place) {
  work_.iteration = options.first_iteration;
  for (auto& queues : queues_) queues.resize(connections_);
}

absl::Status RingRound::Begin(const ExchangeKind& kind, absl::Span<float> gradients,
                              absl::Span<float> parameters) {
  absl::MutexLock lock(&mutex_);
  RETURN_IF_ERROR(failure_);
  if (is_begun_) {
    return absl::FailedPreconditionError(
        "an iteration has begun, and not all of its layers have been waited for");
  }
  if (kind.onlooks || kind.assigned.value_or(0) != 0) {
    return absl::UnimplementedError(
        "in a ring a worker pushes gradients, or assigns parameters; the optimizer's state is in "
        "parts at the workers");
  }
  work_.gradients = gradients;
  work_.parameters = parameters;
  work_.weight = kind.skip ? 0 : kind.weight;
  work_.trained = work_.iteration - assignments_;
  work_.assigns = kind.assigned.has_value();
  work_.agreement = AgreementOn(kind);
  work_.hyperparameters =
      std::make_shared<const std::vector<Hyperparameters>>(kind.hyperparameters);
  is_begun_ = true;
  is_pushed_.assign(is_pushed_.size(), false);
  segments_.assign(segments_.size(), {});
  incomplete_ = static_cast<uint32_t>(segments_.size());
  for (size_t layer = 0; layer < is_pushed_.size(); ++layer) {
    const auto of_layer = plan_.segments_of_layer(static_cast<int>(layer));
    incomplete_of_layer_[layer] = static_cast<uint32_t>(of_layer.size());
    for (const uint32_t id : of_layer) ++segments_[id].unpushed_layers;
  }
  coefficient_.reset();
  if (norm_.clips()) norm_.Begin();
  ++moves_;
  return absl::OkStatus();
}

absl::Status RingRound::Push(int layer, Contribution contribution) {
  bool is_any_released = false;
  {
    absl::MutexLock lock(&mutex_);
    RETURN_IF_ERROR(failure_);
    if (!is_begun_) return absl::FailedPreconditionError("no iteration has begun");
    if (is_pushed_[layer]) {
      return absl::FailedPreconditionError(
          absl::StrCat("layer ", layer, " has been pushed in this iteration already"));
    }
    is_pushed_[layer] = true;
    for (const uint32_t id : plan_.segments_of_layer(layer)) {
      SegmentState& state = segments_[id];
      state.has_gradient |= contribution == Contribution::kGradient;
      state.has_nothing |= contribution == Contribution::kNothing;
      if (--state.unpushed_layers > 0) continue;
      is_any_released = true;
      Release(plan_.segments()[id]);
    }
  }
  if (!is_any_released) return absl::OkStatus();
  for (uint32_t stream = 0; stream < connections_; ++stream) {
    options_.wake(RingWay::kReduce, static_cast<int>(stream));
  }
  return absl::OkStatus();
}

void RingRound::Release(const RingSegment& segment) {
  auto& held = held_[work_.iteration % 2];
  if ((segment.part + 1) % workers_ == options_.place) {
    const Work work = WorkOf(segment);
    Outgoing first = SumOf(segment, work, work.weight, work.has_zeros);
    first.is_own = work.weight > 0;
    Queue(RingWay::kReduce, first);
  } else if (const auto found = held.find(segment.id); found != held.end()) {
    segments_[segment.id].is_received = true;
    released_.push_back(std::move(found->second));
    held.erase(found);
  }
}

RingRound::Work RingRound::WorkOf(const RingSegment& segment) const {
  Work work = work_;
  const SegmentState& state = segments_[segment.id];
  const bool is_absent = segment.role == TensorRole::kBuffer && !state.has_gradient;
  if (state.has_nothing || is_absent) work.weight = 0;
  work.has_zeros = work.weight > 0 && !state.has_gradient;
  return work;
}

RingRound::Outgoing RingRound::SumOf(const RingSegment& segment, const Work& work, float weight,
                                     bool all_zeros) const {
  Outgoing sum = {.segment = &segment,
                  .iteration = work.iteration,
                  .weight = weight,
                  .all_zeros = all_zeros,
                  .trained = work.trained,
                  .actions = ActionsOf(segment, work)};
  if (weight > 0) sum.buffer = work.gradients;
  return sum;
}

void RingRound::Queue(RingWay way, Outgoing outgoing) {
  ++unsent_;
  queues_[IndexOf(way)][StreamOf(*outgoing.segment)].push_back(outgoing);
}

std::optional<RingRound::Outgoing> RingRound::Take(RingWay way, int stream) {
  absl::MutexLock lock(&mutex_);
  std::deque<Outgoing>& queue = queues_[IndexOf(way)][stream];
  if (queue.empty() || !failure_.ok()) return std::nullopt;
  const Outgoing next = queue.front();
  queue.pop_front();
  const Encoding encoding = way == RingWay::kReduce ? sums_.encoding() : parameter_encoding_;
  if (!next.buffer.empty()) traffic_.bytes_out += EncodedBytes(encoding, next.segment->size);
  if (next.segment != nullptr) ++traffic_.pushes;
  return next;
}

void RingRound::Sent() {
  absl::MutexLock lock(&mutex_);
  --unsent_;
  ++moves_;
}

absl::StatusOr<const RingSegment*> RingRound::Find(uint32_t id, int32_t encoding, Encoding expected,
                                                   const Segments& data, bool has_data) const {
  const auto wrong = [&](absl::string_view what) {
    return absl::InvalidArgumentError(absl::StrCat(options_.predecessor, " sent ", what));
  };
  if (id >= plan_.segments().size()) {
    return wrong(absl::StrCat("chunk ", id, ", and there are ", plan_.segments().size()));
  }
  const RingSegment& segment = plan_.segments()[id];
  if (has_data && encoding != expected) {
    return wrong(absl::StrCat("chunk ", id, " in ", EncodingName(encoding), " instead of ",
                              EncodingName(expected)));
  }
  const size_t bytes = SegmentsSize(data);
  const size_t right = has_data ? EncodedBytes(expected, segment.size) : 0;
  if (bytes != right) {
    return wrong(absl::StrCat(bytes, " bytes of chunk ", id, " instead of ", right));
  }
  return &segment;
}

absl::Status RingRound::TakeReduced(const Decoded<GradientHeader>& received,
                                    std::shared_ptr<const void> owner) {
  const GradientHeader& header = received.header;
  const absl::StatusOr<const RingSegment*> segment =
      Find(header.chunk, header.encoding, sums_.encoding(), received.data, !header.skip);
  absl::Status taken = segment.status();
  if (taken.ok() && !header.skip && !(std::isfinite(header.weight) && header.weight > 0)) {
    taken = absl::InvalidArgumentError(absl::StrCat(options_.predecessor, " sent a sum of chunk ",
                                                    header.chunk, " with the weight ",
                                                    header.weight, ", allowed: above 0"));
  }
  if (taken.ok()) {
    const auto claimed = Claim(**segment, {received, std::move(owner)});
    taken = claimed.status();
    if (taken.ok() && claimed->has_value()) taken = Reduce(**segment, **claimed, received);
  }
  if (!taken.ok()) Fail(taken);
  return taken;
}

absl::StatusOr<std::optional<RingRound::Work>> RingRound::Claim(const RingSegment& segment,
                                                                Held held) {
  const GradientHeader& header = held.received.header;
  absl::MutexLock lock(&mutex_);
  RETURN_IF_ERROR(failure_);
  ++moves_;
  traffic_.bytes_in += SegmentsSize(held.received.data);
  const bool is_next = header.iteration == work_.iteration + 1 && is_begun_;
  const bool is_expected = (segment.part + 1) % workers_ != options_.place &&
                           (header.iteration == work_.iteration || is_next);
  auto& waiting = held_[header.iteration % 2];
  const bool is_repeated =
      (!is_next && is_begun_ && segments_[segment.id].is_received) || waiting.contains(segment.id);
  sent_until_ = std::max(sent_until_, header.iteration + 1);
  if (!is_expected || is_repeated) {
    return absl::InvalidArgumentError(
        absl::StrCat(options_.predecessor, " sent a sum of chunk ", segment.id, " of iteration ",
                     header.iteration, ", which cannot come in iteration ", work_.iteration));
  }
  if (is_next || !IsReady(segment)) {
    waiting.emplace(segment.id, std::move(held));
    return std::nullopt;
  }
  segments_[segment.id].is_received = true;
  return WorkOf(segment);
}

RingActions RingRound::ActionsOf(const RingSegment& segment, const Work& work) const {
  RingActions actions = {.agreement = work.agreement, .assigns = work.assigns};
  if (!work.hyperparameters->empty()) {
    actions.hyperparameters = (*work.hyperparameters)[plan_.runs(segment)[0].tensor];
  }
  return actions;
}

absl::Status RingRound::Reduce(const RingSegment& segment, const Work& work,
                               const Decoded<GradientHeader>& received) {
  RETURN_IF_ERROR(CheckAgreement(
      received.header, options_.predecessor, ActionsOf(segment, work), options_.rank,
      options_.config->model().tensors()[plan_.runs(segment)[0].tensor].name, work.trained));
  if (segment.part != options_.place) return PassSum(segment, work, received);
  return norm_.clips() ? HoldSummed(segment, work, received) : UpdatePart(segment, work, received);
}

absl::Status RingRound::PassSum(const RingSegment& segment, const Work& work,
                                const Decoded<GradientHeader>& received) {
  const bool has_received = !received.header.skip;
  const auto iteration = static_cast<int64_t>(work.trained);
  if (has_received && work.weight > 0) {
    RETURN_IF_ERROR(sums_.Add(segment, iteration, received.data, work.gradients));
  } else if (has_received) {
    sums_.Store(segment, received.data, work.gradients);
  }
  Outgoing sum = SumOf(segment, work, work.weight + (has_received ? received.header.weight : 0),
                       work.has_zeros && received.header.absent);
  sum.is_own = !has_received && work.weight > 0;
  {
    absl::MutexLock lock(&mutex_);
    Queue(RingWay::kReduce, sum);
  }
  Wake(RingWay::kReduce, segment);
  return absl::OkStatus();
}

absl::Status RingRound::UpdatePart(const RingSegment& segment, const Work& work,
                                   const Decoded<GradientHeader>& received) {
  const bool has_received = !received.header.skip;
  const float weight = work.weight + (has_received ? received.header.weight : 0);
  RingPart::Sum sum = {.scale = 1 / weight, .hyperparameters = *work.hyperparameters};
  if (work.weight > 0) sum.own = work.gradients.data() + segment.begin;
  if (has_received) sum.received = &received.data;
  Outcome outcome = Outcome::kChanged;
  if (work.has_zeros && received.header.absent) {
    outcome = Outcome::kAllZeros;
  } else if (weight == 0 || (!work.assigns && options_.part->AllAbsent(segment, sum))) {
    outcome = Outcome::kUnchanged;
  } else if (work.assigns) {
    options_.part->Assign(segment, sum, work.parameters);
    options_.on_parameters_written(segment.begin, segment.size);
  } else {
    RETURN_IF_ERROR(Update(segment, work, sum));
  }
  PassParameters(segment, work, outcome);
  return absl::OkStatus();
}

absl::Status RingRound::Update(const RingSegment& segment, const Work& work,
                               const RingPart::Sum& sum) {
  RETURN_IF_ERROR(
      options_.part->Update(segment, static_cast<int64_t>(work.trained), sum, work.parameters));
  options_.on_parameters_written(segment.begin, segment.size);
  return absl::OkStatus();
}

absl::Status RingRound::TakeGathered(const Decoded<ParameterHeader>& received) {
  const ParameterHeader& header = received.header;
  if (norm_.clips() && header.chunk >= plan_.segments().size()) {
    const absl::Status taken = TakeNorm(received);
    if (!taken.ok()) Fail(taken);
    return taken;
  }
  absl::StatusOr<const RingSegment*> segment =
      Find(header.chunk, header.encoding, parameter_encoding_, received.data, !header.unchanged);
  Work work;
  if (segment.ok()) {
    absl::MutexLock lock(&mutex_);
    RETURN_IF_ERROR(failure_);
    ++moves_;
    traffic_.bytes_in += SegmentsSize(received.data);
    sent_until_ = std::max(sent_until_, header.iteration + 1);
    const bool is_expected = (*segment)->part != options_.place && IsReady(**segment) &&
                             header.iteration == work_.iteration &&
                             !segments_[(*segment)->id].is_complete;
    if (!is_expected) {
      segment = absl::InvalidArgumentError(absl::StrCat(
          options_.predecessor, " sent parameters of chunk ", header.chunk, " of iteration ",
          header.iteration, ", which cannot come in iteration ", work_.iteration));
    }
    work = work_;
  }
  if (!segment.ok()) {
    Fail(segment.status());
    return segment.status();
  }
  if (!header.unchanged) {
    const absl::Span<float> to = work.parameters.subspan((*segment)->begin, (*segment)->size);
    Decode(parameter_encoding_, received.data, to);
    options_.on_parameters_written((*segment)->begin, (*segment)->size);
  }
  PassParameters(**segment, work,
                 !header.unchanged   ? Outcome::kChanged
                 : header.all_absent ? Outcome::kAllZeros
                                     : Outcome::kUnchanged);
  return absl::OkStatus();
}

void RingRound::PassParameters(const RingSegment& segment, const Work& work, Outcome outcome) {
  const bool goes_on = (options_.place + 1) % workers_ != segment.part;
  {
    absl::MutexLock lock(&mutex_);
    if (goes_on) {
      Outgoing parameters = {.segment = &segment,
                             .iteration = work.iteration,
                             .all_zeros = outcome == Outcome::kAllZeros};
      if (outcome == Outcome::kChanged) parameters.buffer = work.parameters;
      Queue(RingWay::kGather, parameters);
    }
    Complete(segment, outcome);
  }
  if (goes_on) Wake(RingWay::kGather, segment);
}

void RingRound::Complete(const RingSegment& segment, Outcome outcome) {
  segments_[segment.id].is_complete = true;
  segments_[segment.id].outcome = outcome;
  --incomplete_;
  for (int layer = segment.first_layer; layer <= segment.last_layer; ++layer) {
    if (!plan_.segments_of_layer(layer).empty()) --incomplete_of_layer_[layer];
  }
  ++moves_;
}

bool RingRound::ReduceHeld() {
  Held next;
  std::optional<Summed> summed;
  float coefficient = 1;
  Work work;
  {
    absl::MutexLock lock(&mutex_);
    mutex_.Await(absl::Condition(this, &RingRound::ReducesHeld));
    if (ends_ || !failure_.ok()) return false;
    if (CanClip()) {
      summed = summed_.front();
      summed_.pop_front();
      coefficient = *coefficient_;
      work = WorkOf(*summed->segment);
    } else {
      next = std::move(released_.front());
      released_.pop_front();
      work = WorkOf(plan_.segments()[next.received.header.chunk]);
    }
  }
  const absl::Status reduced =
      summed.has_value()
          ? UpdateSummed(*summed, work, coefficient)
          : Reduce(plan_.segments()[next.received.header.chunk], work, next.received);
  if (!reduced.ok()) Fail(reduced);
  return reduced.ok();
}

void RingRound::EndHeld() {
  absl::MutexLock lock(&mutex_);
  ends_ = true;
}

bool RingRound::Fail(const absl::Status& failure) {
  // Destroyed after unlocking, because streams are told that their messages are not held any more.
  std::array<std::unordered_map<uint32_t, Held>, 2> held;
  std::deque<Held> released;
  absl::MutexLock lock(&mutex_);
  if (!failure_.ok()) return false;
  failure_ = failure;
  held.swap(held_);
  released.swap(released_);
  return true;
}

}  // namespace evenshard
