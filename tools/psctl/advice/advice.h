#ifndef EVENSHARD_TOOLS_PSCTL_ADVICE_ADVICE_H_
#define EVENSHARD_TOOLS_PSCTL_ADVICE_ADVICE_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "tools/psctl/advice/advice_request.h"
#include "tools/psctl/advice/choice.h"

namespace evenshard {

// What is possible on a cluster, and which of it to take.
struct Advice {
  // Both by images per second, the fastest first. `same` compute what SYNC in float32 does, and
  // `changed` something else.
  std::vector<Choice> same;
  std::vector<Choice> changed;
  std::vector<Choice> refused;
  // The index in `same` of the one to take: of those that are within 2 % of the fastest the one
  // with the fewest hosts, and of these the fastest. A prediction is not more exact than that.
  int chosen = 0;
  std::string sentence;  // what to do, and why; a few sentences
};

// Evaluates everything that is possible. This takes seconds, and with hundreds of workers minutes.
// Errors: INVALID_ARGUMENT if nothing is possible, with the reason.
absl::StatusOr<Advice> Advise(const AdviceCluster& cluster);

// Ranks what was evaluated, chooses, and puts it into words: the parts of Advise after Evaluate.
// REQUIRES: one of `choices` without a difference is not refused.
Advice Rank(std::vector<Choice> choices);

}  // namespace evenshard

#endif  // EVENSHARD_TOOLS_PSCTL_ADVICE_ADVICE_H_
