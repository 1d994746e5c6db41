#include "common/process/open_files.h"

#include <sys/resource.h>

#include <cerrno>
#include <filesystem>
#include <iterator>
#include <system_error>

#include "absl/strings/str_cat.h"

namespace evenshard {
namespace {

// For gRPC's own, files that are written and read, and connections of strangers.
constexpr int64_t kOthers = 64;

int64_t CountOpenFiles() {
  std::error_code error;
  const std::filesystem::directory_iterator files("/proc/self/fd", error);
  return error ? 0 : std::distance(begin(files), end(files));
}

}  // namespace

absl::Status ReserveOpenFiles(int64_t more, absl::string_view what) {
  rlimit limit = {};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return absl::ErrnoToStatus(errno, "getrlimit");
  const auto needed = static_cast<rlim_t>(CountOpenFiles() + more + kOthers);
  if (needed <= limit.rlim_cur) return absl::OkStatus();
  if (needed > limit.rlim_max) {
    return absl::ResourceExhaustedError(absl::StrCat(
        what, " need about ", needed, " open files, and this process may have ", limit.rlim_max,
        " (ulimit -Hn); allowed: a higher limit, fewer shards or "
        "workers, or limits.connections: 1"));
  }
  limit.rlim_cur = needed;
  if (setrlimit(RLIMIT_NOFILE, &limit) != 0) return absl::ErrnoToStatus(errno, "setrlimit");
  return absl::OkStatus();
}

}  // namespace evenshard
