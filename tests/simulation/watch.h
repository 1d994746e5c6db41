#ifndef EVENSHARD_TESTS_SIMULATION_WATCH_H_
#define EVENSHARD_TESTS_SIMULATION_WATCH_H_

#include <string>

#include "absl/time/time.h"
#include "tests/simulation/calm.h"

namespace evenshard {

struct Context;

// What must hold at every moment of a simulated run, beside what the oracle judges of its history:
// the checkpoints on the disk are few, one of them is young, and no other run can take their
// folder; a process has no more slots in its memory than it was meant to; nobody counts as silent
// who is well; and the run goes on although shards do not reach each other.
class Watch {
 public:
  // `context` must outlive the watch.
  explicit Watch(Context* context);

  // The run is started. It looks around now and then from now on.
  void Start();
  // Something bad happens until then, so that the checkpoints may get older. `goes_on`: the run
  // must go on meanwhile.
  void Struck(absl::Time until, bool goes_on);
  // Returns for how long at a stretch, within the latest `window`, nothing kept the run from going
  // on: enough ps ran for all slots, nobody was cut off, stopped or slow, and the disk was well.
  absl::Duration LongestCalm(absl::Duration window) const;
  // The coordinator is about to count a node as gone because nothing was heard of it.
  void CountsAsSilent(int node);

 private:
  void Look();
  void LookAtFolder();
  void LookAtLock();
  void LookAtAge();
  void LookAtMemory();
  void LookAtProgress();
  bool IsCalm() const;
  // Whether all processes run, and the view has a primary for each slot and nobody but workers that
  // train.
  bool IsWhole() const;

  Context& context_;
  bool started_ = false;
  Calm calm_;
  absl::Time struck_until_ = absl::InfinitePast();
  // Since when a checkpoint is due, and how many changes of chunks and checkpoints there were.
  absl::Time since_;
  int changes_ = 0;
  int checkpoints_ = 0;
  std::string roles_;
  // Until when the run may stand still, since when it does, and the view and the number of changes
  // since then.
  absl::Time stopped_until_ = absl::InfinitePast();
  absl::Time stands_since_;
  uint64_t stands_in_view_ = 0;
  int stands_at_ = 0;
  absl::Time without_view_ = absl::InfinitePast();  // when the run last had not begun
  absl::Time locked_;  // when the folder was last locked, or could not be
};

}  // namespace evenshard

#endif  // EVENSHARD_TESTS_SIMULATION_WATCH_H_
