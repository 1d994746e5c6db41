#ifndef EVENSHARD_TESTS_SIMULATION_CONTROL_ETCD_RUNTIME_H_
#define EVENSHARD_TESTS_SIMULATION_CONTROL_ETCD_RUNTIME_H_

#include <functional>
#include <memory>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "common/control/etcd/etcd_machine.h"
#include "tests/simulation/context.h"

namespace evenshard {

// A process's way to the simulated etcd, in the place of EtcdThreads: machines run in events of the
// process's node, and each call has a connection of its own.
class SimEtcdRuntime final : public EtcdRuntime {
 public:
  // `context` must outlive this, and what is made by it.
  SimEtcdRuntime(Context* context, NodeRef node) : context_(*context), node_(node) {}

  std::unique_ptr<EtcdRunner> MakeRunner(EtcdMachine* machine) override;
  std::unique_ptr<EtcdWatchStream> Watch(const etcdserverpb::WatchCreateRequest& request,
                                         std::function<void()> on_news) override;
  absl::Status Revoke(int64_t lease) override;
  absl::Duration timeout() const override { return absl::Milliseconds(500); }
  const Clock& clock() const override { return context_.world.clock(node_.node); }

  NodeRef node() const { return node_; }
  World& world() const { return context_.world; }
  // Has `done` called with etcd's answer, or with an error once the timeout is over.
  void Call(const EtcdRequest& request, std::function<void(const EtcdAnswer&)> done);

 private:
  std::shared_ptr<Connection> Connect() const;
  // What planted faults make of a request.
  EtcdRequest Tampered(EtcdRequest request) const;

  Context& context_;
  const NodeRef node_;
};

}  // namespace evenshard

#endif  // EVENSHARD_TESTS_SIMULATION_CONTROL_ETCD_RUNTIME_H_
