#ifndef EVENSHARD_COMMON_PROCESS_LOCAL_RUN_H_
#define EVENSHARD_COMMON_PROCESS_LOCAL_RUN_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace evenshard {

// A run that launch has started on this machine, as psctl and evenshard.Reader find it by its name.
//
// It is a file NAME.run in a folder of the user's own: evenshard in XDG_RUNTIME_DIR, or else
// /tmp/evenshard-UID. The first line is the path of the config, each further one an override. The
// run goes on as long as somebody has the file locked (flock(2)). python/evenshard/_local_runs.py
// reads it too.
struct LocalRun {
  std::string name = {};
  std::string config = {};
  std::vector<std::string> overrides = {};
};

// The entry of a run that goes on. Movable.
class LocalRunEntry {
 public:
  // Errors: INVALID_ARGUMENT if the name is not one of a file; ALREADY_EXISTS if another run that
  // goes on has it; FAILED_PRECONDITION if the folder is not this user's alone; those of the file
  // system.
  static absl::StatusOr<LocalRunEntry> Write(const LocalRun& run);
  LocalRunEntry(LocalRunEntry&& other) noexcept;
  LocalRunEntry& operator=(LocalRunEntry&&) = delete;
  ~LocalRunEntry();  // removes it

 private:
  LocalRunEntry(std::string path, int file) : path_(std::move(path)), file_(file) {}

  std::string path_;
  int file_;
};

// Returns the run of that name, or with an empty name the one that was started last. Errors:
// NOT_FOUND, which names those that there are; FAILED_PRECONDITION if the folder is not this user's
// alone, so that others could have named a run there.
absl::StatusOr<LocalRun> FindLocalRun(const std::string& name);

}  // namespace evenshard

#endif  // EVENSHARD_COMMON_PROCESS_LOCAL_RUN_H_
