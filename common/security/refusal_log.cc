#include "common/security/refusal_log.h"

#include <atomic>
#include <optional>
#include <string>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "common/base/clock.h"
#include "spdlog/spdlog.h"

namespace evenshard {
namespace {

std::atomic<int> most_lines{10};

// Lets `most_lines` lines through in a period.
class Bound {
 public:
  // What to add to the line, or nothing if it is one too many.
  std::optional<std::string> Take() {
    const int most = most_lines;
    absl::MutexLock lock(&mutex_);
    const absl::Time now = clock_.Now();
    std::string more;
    if (now - begun_ >= kPeriod) {
      if (lines_ > most) more = absl::StrCat(" (and ", lines_ - most, " that were not told)");
      begun_ = now;
      lines_ = 0;
    }
    return ++lines_ > most ? std::nullopt : std::optional(more);
  }

 private:
  static constexpr absl::Duration kPeriod = absl::Minutes(1);

  const RealClock clock_{};
  absl::Mutex mutex_;
  absl::Time begun_ ABSL_GUARDED_BY(mutex_) = absl::InfinitePast();
  int lines_ ABSL_GUARDED_BY(mutex_) = 0;
};

std::atomic<uint64_t> refusals{0};

}  // namespace

void LogRefusal(absl::string_view what) {
  static auto* const bound = new Bound;
  ++refusals;
  if (const std::optional<std::string> more = bound->Take(); more.has_value()) {
    spdlog::warn("refused: {}{}", std::string(what), *more);
  }
}

std::string ExplainTls(std::string text) {
  const std::pair<absl::string_view, absl::string_view> meanings[] = {
      {"wrong version number",
       "the other end speaks plaintext; allowed: the same `security` at both ends"},
      {"certificate verify failed",
       "the other end's certificate is not signed by security.authority, or is not valid now"},
      {"peer did not return a certificate",
       "the other end has no certificate, allowed: one that security.authority has signed"},
  };
  for (const auto& [error, meaning] : meanings) {
    if (absl::StrContains(text, error)) absl::StrAppend(&text, " (", meaning, ")");
  }
  return text;
}

void LimitRefusalLines(int lines) { most_lines = lines; }

uint64_t Refusals() { return refusals; }

}  // namespace evenshard
