#include "server/rpc/attendance_log.h"

#include "spdlog/spdlog.h"

namespace evenshard {

void AttendanceLog::Joined(uint32_t slot, uint32_t worker, absl::string_view from) {
  absl::MutexLock lock(&mutex_);
  Attendance& attendance = slots_[slot];
  attendance.finished.erase(worker);
  const bool is_first =
      workers_ > 1 && !attendance.all_came && attendance.came.insert(worker).second;
  spdlog::log(is_first ? spdlog::level::debug : spdlog::level::info, "worker {} joined from {}",
              worker, std::string(from));
  if (!is_first || attendance.came.size() < workers_) return;
  attendance.all_came = true;
  spdlog::info("all {} workers have joined", workers_);
}

void AttendanceLog::Left(uint32_t slot, uint32_t worker, absl::string_view error) {
  if (!error.empty()) return spdlog::info("worker {} left: {}", worker, std::string(error));
  absl::MutexLock lock(&mutex_);
  std::set<uint32_t>& finished = slots_[slot].finished;
  finished.insert(worker);
  spdlog::log(workers_ > 1 ? spdlog::level::debug : spdlog::level::info, "worker {} left", worker);
  if (workers_ > 1 && finished.size() == workers_) {
    spdlog::info("all {} workers have left", workers_);
  }
}

}  // namespace evenshard
