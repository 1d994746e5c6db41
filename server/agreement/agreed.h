#ifndef EVENSHARD_SERVER_AGREEMENT_AGREED_H_
#define EVENSHARD_SERVER_AGREEMENT_AGREED_H_

#include <cmath>

#include "absl/algorithm/container.h"
#include "proto/agreement.pb.h"

namespace evenshard {

// What slots agree on, for errors.
inline constexpr char kAgreedNorm[] = "the norm of the gradient";
inline constexpr char kAgreedSet[] = "the workers whose gradients count";

// Whether what another process says that the slots have agreed on can be that.
inline bool IsNorm(double norm) { return std::isfinite(norm) && norm >= 0; }
inline bool IsSet(const QuorumSet& set, int workers) {
  // A gradient of a later iteration cannot have counted yet.
  const auto is_past = [&](uint64_t before) {
    return before == 0 || before - 1 <= set.iteration();
  };
  return set.counted_before_size() == workers && absl::c_all_of(set.counted_before(), is_past);
}

}  // namespace evenshard

#endif  // EVENSHARD_SERVER_AGREEMENT_AGREED_H_
