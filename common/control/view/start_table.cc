#include "common/control/view/start_table.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "common/base/text.h"

namespace evenshard {
namespace {

// A start that is gone can be heard of once more, while its last messages are under way. So many
// starts of one process are never under way at once.
constexpr size_t kMostGone = 16;

constexpr size_t kMostAddressBytes = 300;

}  // namespace

bool StartTable::IsAlive(const ProcessId& id) const {
  return id.incarnation() != 0 && id.process() < processes_.size() &&
         processes_[id.process()].present == id.incarnation();
}

absl::Status StartTable::Seen(uint32_t index, const ProcessState& state, absl::Time now) {
  if (index >= processes_.size()) {
    return absl::InvalidArgumentError(
        absl::StrCat("there is no ", kind_, " ", index, ", allowed: 0 to ", size() - 1));
  }
  if (state.incarnation() == 0 || state.address().size() > kMostAddressBytes) {
    return absl::InvalidArgumentError(
        absl::StrCat(kind_, " ", index, " has no incarnation, or an address of more than ",
                     kMostAddressBytes, " bytes"));
  }
  Process& process = processes_[index];
  if (std::find(process.gone.begin(), process.gone.end(), state.incarnation()) !=
      process.gone.end()) {
    return absl::FailedPreconditionError(
        absl::StrCat("this start of ", kind_, " ", index, " counts as dead"));
  }
  if (process.present != state.incarnation()) {
    Gone(index, process.present, "was started again", now);
    process.present = state.incarnation();
  }
  process.state = state;
  return absl::OkStatus();
}

void StartTable::Gone(uint32_t index, uint64_t incarnation, absl::string_view reason,
                      absl::Time since) {
  if (index >= processes_.size() || incarnation == 0) return;
  Process& process = processes_[index];
  if (std::find(process.gone.begin(), process.gone.end(), incarnation) != process.gone.end()) {
    return;
  }
  process.gone.push_back(incarnation);
  if (process.gone.size() > kMostGone) process.gone.pop_front();
  if (process.present != incarnation) return;
  process.present = 0;
  process.state.Clear();
  process.reason = Printable(reason);
  process.gone_since = since;
}

}  // namespace evenshard
