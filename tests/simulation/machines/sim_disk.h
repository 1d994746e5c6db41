#ifndef EVENSHARD_TESTS_SIMULATION_MACHINES_SIM_DISK_H_
#define EVENSHARD_TESTS_SIMULATION_MACHINES_SIM_DISK_H_

#include <algorithm>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "common/checkpoint/storage/storage.h"
#include "tests/simulation/machines/world.h"

namespace evenshard {

// A disk that all processes of a simulation share, as a network file system. It fails for a while
// when told to. At a loss of power it forgets what was not synced: files that are being written are
// lost or torn, and what was removed shortly before may be there again. Each process uses it
// through a Storage of its own, which ends with the process. Used by one thread.
class SimDisk {
 public:
  explicit SimDisk(World* world) : world_(*world) {}

  // The disk as the process of this node sees it.
  std::unique_ptr<Storage> Mount(NodeRef node);

  // Until then, operations fail with this status about once in `once` times.
  void FailUntil(absl::Time until, const absl::Status& status, int once);
  bool is_failing() const { return failing_until_ > world_.loop().Now(); }
  // When an operation last failed or the power was lost, at most.
  absl::Time last_trouble() const {
    return std::max(lost_power_, std::min(failing_until_, world_.loop().Now()));
  }
  // Until then, what the node writes takes long.
  void SlowUntil(int node, absl::Time until) { slow_until_[node] = until; }
  // Whether it is slow for some node.
  bool is_slow() const;
  // How long the next piece takes that the node writes, beside what it takes otherwise.
  absl::Duration Lag(int node);
  // Until then, a file of a folder cannot be read. Returns false if it has none.
  bool FailReadsUntil(const std::string& folder, absl::Time until);
  bool has_read_errors() const { return unreadable_until_ > world_.loop().Now(); }
  // Changes one bit of a file of a folder. Returns false if it has none.
  bool Rot(const std::string& folder);
  bool IsLocked(const std::string& path) const { return locks_.contains(path); }
  // The folders in a folder.
  std::vector<std::string> FoldersOf(const std::string& path) const;

  // The machine loses power: what Commit has not put on the disk yet is lost or torn.
  void LosePower();

  // Called when a file has been put in place.
  std::function<void(const std::string& path)> on_commit = [](const std::string&) {};
  // A planted fault: Commit does not wait until the data is on the disk.
  bool leaves_out_sync = false;
  // A planted fault: what is removed stays.
  bool keeps_all = false;
  // A planted fault: who did not get a lock once never gets it.
  bool locks_once = false;

 private:
  friend class MountedDisk;
  friend class SimReadableFile;
  friend class SimWritableFile;
  friend class SimFileLock;

  struct File {
    std::string contents;
    absl::Time synced;  // from when on a loss of power does no harm
  };
  struct Removed {
    std::string path;
    std::shared_ptr<File> file;  // null: a folder
    absl::Time at;
  };

  absl::Status Check(int node, const std::string& path);
  absl::Status CheckRead(const std::string& path) const;
  void Forget(const std::string& path, std::shared_ptr<File> file);
  std::string FileOf(const std::string& folder);

  World& world_;
  std::map<std::string, std::shared_ptr<File>> files_;
  std::set<std::string> folders_;
  std::map<std::string, int> locks_;
  std::deque<Removed> removed_;  // what a loss of power may bring back, the oldest first
  std::map<int, absl::Time> slow_until_;
  std::string unreadable_;
  absl::Time unreadable_until_ = absl::InfinitePast();
  absl::Time failing_until_ = absl::InfinitePast();
  absl::Time lost_power_ = absl::InfinitePast();
  absl::Status failure_;
  int once_ = 1;
};

}  // namespace evenshard

#endif  // EVENSHARD_TESTS_SIMULATION_MACHINES_SIM_DISK_H_
