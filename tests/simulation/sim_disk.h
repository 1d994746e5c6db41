#ifndef EVENSHARD_TESTS_SIMULATION_SIM_DISK_H_
#define EVENSHARD_TESTS_SIMULATION_SIM_DISK_H_

#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "common/checkpoint/storage.h"
#include "tests/simulation/world.h"

namespace evenshard {

// A disk that all processes of a simulation share, as a network file system. It fails for a while
// when told to, and at a loss of power it forgets what was not synced. Each process uses it through
// a Storage of its own, which ends with the process. Used by one thread.
class SimDisk {
 public:
  explicit SimDisk(World* world) : world_(*world) {}

  // The disk as the process of this node sees it.
  std::unique_ptr<Storage> Mount(NodeRef node);

  // Until then, operations fail with this status about once in `once` times.
  void FailUntil(absl::Time until, const absl::Status& status, int once);
  bool is_failing() const { return failing_until_ > world_.loop().Now(); }
  // The machine loses power: what Commit has not put on the disk yet is lost or torn.
  void LosePower();

  // Called when a file has been put in place.
  std::function<void(const std::string& path)> on_commit = [](const std::string&) {};
  // A planted fault: Commit does not wait until the data is on the disk.
  bool leaves_out_sync = false;

 private:
  friend class MountedDisk;
  friend class SimWritableFile;
  friend class SimFileLock;

  struct File {
    std::string contents;
    absl::Time synced;  // from when on a loss of power does no harm
  };

  absl::Status Check(int node, const std::string& path);

  World& world_;
  std::map<std::string, std::shared_ptr<File>> files_;
  std::set<std::string> folders_;
  std::map<std::string, int> locks_;
  absl::Time failing_until_ = absl::InfinitePast();
  absl::Status failure_;
  int once_ = 1;
};

}  // namespace evenshard

#endif  // EVENSHARD_TESTS_SIMULATION_SIM_DISK_H_
