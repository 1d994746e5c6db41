#include "server/store/registered_states.h"

#include <string>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "common/base/error_kind.h"
#include "common/base/text.h"

namespace evenshard {
namespace {

std::string Giver(std::optional<uint32_t> worker) {
  return worker.has_value() ? absl::StrCat("worker ", *worker) : "the checkpoint";
}

// The name of a state that two workers do not have alike, or nullopt.
std::optional<std::string> Differing(const StatesByName& given, const StatesByName& kept) {
  for (const auto& [name, text] : given) {
    const auto found = kept.find(name);
    if (found == kept.end() || found->second != text) return name;
  }
  for (const auto& [name, text] : kept) {
    if (!given.contains(name)) return name;
  }
  return std::nullopt;
}

}  // namespace

absl::Status RegisteredStates::Keep(std::optional<uint32_t> worker, uint64_t exchange,
                                    StatesByName state) {
  size_t bytes = 0;
  for (const auto& [name, text] : state) bytes += name.size() + text.size();
  if (bytes > kMaxBytes) {
    return absl::InvalidArgumentError(
        absl::StrCat("the registered state has ", bytes, " bytes, allowed: at most ", kMaxBytes));
  }
  absl::MutexLock lock(&mutex_);
  is_used_ = is_used_ || !state.empty();
  const auto [found, is_new] = states_.try_emplace(exchange, Entry{worker, state});
  if (!is_new) {
    const Entry& kept = found->second;
    const std::optional<std::string> name = Differing(state, kept.state);
    if (!name.has_value()) return absl::OkStatus();
    const std::string giver = Giver(worker);
    const std::string other = Giver(kept.worker);
    const std::string difference =
        !kept.state.contains(*name) ? absl::StrCat("registered by ", giver, " and not by ", other)
        : !state.contains(*name)    ? absl::StrCat("registered by ", other, " and not by ", giver)
                                    : absl::StrCat("not the same in ", giver, " and in ", other);
    return WithDifferingState(
        *name, absl::FailedPreconditionError(absl::StrCat(
                   "register_state: \"", Printable(*name), "\" is ", difference,
                   " before exchange ", exchange,
                   "; allowed: what is the same in all workers, from which any of them can go "
                   "on")));
  }
  // One that comes late goes itself.
  while (states_.size() > kKept) states_.erase(states_.begin());
  return absl::OkStatus();
}

std::optional<StatesByName> RegisteredStates::At(uint64_t exchange) const {
  absl::MutexLock lock(&mutex_);
  const auto found = states_.find(exchange);
  if (found == states_.end()) return std::nullopt;
  return found->second.state;
}

absl::StatusOr<std::optional<StatesByName>> RegisteredStates::Take(
    uint32_t worker, uint64_t exchange, const std::vector<uint32_t>& may_give) {
  if (std::optional<StatesByName> kept = At(exchange); kept.has_value()) return kept;
  absl::MutexLock lock(&mutex_);
  if (std::exchange(asked_for_, exchange) != exchange) asking_.clear();
  asking_.insert(worker);
  const std::set<uint32_t> givers(may_give.begin(), may_give.end());
  is_lost_ = is_lost_ || absl::c_includes(asking_, givers);
  if (is_lost_) {
    return absl::UnavailableError(
        absl::StrCat("register_state: nobody has what was registered before exchange ", exchange,
                     ", since workers were started again"));
  }
  return std::nullopt;
}

}  // namespace evenshard
