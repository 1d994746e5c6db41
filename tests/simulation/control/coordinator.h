#ifndef EVENSHARD_TESTS_SIMULATION_CONTROL_COORDINATOR_H_
#define EVENSHARD_TESTS_SIMULATION_CONTROL_COORDINATOR_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "common/control/view/view_coordinator.h"
#include "common/control/view/view_link.h"
#include "proto/view.pb.h"
#include "tests/simulation/context.h"

namespace evenshard {

// Where the views of a simulated run come from: launch (LaunchHost), or etcd and the candidates
// that it elects (EtcdHost). This class has what the simulation sees of either.
class Coordinator {
 public:
  struct Options {
    Context* context = nullptr;
    NodeRef node;
    uint64_t run = 0;
    // launch kills a process, and starts one again, a while later.
    std::function<void(int node, const std::string& why)> kill;
    std::function<void(int node)> restart;
  };

  static std::unique_ptr<Coordinator> Start(Options options);
  virtual ~Coordinator() = default;

  uint64_t run() const { return options_.run; }
  absl::Duration silence() const { return silence_; }

  // A process's link to this coordinator.
  virtual std::unique_ptr<ViewLink> MakeLink(NodeRef node) = 0;

  // launch: a process is started, or has ended; `why` is empty if it has succeeded.
  virtual void Started(int /*node*/) {}
  virtual void Ended(NodeRef, const std::string& /*why*/, bool /*by_signal*/) {}
  // The coordinator does nothing until then.
  virtual void StandStill(absl::Time until) = 0;

  const View& view() const { return published_; }
  const absl::Status& failure() const { return failure_; }
  bool finished() const { return finished_; }
  // Whether every slot has had a whole copy at once.
  bool has_had_copies() const { return has_had_copies_; }
  // Whether there is a coordinator that can take the folder of checkpoints.
  virtual bool may_lock_folder() const { return true; }
  // With etcd: how many processes have lost their lease; whether another term has followed the
  // first one, and for how long at most no ps was there that made the views.
  virtual int lost_leases() const { return 0; }
  virtual bool was_replaced() const { return false; }
  virtual absl::Duration longest_absence() const { return absl::ZeroDuration(); }

  virtual void AfterEvent() = 0;

 protected:
  explicit Coordinator(Options options);

  absl::Time Now() const { return context_.world.clock(options_.node.node).Now(); }
  // Another view is the present one.
  void Publish(const View& view);
  // What planted faults make of what a process says, and of a view.
  void Tamper(ProcessState* state) const;
  void Tamper(View* view) const;

  const Options options_;
  Context& context_;
  absl::Duration silence_;
  View published_;
  absl::Status failure_;
  bool finished_ = false;

 private:
  bool has_had_copies_ = false;
  // Whether the run could read the newest checkpoint when it began.
  const bool reads_newest_;
};

}  // namespace evenshard

#endif  // EVENSHARD_TESTS_SIMULATION_CONTROL_COORDINATOR_H_
