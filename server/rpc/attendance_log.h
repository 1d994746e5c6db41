#ifndef EVENSHARD_SERVER_RPC_ATTENDANCE_LOG_H_
#define EVENSHARD_SERVER_RPC_ATTENDANCE_LOG_H_

#include <cstdint>
#include <map>
#include <set>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/strings/string_view.h"
#include "absl/synchronization/mutex.h"

namespace evenshard {

// Logs which workers come and go: one line when all have come, one when all have finished, and one
// for each that comes or goes at another time or for another reason. Thread-safe.
class AttendanceLog {
 public:
  explicit AttendanceLog(int workers) : workers_(workers) {}

  void Joined(uint32_t slot, uint32_t worker, absl::string_view from);
  // `error` is empty if the worker has finished.
  void Left(uint32_t slot, uint32_t worker, absl::string_view error);

 private:
  struct Attendance {
    std::set<uint32_t> came;  // until all have
    bool all_came = false;
    std::set<uint32_t> finished;
  };

  const size_t workers_;
  absl::Mutex mutex_;
  std::map<uint32_t, Attendance> slots_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace evenshard

#endif  // EVENSHARD_SERVER_RPC_ATTENDANCE_LOG_H_
