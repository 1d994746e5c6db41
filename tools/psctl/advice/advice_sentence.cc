#include "tools/psctl/advice/advice_sentence.h"

#include <algorithm>
#include <map>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/base/text.h"

namespace evenshard {
namespace {

// What is nearer to each other than this counts as equal.
constexpr double kAsGood = 0.98;
// Where the fastest of each kind of places are so near to each other, it hardly matters which is
// taken.
constexpr double kAllEqual = 0.95;
// Where one worker needs less for an iteration, a device's own overhead may be as long.
constexpr double kSmallSeconds = 1e-3;
// A change of what is computed must gain so much to be mentioned.
constexpr double kWorthAChange = 1.1;

bool IsAlone(const Choice& choice) { return choice.candidate.kind == Candidate::Kind::kAlone; }

std::string Rate(const Choice& choice) {
  return absl::StrCat(FormatRate(choice.images_per_second), " images/s");
}

std::string Times(double factor) { return absl::StrFormat("%.2f times", factor); }

// Returns " With INT8, ring would get 900 images/s, ...", or that of the config as it is given, or
// nothing if no change gains much.
std::string ChangeSentence(const Advice& advice, const Choice& taken) {
  if (advice.changed.empty()) return "";
  const Choice& change = advice.changed.front();
  const double factor = change.images_per_second / taken.images_per_second;
  if (factor < kWorthAChange) return "";
  const std::string gain =
      absl::StrCat(" would get ", Rate(change), ", ", Times(factor), " as many, but ");
  if (change.candidate.kind == Candidate::Kind::kAsGiven) {
    return absl::StrCat(" The config as it is", gain,
                        "computes something else than SYNC in float32.");
  }
  return absl::StrCat(" With ", change.candidate.difference, ", ", change.candidate.name, gain,
                      "that computes something else.");
}

std::string AloneSentence(const Advice& advice, const Choice& alone) {
  const auto several =
      std::find_if(advice.same.begin(), advice.same.end(),
                   [](const Choice& choice) { return choice.candidate.config.workers() > 1; });
  if (several == advice.same.end()) {
    const auto refused =
        std::find_if(advice.refused.begin(), advice.refused.end(),
                     [](const Choice& choice) { return choice.candidate.config.workers() > 1; });
    const std::string why =
        refused == advice.refused.end()
            ? "There are no others to exchange with"
            : absl::StrCat("With several nothing is possible under SYNC with this config: ",
                           refused->candidate.name, ": ", refused->refused);
    return absl::StrCat("Take one worker alone: ", Rate(alone), ". ", why, ".",
                        ChangeSentence(advice, alone));
  }
  const bool is_equal = several->images_per_second >= kAsGood * alone.images_per_second;
  return absl::StrCat("Take one worker alone: ", Rate(alone), ". ",
                      several->candidate.config.workers(), " workers are ",
                      is_equal ? "no faster" : "slower", ": ", several->candidate.name, " gets ",
                      Rate(*several), ", limited by ", BottleneckName(several->bottleneck), ".",
                      ChangeSentence(advice, alone));
}

// Returns the choice of one worker alone, or nullptr if it is not possible.
const Choice* Alone(const Advice& advice) {
  const auto alone = std::find_if(advice.same.begin(), advice.same.end(), IsAlone);
  return alone == advice.same.end() ? nullptr : &*alone;
}

// Returns " The model is so small ...", or nothing.
std::string SmallSentence(const Advice& advice) {
  const Choice* const alone = Alone(advice);
  if (alone == nullptr || alone->iteration_seconds >= kSmallSeconds) return "";
  constexpr double kLeastSeconds = 1e-6;  // that is formatted as more than 0
  return absl::StrCat(
      " The model is so small that it hardly matters: an iteration of one worker alone takes ",
      alone->iteration_seconds < kLeastSeconds ? "less than " : "",
      FormatSeconds(std::max(alone->iteration_seconds, kLeastSeconds)),
      ", and a device's own overhead is not counted.");
}

// How much faster than one worker alone, if that is known.
std::string OverAlone(const Advice& advice, const Choice& taken) {
  const Choice* const alone = Alone(advice);
  if (alone == nullptr) return "";
  return absl::StrCat(", ", Times(taken.images_per_second / alone->images_per_second),
                      " one worker alone");
}

// Returns what the choice needs beside the workers, or nothing.
std::string HostsSentence(const Choice& taken) {
  const int hosts = taken.candidate.server_hosts;
  if (hosts == 0) return "";
  return absl::StrCat(" It needs ", hosts, hosts == 1 ? " host" : " hosts",
                      " beside the workers'.");
}

// Returns " ring gets 80% of that.", of the best choice with another kind of placement.
std::string NextSentence(const Advice& advice, const Choice& taken) {
  for (const Choice& choice : advice.same) {
    const Candidate::Kind kind = choice.candidate.kind;
    if (kind == taken.candidate.kind || kind == Candidate::Kind::kAsGiven || IsAlone(choice)) {
      continue;
    }
    return absl::StrFormat(" %s gets %.0f%% of that%s.", choice.candidate.name,
                           100 * choice.images_per_second / taken.images_per_second,
                           choice.candidate.hosts() == taken.candidate.hosts()
                               ? ""
                               : absl::StrCat(", on ", choice.candidate.hosts(),
                                              " hosts in place of ", taken.candidate.hosts()));
  }
  return "";
}

// Returns the images per second of the fastest choice of each kind of places with several workers.
std::map<Candidate::Kind, double> FastestOfKinds(const Advice& advice) {
  std::map<Candidate::Kind, double> fastest;
  for (const Choice& choice : advice.same) {
    const Candidate::Kind kind = choice.candidate.kind;
    if (IsAlone(choice) || kind == Candidate::Kind::kAsGiven) continue;
    fastest[kind] = std::max(fastest[kind], choice.images_per_second);
  }
  return fastest;
}

// Returns "limits.connections: 1" after what joins it to the sentence, where the choice has another
// number than a config without it.
std::string ConnectionsText(const Choice& taken, const char* joined) {
  const int connections = taken.candidate.config.limits().connections();
  if (connections == Limits().connections()) return "";
  return absl::StrCat(joined, "limits.connections: ", connections);
}

// Returns the sentences on the choice to take.
std::string TakeSentence(const Advice& advice) {
  const Choice& taken = advice.same[advice.chosen];
  if (IsAlone(taken)) return AloneSentence(advice, taken);
  const std::map<Candidate::Kind, double> kinds = FastestOfKinds(advice);
  const auto [slowest, fastest] = std::minmax_element(
      kinds.begin(), kinds.end(), [](const auto& a, const auto& b) { return a.second < b.second; });
  if (kinds.size() > 1 && slowest->second >= kAllEqual * fastest->second) {
    return absl::StrFormat(
        "It hardly matters where the parameters are: the fastest of %d kinds of places are within "
        "%.0f%%, limited by %s. Take %s%s: %s%s.%s%s",
        kinds.size(), 100 * (1 - kAllEqual), BottleneckName(taken.bottleneck), taken.candidate.name,
        ConnectionsText(taken, " with "), Rate(taken), OverAlone(advice, taken),
        HostsSentence(taken), ChangeSentence(advice, taken));
  }
  return absl::StrCat("Take ", taken.candidate.name, " with the schedule ",
                      ExchangeConfig::Schedule_Name(taken.candidate.config.exchange().schedule()),
                      ConnectionsText(taken, " and "), ": ", Rate(taken), OverAlone(advice, taken),
                      ", limited by ", BottleneckName(taken.bottleneck), ".", HostsSentence(taken),
                      NextSentence(advice, taken), ChangeSentence(advice, taken));
}

}  // namespace

std::string AdviceSentence(const Advice& advice) {
  return absl::StrCat(TakeSentence(advice), SmallSentence(advice));
}

}  // namespace evenshard
