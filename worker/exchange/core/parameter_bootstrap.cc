#include "worker/exchange/core/parameter_bootstrap.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "spdlog/spdlog.h"

namespace evenshard {
namespace {

// Between two pulls, while worker 0 has not given all parameters.
constexpr absl::Duration kPause = absl::Milliseconds(10);

}  // namespace

ParameterBootstrap::Step ParameterBootstrap::Pull(absl::Time not_before) {
  has_pulled_ = true;
  return {.kind = Step::Kind::kPull, .not_before = not_before};
}

ParameterBootstrap::Step ParameterBootstrap::CatchUp() const {
  return {.kind = Step::Kind::kExchange,
          .iteration = options_.core->round().next_iteration() - 1,
          .exchange = ExchangeRound::Onlooker()};
}

absl::StatusOr<ParameterBootstrap::Step> ParameterBootstrap::Next() {
  ExchangeCore& core = *options_.core;
  RETURN_IF_ERROR(core.failure());
  const bool is_first = !std::exchange(has_begun_, true);
  if (const ExchangeCore::CatchUp catch_up = core.catch_up(); catch_up.iteration.has_value()) {
    if (is_first && !catch_up.abandoned) {
      return Step{.kind = Step::Kind::kExchange,
                  .iteration = *catch_up.iteration,
                  .exchange = {.skip = true, .onlooks = options_.config->has_quorum()}};
    }
    core.EndCatchUp();
    if (catch_up.abandoned) return Pull();
  } else if (is_first && !core.round().is_behind()) {
    const uint64_t next = core.round().next_iteration();
    if (!options_.brings_parameters || !options_.config->IsInitial(next)) return Pull();
    return Step{
        .kind = Step::Kind::kExchange,
        .iteration = next,
        .exchange = {.assigned = 0},
        .contribution = options_.rank == 0 ? Contribution::kGradient : Contribution::kZeros};
  }
  if (core.round().is_behind()) return CatchUp();
  const size_t chunks = options_.config->plan().chunks().size();
  if (options_.brings_parameters && core.round().ChunksAfter(0) < chunks) {
    const absl::Time now = options_.clock->Now();
    deadline_ = core.round().waits_for_others() ? absl::InfiniteFuture()
                                                : std::min(deadline_, now + core.round().limit());
    if (now < deadline_) return Pull(now + kPause);
    return absl::DeadlineExceededError(
        absl::StrCat("worker 0 has not given the initial parameters for ",
                     absl::FormatDuration(core.round().limit()), " (limits.exchange_seconds)"));
  }
  if (has_pulled_) LogRepeat();
  return Step{.kind = Step::Kind::kDone};
}

void ParameterBootstrap::LogRepeat() const {
  const ExchangeRound& round = options_.core->round();
  const size_t updated = round.PulledAhead();
  if (updated == 0 || !options_.config->is_synchronous()) return;
  spdlog::info(
      "repeats iteration {}, of which {} of {} chunks are updated already: the gradients of the "
      "others are computed from parameters that are partly newer",
      round.next_iteration() - round.assignments().all, updated,
      options_.config->plan().chunks().size());
}

}  // namespace evenshard
