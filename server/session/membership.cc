#include "server/session/membership.h"

#include <algorithm>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/base/status_macros.h"
#include "common/base/text.h"

namespace evenshard {
namespace {

// How many bytes of a refusal are kept: messages about many ranks must fit into gRPC's metadata.
constexpr size_t kMostOfRefusal = 300;

// Usage is a name, a bus id and some numbers.
constexpr size_t kMaxUsageBytes = 256;

}  // namespace

Membership::Membership(int workers, absl::Duration reconnect, const Clock* clock)
    : reconnect_(reconnect), clock_(clock), activities_(workers), members_(workers) {}

void Membership::Seen(uint32_t rank) {
  activities_[rank].last_seen = absl::ToUnixNanos(clock_->Now());
}

std::string Membership::Ago(absl::Time time) const {
  return absl::StrCat(absl::FormatDuration(absl::Trunc(clock_->Now() - time, absl::Seconds(1))),
                      " ago");
}

absl::Time Membership::LastSeen(uint32_t rank) const {
  return absl::FromUnixNanos(activities_[rank].last_seen);
}

absl::Duration Membership::GraceLeft(const Member& member) const {
  const absl::Duration grace = member.took_part ? reconnect_ : kStreamGrace;
  return std::max(grace - (clock_->Now() - member.without_stream), absl::ZeroDuration());
}

absl::StatusOr<std::shared_ptr<WorkerSession>> Membership::Join(
    uint32_t rank, uint64_t incarnation, const std::string& address,
    std::shared_ptr<WorkerBuffers> buffers, uint64_t view) {
  absl::MutexLock lock(&mutex_);
  if (rank >= members_.size()) {
    return absl::OutOfRangeError(absl::StrCat("there is no worker ", rank, ": the config has ",
                                              members_.size(), " workers, ranks 0 to ",
                                              members_.size() - 1));
  }
  if (incarnation == 0) return absl::InvalidArgumentError("a worker's incarnation must not be 0");
  Member& member = members_[rank];
  if (member.state == WorkerStats::JOINED) {
    const bool is_taken = member.incarnation != incarnation && view == 0;
    if (is_taken && member.streams > 0) {
      return absl::AlreadyExistsError(absl::StrCat(
          "rank ", rank, " is taken by ", DescribeLocked(rank),
          "; start this worker with a free rank (or, where that worker's host has gone, after 40 s,"
          " when its connections count as broken)"));
    }
    if (const absl::Duration left = GraceLeft(member); is_taken && left > absl::ZeroDuration()) {
      return absl::UnavailableError(
          absl::StrCat("rank ", rank, " is taken by ", DescribeLocked(rank),
                       ", which has no stream; it is free in ",
                       absl::FormatDuration(absl::Ceil(left, absl::Seconds(1))),
                       " at the latest unless that worker opens one"));
    }
    if (member.incarnation == incarnation && member.streams > 0) {
      member.view = view;
      return member.session;
    }
    EndSession(member, WorkerStats::LOST);
  }
  if (member.incarnation != incarnation) member.usage.reset();
  member.state = WorkerStats::JOINED;
  member.refusal.clear();
  member.incarnation = incarnation;
  member.view = view;
  member.address = address;
  member.shares_memory = buffers != nullptr;
  member.streams = 0;
  member.took_part = false;
  member.without_stream = clock_->Now();
  member.session = std::make_shared<WorkerSession>(rank, incarnation, std::move(buffers),
                                                   &activities_[rank], clock_);
  Seen(rank);
  return member.session;
}

bool Membership::EverJoined(uint32_t rank) const {
  absl::MutexLock lock(&mutex_);
  return rank < members_.size() && members_[rank].incarnation != 0;
}

void Membership::Refused(uint32_t rank, const absl::Status& reason) {
  absl::MutexLock lock(&mutex_);
  if (rank >= members_.size()) return;
  members_[rank].refusal = Printable(reason.message(), kMostOfRefusal);
  members_[rank].refused = clock_->Now();
}

void Membership::EndSession(Member& member, WorkerStats::State state) {
  member.session->End();
  member.session.reset();  // its streams keep it until they end
  member.state = state;
}

absl::Status Membership::CheckHolder(uint32_t rank, uint64_t incarnation) const {
  if (rank < members_.size() && members_[rank].state == WorkerStats::JOINED &&
      members_[rank].incarnation == incarnation) {
    return absl::OkStatus();
  }
  return absl::FailedPreconditionError(
      absl::StrCat("worker ", rank, " has not joined with this incarnation"));
}

absl::Status Membership::CheckHolds(uint32_t rank, uint64_t incarnation) const {
  absl::MutexLock lock(&mutex_);
  return CheckHolder(rank, incarnation);
}

absl::StatusOr<bool> Membership::Leave(uint32_t rank, uint64_t incarnation, bool failed,
                                       uint64_t view) {
  absl::MutexLock lock(&mutex_);
  RETURN_IF_ERROR(CheckHolder(rank, incarnation));
  if (view < members_[rank].view) {
    return absl::FailedPreconditionError(absl::StrCat("worker ", rank, " has joined in view ",
                                                      members_[rank].view,
                                                      ", after its Leave in view ", view));
  }
  EndSession(members_[rank], failed ? WorkerStats::LOST : WorkerStats::LEFT);
  Seen(rank);
  return members_[rank].took_part;
}

absl::StatusOr<std::shared_ptr<WorkerSession>> Membership::StreamOpened(uint32_t rank,
                                                                        uint64_t incarnation) {
  absl::MutexLock lock(&mutex_);
  RETURN_IF_ERROR(CheckHolder(rank, incarnation));
  if (members_[rank].streams >= kMaxStreams) {
    return absl::ResourceExhaustedError(
        absl::StrCat("worker ", rank, " has ", kMaxStreams, " Exchange streams open, the most"));
  }
  ++members_[rank].streams;
  members_[rank].took_part = true;
  Seen(rank);
  return members_[rank].session;
}

Membership::AfterStream Membership::StreamClosed(WorkerSession* session) {
  absl::MutexLock lock(&mutex_);
  Member& member = members_[session->rank()];
  if (member.session.get() != session) return AfterStream::kGoesOn;  // it has ended before
  if (--member.streams > 0) return AfterStream::kGoesOn;
  member.without_stream = clock_->Now();
  if (reconnect_ > absl::ZeroDuration()) return AfterStream::kMayComeBack;
  EndSession(member, WorkerStats::LOST);
  return AfterStream::kLost;
}

void Membership::EndOthers(uint32_t rank, uint64_t incarnation) {
  absl::MutexLock lock(&mutex_);
  Member& member = members_[rank];
  if (member.state != WorkerStats::JOINED || member.incarnation == incarnation) return;
  EndSession(member, WorkerStats::LOST);
}

std::vector<Membership::Absence> Membership::LoseWithoutStream() {
  absl::MutexLock lock(&mutex_);
  std::vector<Absence> lost;
  for (size_t rank = 0; rank < members_.size(); ++rank) {
    Member& member = members_[rank];
    if (member.state != WorkerStats::JOINED || member.streams > 0) continue;
    if (GraceLeft(member) > absl::ZeroDuration()) continue;
    EndSession(member, WorkerStats::LOST);
    lost.push_back(
        {static_cast<uint32_t>(rank), member.incarnation,
         member.took_part
             ? absl::StrCat("its connection ended before it left, and it was not back "
                            "within ",
                            absl::FormatDuration(reconnect_), " (limits.reconnect_seconds)")
             : absl::StrCat("it joined and opened no stream within ",
                            absl::FormatDuration(kStreamGrace))});
  }
  return lost;
}

absl::Status Membership::Report(uint32_t rank, uint64_t incarnation, const WorkerUsage& usage) {
  if (const size_t bytes = usage.ByteSizeLong(); bytes > kMaxUsageBytes) {
    return absl::InvalidArgumentError(absl::StrCat("worker ", rank, " reported usage of ", bytes,
                                                   " bytes; allowed: ", kMaxUsageBytes));
  }
  absl::MutexLock lock(&mutex_);
  RETURN_IF_ERROR(CheckHolder(rank, incarnation));
  members_[rank].usage = usage;
  members_[rank].reported = clock_->Now();
  return absl::OkStatus();
}

std::vector<uint32_t> Membership::HaveLeft() const {
  absl::MutexLock lock(&mutex_);
  std::vector<uint32_t> left;
  for (size_t rank = 0; rank < members_.size(); ++rank) {
    if (members_[rank].state == WorkerStats::LEFT) left.push_back(rank);
  }
  return left;
}

int Membership::CountLost() const {
  absl::MutexLock lock(&mutex_);
  return static_cast<int>(std::count_if(members_.begin(), members_.end(), [](const Member& member) {
    return member.state == WorkerStats::LOST;
  }));
}

std::string Membership::Describe(uint32_t rank) const {
  absl::MutexLock lock(&mutex_);
  return DescribeLocked(rank);
}

std::string Membership::Describe(const std::vector<uint32_t>& ranks) const {
  constexpr size_t kListed = 10;
  std::vector<std::string> listed;
  for (const uint32_t rank : ranks) {
    if (listed.size() == kListed) break;
    listed.push_back(Describe(rank));
  }
  return absl::StrCat(
      absl::StrJoin(listed, ", "),
      ranks.size() > kListed ? absl::StrCat(" and ", ranks.size() - kListed, " more") : "");
}

std::string Membership::DescribeLocked(uint32_t rank) const {
  const Member& member = members_[rank];
  const std::string refusal =
      member.refusal.empty()
          ? ""
          : absl::StrCat("; refused ", Ago(member.refused), ": ", member.refusal);
  if (member.state == WorkerStats::NEVER_JOINED) {
    return absl::StrCat("worker ", rank, " (never joined", refusal, ")");
  }
  const uint64_t pushed = activities_[rank].iterations;
  return absl::StrCat("worker ", rank, " (", member.address, ", ",
                      absl::AsciiStrToLower(WorkerStats::State_Name(member.state)), ", last seen ",
                      Ago(LastSeen(rank)),
                      pushed > 0 ? absl::StrCat(" at iteration ", pushed - 1) : "", refusal, ")");
}

void Membership::Fill(ShardStats* stats) const {
  absl::MutexLock lock(&mutex_);
  for (size_t rank = 0; rank < members_.size(); ++rank) {
    const Member& member = members_[rank];
    const WorkerActivity& activity = activities_[rank];
    WorkerStats* out = stats->add_worker();
    out->set_worker(rank);
    out->set_state(member.state);
    if (member.state == WorkerStats::NEVER_JOINED) continue;
    out->set_address(member.address);
    out->set_iteration(activity.iterations);
    out->set_last_seen_seconds_ago(absl::ToDoubleSeconds(clock_->Now() - LastSeen(rank)));
    activity.received.Fill(out);
    out->set_bytes_out(activity.bytes_out);
    out->set_shared_memory(member.shares_memory);
    if (!member.usage.has_value()) continue;
    *out->mutable_usage() = *member.usage;
    out->set_usage_seconds_ago(absl::ToDoubleSeconds(clock_->Now() - member.reported));
  }
}

}  // namespace evenshard
