#include "tools/psctl/advice/advice.h"

#include <algorithm>
#include <iterator>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "tools/psctl/advice/advice_sentence.h"

namespace evenshard {
namespace {

// How near to the fastest a choice is as good.
constexpr double kAsGood = 0.98;

// In a larger cluster, where predictions take long, all schedules are tried of what is nearly as
// fast as the fastest.
constexpr int kAllSchedulesUpTo = 16;
constexpr double kWorthTrying = 0.8;

bool IsFaster(const Choice& a, const Choice& b) {
  return a.images_per_second > b.images_per_second;
}

// Returns the best choice of each kind of placement with several workers.
std::vector<Choice> BestOfKinds(std::vector<Choice> choices) {
  std::stable_sort(choices.begin(), choices.end(), IsFaster);
  std::set<Candidate::Kind> kinds = {Candidate::Kind::kAlone, Candidate::Kind::kAsGiven};
  std::vector<Choice> best;
  for (const Choice& choice : choices) {
    if (choice.refused.empty() && kinds.insert(choice.candidate.kind).second) {
      best.push_back(choice);
    }
  }
  return best;
}

int Chosen(const std::vector<Choice>& same) {
  const auto is_given = [](const Choice& choice) {
    return choice.candidate.kind == Candidate::Kind::kAsGiven;
  };
  int chosen = 0;
  for (int i = 1; i < static_cast<int>(same.size()); ++i) {
    if (same[i].images_per_second < kAsGood * same[0].images_per_second) break;
    const int more_hosts = same[i].candidate.hosts() - same[chosen].candidate.hosts();
    // The config as it is given mostly stands there again under its own name.
    if (more_hosts < 0 || (more_hosts == 0 && is_given(same[chosen]))) chosen = i;
  }
  return chosen;
}

}  // namespace

Advice Rank(std::vector<Choice> choices) {
  Advice advice;
  for (Choice& choice : choices) {
    std::vector<Choice>& group = !choice.refused.empty()               ? advice.refused
                                 : choice.candidate.difference.empty() ? advice.same
                                                                       : advice.changed;
    group.push_back(std::move(choice));
  }
  std::stable_sort(advice.same.begin(), advice.same.end(), IsFaster);
  std::stable_sort(advice.changed.begin(), advice.changed.end(), IsFaster);
  advice.chosen = Chosen(advice.same);
  advice.sentence = AdviceSentence(advice);
  return advice;
}

absl::StatusOr<Advice> Advise(const AdviceCluster& cluster) {
  const bool is_large = cluster.config.workers() > kAllSchedulesUpTo;
  const Schedules schedules = is_large ? Schedules::kFirst : Schedules::kAll;
  std::vector<Choice> choices;
  double most = 0;
  for (const Candidate& candidate : Placements(cluster)) {
    choices.push_back(Evaluate(candidate, cluster.latency_seconds, schedules));
    most = std::max(most, choices.back().images_per_second);
  }
  for (Choice& choice : choices) {
    if (!is_large || choice.images_per_second < kWorthTrying * most) continue;
    choice.candidate.config.mutable_exchange()->clear_schedule();
    choice = Evaluate(choice.candidate, cluster.latency_seconds);
  }
  std::vector<Choice> changed;
  for (const Choice& best : BestOfKinds(choices)) {
    Candidate placement = best.candidate;
    placement.config.mutable_exchange()->clear_schedule();
    for (const Candidate& candidate : Changed(placement)) {
      changed.push_back(Evaluate(candidate, cluster.latency_seconds, schedules));
    }
  }
  if (cluster.has_file) choices.push_back(Evaluate(AsGiven(cluster), cluster.latency_seconds));
  choices.insert(choices.end(), std::make_move_iterator(changed.begin()),
                 std::make_move_iterator(changed.end()));
  const bool is_possible = std::any_of(choices.begin(), choices.end(), [](const Choice& choice) {
    return choice.refused.empty() && choice.candidate.difference.empty();
  });
  if (!is_possible) {
    return absl::InvalidArgumentError(
        absl::StrCat("psctl advise: nothing is possible under SYNC with this config: ",
                     choices.front().refused));
  }
  return Rank(std::move(choices));
}

}  // namespace evenshard
