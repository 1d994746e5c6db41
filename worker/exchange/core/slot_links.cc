#include "worker/exchange/core/slot_links.h"

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/base/status_macros.h"
#include "common/placement/plan/plan.h"
#include "common/wire/chunk_codec.h"

namespace evenshard {

SlotLinks::SlotLinks(const Options& options) : options_(options) {
  for (int slot = 0; slot < options_.config->shards(); ++slot) {
    slots_.emplace_back(slot, &options_.patience);
  }
  absl::MutexLock lock(&names_mutex_);
  addresses_.resize(slots_.size());
}

void SlotLinks::SetAddress(int slot, const std::string& address) {
  absl::MutexLock lock(&names_mutex_);
  addresses_[slot] = address;
}

std::string SlotLinks::Name(int slot) const {
  absl::MutexLock lock(&names_mutex_);
  return absl::StrCat("shard ", slot, " (", addresses_[slot], ")");
}

void SlotLinks::MoveTo(const std::vector<std::string>& addresses) {
  for (size_t slot = 0; slot < slots_.size(); ++slot) {
    ProcessId process;
    process.set_address(addresses[slot]);
    slots_[slot].MoveTo(process);
    SetAddress(static_cast<int>(slot), addresses[slot]);
  }
}

std::vector<int> SlotLinks::Follow(const View& view, bool is_leaving) {
  view_ = view.number();
  std::vector<int> wake;
  for (size_t i = 0; i < slots_.size(); ++i) {
    const int index = static_cast<int>(i);
    const SlotView& now =
        index < view.slot_size() ? view.slot(index) : SlotView::default_instance();
    SlotLink& slot = slots_[i];
    if (now.has_primary() && slot.IsAt(now.primary())) {
      if (is_leaving) continue;
      if (slot.is_connected()) {
        options_.round->Open(index);
        wake.push_back(index);
      } else if (slot.is_attempting()) {
        // Its Join names an older view.
        slot.ForgetPause();
        Attempt(index, absl::ZeroDuration());
      }
      continue;
    }
    Drop(index);
    if (!now.has_primary()) {
      slot.MoveNowhere();
      continue;
    }
    slot.MoveTo(now.primary());
    SetAddress(index, now.primary().address());
  }
  return wake;
}

void SlotLinks::Connect(bool until_joined) {
  for (size_t i = 0; i < slots_.size(); ++i) {
    if (i > 0 && until_joined && !slots_[0].has_joined()) break;
    if (slots_[i].IsIdle()) Attempt(static_cast<int>(i), absl::ZeroDuration());
  }
}

void SlotLinks::Forget() {
  for (size_t i = 0; i < slots_.size(); ++i) {
    Drop(static_cast<int>(i));
    slots_[i].Forget();
  }
  registered_.reset();
}

void SlotLinks::Attempt(int index, absl::Duration delay) {
  options_.round->Close(index);
  const PlannedConfig& config = *options_.config;
  const absl::Time now = options_.clock->Now();
  const absl::Time begin = now + delay;
  JoinRequest join;
  join.set_worker(options_.rank);
  join.set_incarnation(options_.incarnation);
  join.set_config_fingerprint(config.fingerprint());
  join.set_plan_fingerprint(config.plan().fingerprint());
  join.set_plan_version(kPlanVersion);
  join.set_protocol_version(kProtocolVersion);
  join.set_process(options_.process);
  *join.mutable_config() = config.Contract();
  for (const Encoding encoding : {FLOAT32, FLOAT16, BFLOAT16, INT8, INT4, E3M0}) {
    join.add_encodings(encoding);
  }
  if (options_.has_views) {
    join.set_slot(index);
    join.set_view(view_);
  }
  if (index == 0 && registered_.has_value()) *join.mutable_state() = *registered_;
  options_.transport->Connect({.slot = index,
                               .number = slots_[index].Begin(begin, now),
                               .address = slots_[index].address(),
                               .not_before = begin,
                               .join = std::move(join)});
}

void SlotLinks::Drop(int index) {
  if (!slots_[index].Drop(options_.clock->Now())) return;
  options_.round->Close(index);
  options_.transport->Disconnect(index);
}

absl::StatusOr<bool> SlotLinks::Accept(int index, uint64_t attempt, const JoinResponse& response) {
  SlotLink& slot = slots_[index];
  if (!slot.IsCurrent(attempt) || slot.is_connected()) return false;
  RETURN_IF_ERROR(slot.Accept(response, options_.clock->Now()));
  options_.round->Open(index);
  return true;
}

absl::Status SlotLinks::Break(int index, const absl::Status& status) {
  ASSIGN_OR_RETURN(const absl::Duration pause,
                   slots_[index].Break(status, options_.round->HasAnswered(index)));
  Attempt(index, pause);
  return absl::OkStatus();
}

absl::Status SlotLinks::Check() {
  const absl::Time now = options_.clock->Now();
  absl::Status first;
  std::vector<std::string> messages;
  for (size_t slot = 0; slot < slots_.size(); ++slot) {
    if (const absl::Status checked = slots_[slot].Check(now); !checked.ok()) {
      first.Update(checked);
      messages.emplace_back(checked.message());
    } else if (slots_[slot].IsStale(now)) {
      Attempt(static_cast<int>(slot), absl::ZeroDuration());
    }
  }
  return first.ok() ? first : absl::Status(first.code(), absl::StrJoin(messages, "; "));
}

std::vector<uint32_t> SlotLinks::Unreachable() const {
  const absl::Time now = options_.clock->Now();
  std::vector<uint32_t> unreachable;
  for (size_t slot = 0; slot < slots_.size(); ++slot) {
    if (slots_[slot].IsUnreachable(now)) unreachable.push_back(static_cast<uint32_t>(slot));
  }
  return unreachable;
}

bool SlotLinks::AllJoined() const {
  return absl::c_all_of(slots_, std::mem_fn(&SlotLink::has_joined));
}

std::pair<const SlotLink*, const SlotLink*> SlotLinks::StartRange() const {
  const auto [least, most] =
      absl::c_minmax_element(slots_, [](const SlotLink& a, const SlotLink& b) {
        return a.start_iteration() < b.start_iteration();
      });
  return {&*least, &*most};
}

}  // namespace evenshard
