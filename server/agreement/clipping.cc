#include "server/agreement/clipping.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/optimizer/norm_clipping.h"

namespace evenshard {
namespace {

bool IsTrained(const PlannedConfig& config, int tensor) {
  return config.model().tensors()[tensor].role == TensorRole::kParameter;
}

int ClippedChunks(const PlannedConfig& config, int slot) {
  const auto& ids = config.plan().chunks_of_shard(slot);
  return static_cast<int>(std::count_if(ids.begin(), ids.end(), [&](uint32_t id) {
    return IsTrained(config, config.plan().chunks()[id].tensor);
  }));
}

}  // namespace

Clipping::Clipping(Options options)
    : options_(std::move(options)),
      rule_(NormRuleOf(options_.config->proto().update().clip_global_norm(),
                       options_.config->model())),
      chunks_(ClippedChunks(*options_.config, options_.slot)) {}

bool Clipping::TakesPart(const PlannedConfig& config, int slot) {
  return ClippedChunks(config, slot) > 0;
}

bool Clipping::Clips(const Chunk& chunk, uint64_t iteration) const {
  return IsTrained(*options_.config, chunk.tensor) && !options_.config->IsInitial(iteration);
}

absl::Status Clipping::AddSum(const StoredChunk& chunk, bool has_sum, float scale) {
  const uint64_t iteration = chunk.clock().iteration;
  const std::optional<AgreedNorm> norm = options_.store->agreed_norm();
  if (norm.has_value() && norm->iteration > iteration) {
    return absl::InternalError(
        absl::StrCat("chunk ", chunk.info().id, " needs ", kAgreedNorm, " of iteration ", iteration,
                     ", and its slot knows that of iteration ", norm->iteration));
  }
  SquareSum squares;
  if (has_sum) {
    RETURN_IF_ERROR(
        chunk.AddSquares(rule_, scale, static_cast<int64_t>(chunk.clock().trained()), &squares));
  }
  absl::MutexLock lock(&mutex_);
  // Every chunk of an iteration comes before any of the next one. A slot that is taken over may
  // have had some of an iteration's updates before; then its norm is known, and no part is needed.
  if (std::exchange(iteration_, iteration) != iteration) {
    added_ = 0;
    part_ = {};
  }
  part_.Add(squares);
  tells_part_ |= ++added_ == chunks_;
  return absl::OkStatus();
}

std::optional<float> Clipping::Coefficient(uint64_t iteration) const {
  const std::optional<AgreedNorm> norm = options_.store->agreed_norm();
  if (!norm.has_value() || norm->iteration != iteration) return std::nullopt;
  return ClipCoefficient(options_.config->proto().update().clip_global_norm(), norm->squared);
}

void Clipping::TellPart() {
  {
    absl::MutexLock lock(&mutex_);
    if (!std::exchange(tells_part_, false)) return;
  }
  options_.on_part();
}

AgreementReport Clipping::report() const {
  AgreementReport report;
  report.set_config_fingerprint(options_.config->fingerprint());
  report.set_slot(options_.slot);
  const std::optional<AgreedNorm> norm = options_.store->agreed_norm();
  if (norm.has_value()) {
    report.mutable_latest()->set_iteration(norm->iteration);
    report.mutable_latest()->set_value(norm->squared);
  }
  absl::MutexLock lock(&mutex_);
  if (added_ == chunks_ && (!norm.has_value() || norm->iteration < iteration_)) {
    report.mutable_part()->set_iteration(iteration_);
    report.mutable_part()->mutable_limb()->Add(part_.limbs().begin(), part_.limbs().end());
  }
  return report;
}

std::optional<uint64_t> Clipping::AskedBy(const AgreementReport& report) const {
  return report.has_part() ? std::optional(report.part().iteration()) : std::nullopt;
}

std::optional<uint64_t> Clipping::AnsweredBy(const AgreementAnswer& answer) const {
  const bool is_norm = answer.has_latest() && IsNorm(answer.latest().value());
  return is_norm ? std::optional(answer.latest().iteration()) : std::nullopt;
}

void Clipping::Learn(const AgreementAnswer& answer) {
  options_.store->Learn(
      AgreedNorm{.iteration = answer.latest().iteration(), .squared = answer.latest().value()});
}

}  // namespace evenshard
