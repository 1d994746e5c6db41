#include "common/security/identity.h"

#include <algorithm>

#include "absl/algorithm/container.h"
#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"

namespace evenshard {
namespace {

constexpr absl::string_view kScheme = "evenshard://";
constexpr size_t kMaxRunBytes = 100;
// A longer name is no name of a certificate that anybody needs.
constexpr size_t kMaxRanges = 1000;
constexpr size_t kMaxDigits = 6;

bool IsCounted(Role role) { return role == Role::kWorker || role == Role::kShard; }

std::optional<Role> ParseRole(absl::string_view text) {
  const auto found = absl::c_find_if(kRoles, [&](Role role) { return RoleName(role) == text; });
  return found == std::end(kRoles) ? std::nullopt : std::optional<Role>(*found);
}

std::optional<int> ParseIndex(absl::string_view text) {
  int index;
  if (text.empty() || text.size() > kMaxDigits || !absl::c_all_of(text, absl::ascii_isdigit) ||
      !absl::SimpleAtoi(text, &index)) {
    return std::nullopt;
  }
  return index;
}

}  // namespace

absl::string_view RoleName(Role role) {
  switch (role) {
    case Role::kWorker:
      return "worker";
    case Role::kShard:
      return "shard";
    case Role::kOperator:
      return "operator";
    case Role::kReader:
      return "reader";
  }
  return "";
}

bool IsRunName(absl::string_view text) {
  return !text.empty() && text.size() <= kMaxRunBytes && absl::c_all_of(text, [](char c) {
    return absl::ascii_isalnum(c) || c == '-' || c == '_' || c == '.';
  });
}

std::optional<ProcessName> ProcessName::Parse(absl::string_view text) {
  const std::pair<absl::string_view, absl::string_view> parts =
      absl::StrSplit(text, absl::MaxSplits('-', 1));
  const std::optional<Role> role = ParseRole(parts.first);
  if (!role.has_value()) return std::nullopt;
  if (!IsCounted(*role)) {
    return text == parts.first ? std::optional(ProcessName{*role}) : std::nullopt;
  }
  const std::optional<int> index = ParseIndex(parts.second);
  return index.has_value() ? std::optional(ProcessName{*role, *index}) : std::nullopt;
}

std::string ProcessName::ToString() const {
  return index < 0 ? std::string(RoleName(role)) : absl::StrCat(RoleName(role), "-", index);
}

std::optional<Identity::Entry> Identity::ParseEntry(absl::string_view path) {
  const std::vector<absl::string_view> parts = absl::StrSplit(path, '/');
  const std::optional<Role> role = ParseRole(parts[0]);
  if (!role.has_value() || parts.size() != (IsCounted(*role) ? 2 : 1)) return std::nullopt;
  Entry entry = {.role = *role};
  if (!IsCounted(*role)) return entry;
  const std::vector<absl::string_view> ranges = absl::StrSplit(parts[1], ',');
  if (ranges.size() > kMaxRanges) return std::nullopt;
  for (const absl::string_view range : ranges) {
    const std::vector<absl::string_view> ends = absl::StrSplit(range, '-');
    const std::optional<int> first = ParseIndex(ends.front());
    const std::optional<int> last = ParseIndex(ends.back());
    if (ends.size() > 2 || !first.has_value() || !last.has_value() || *last < *first) {
      return std::nullopt;
    }
    entry.ranges.emplace_back(*first, *last);
  }
  return entry;
}

absl::StatusOr<Identity> Identity::Of(absl::Span<const std::string> uris, absl::string_view run) {
  Identity identity;
  for (absl::string_view rest : uris) {
    const absl::string_view uri = rest;
    if (!absl::ConsumePrefix(&rest, kScheme) || !absl::ConsumePrefix(&rest, run) ||
        !absl::ConsumePrefix(&rest, "/")) {
      continue;
    }
    std::optional<Entry> entry = ParseEntry(rest);
    if (!entry.has_value()) {
      return absl::InvalidArgumentError(
          absl::StrCat("the name \"", absl::CEscape(uri), "\" has no role, allowed: ", kScheme, run,
                       "/worker/0-3, /shard/0, /operator or /reader"));
    }
    identity.entries_.push_back(*std::move(entry));
  }
  return identity;
}

Identity Identity::Anybody() {
  Identity identity;
  identity.is_anybody_ = true;
  return identity;
}

bool Identity::Has(Role role) const { return MayBe({.role = role}); }

bool Identity::MayBe(const ProcessName& process) const {
  return is_anybody_ || absl::c_any_of(entries_, [&](const Entry& entry) {
           if (entry.role != process.role) return false;
           return process.index < 0 ||
                  absl::c_any_of(entry.ranges, [&](const std::pair<int, int>& range) {
                    return range.first <= process.index && process.index <= range.second;
                  });
         });
}

Identity Identity::Nobody(absl::string_view why) {
  Identity identity;
  identity.why_nobody_ = std::string(why);
  return identity;
}

std::string Identity::ToString() const {
  if (is_anybody_) return "anybody";
  if (entries_.empty()) {
    return why_nobody_.empty() ? "nobody" : absl::StrCat("nobody (", why_nobody_, ")");
  }
  return absl::StrJoin(entries_, ", ", [](std::string* out, const Entry& entry) {
    absl::StrAppend(
        out, RoleName(entry.role), entry.ranges.empty() ? "" : " ",
        absl::StrJoin(entry.ranges, ",", [](std::string* to, const std::pair<int, int>& range) {
          absl::StrAppend(to, range.first);
          if (range.second != range.first) {
            absl::StrAppend(to, "-", range.second);
          }
        }));
  });
}

std::string UriOf(absl::string_view run, const ProcessName& process) {
  std::string uri = absl::StrCat(kScheme, run, "/", RoleName(process.role));
  if (IsCounted(process.role)) absl::StrAppend(&uri, "/", process.index);
  return uri;
}

}  // namespace evenshard
