#ifndef EVENSHARD_TESTS_SIMULATION_WORKER_PROCESS_H_
#define EVENSHARD_TESTS_SIMULATION_WORKER_PROCESS_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "common/control/view/view_link.h"
#include "tests/simulation/context.h"
#include "tests/simulation/pushed_gradients.h"
#include "tests/simulation/worker_transport.h"
#include "worker/data/order/dealing.h"
#include "worker/exchange/core/exchange_core.h"
#include "worker/exchange/core/parameter_bootstrap.h"
#include "worker/exchange/core/slot_calls.h"

namespace evenshard {

// A worker process: the real ExchangeCore, and in the place of the training loop one that computes
// nothing but numbers that follow from what the worker has read and from the parameters.
class WorkerProcess final : private WorkerTransport::Buffers {
 public:
  WorkerProcess(Context* context, int rank, NodeRef node, uint64_t incarnation);

  int rank() const { return rank_; }
  // Whether the worker has trained to the end, and everyone knows.
  bool is_done() const { return step_ == Step::kDone; }

  // What the worker does at the moment, for people. Called at the end of a simulation.
  std::string Describe();

  // After each event of the process: does what has become possible.
  void AfterEvent();

 private:
  enum class Step {
    kConnecting,
    kPulling,
    kComputing,
    kExchanging,
    kLeaving,
    kDone,
  };

  // The call that fetches a slot's chunks.
  struct Pull {
    enum class State { kDue, kUnderWay, kPaused, kDone };
    SlotPull call;
    State state = State::kDue;
  };
  // The call that tells a slot that the worker leaves.
  struct Farewell {
    SlotLeave call;
    bool is_over = false;
  };

  // See WorkerTransport::Buffers.
  std::string Gradient(const GradientHeader& header) override;
  absl::Status TakeParameters(int slot, const ParameterHeader& header, const std::string& data,
                              int primary) override;

  // By the worker's own clock.
  absl::Time Now() const { return context_.world.clock(node_.node).Now(); }
  void OnView(const View& view);
  // Says where the worker stands, if that has changed.
  void Announce();
  void Tick();
  // Gives up where a planted fault says so.
  void GiveUpAsPlanted();
  // Does one step if it is possible. Returns whether it was.
  bool Advance();
  // Does the next step of bootstrap_, which may be the first one.
  void Bootstrap();
  void PullSlots(absl::Time not_before);
  void StartPull(int slot);
  void Pulled(int slot, const WorkerTransport::Answer& answer);
  // Tells every slot that this worker leaves, finished or with an error.
  void Leave(const absl::Status& outcome);
  void Tell(int slot, const LeaveRequest& message);
  void Told(int slot, const LeaveRequest& message, const absl::Status& status);
  void BeginIteration();
  std::vector<int> AllTensors() const;
  void PushTensors(const std::vector<int>& tensors);
  void PushNext();
  absl::StatusOr<Dealing> Deal() const;
  // When training ends, and which images are this worker's in the iteration.
  absl::StatusOr<uint64_t> DealImages();
  // Computes and pushes everything.
  void ComputeAndPush(ExchangeKind kind, bool contributes);
  // What iteration_ is for.
  void PushIteration();
  void GiveUp(const absl::Status& failure);

  Context& context_;
  const int rank_;
  const NodeRef node_;
  const uint64_t incarnation_;
  const std::unique_ptr<ViewLink> link_;
  std::string announced_;  // serialised
  WorkerTransport transport_;
  ExchangeCore core_;

  Step step_ = Step::kConnecting;
  View view_;
  absl::Time lacks_slot_since_ = absl::InfiniteFuture();
  absl::Time untaken_since_ = absl::InfiniteFuture();
  std::optional<WorkerSet> first_worker_set_;
  uint64_t attempt_ = 0;  // counts what makes outstanding events of the loop void
  std::optional<ParameterBootstrap> bootstrap_;  // while it has steps left
  bool has_pulled_ = false;                      // for the bootstrap
  std::vector<Pull> pulls_;                      // by slot, and so the next
  std::vector<Farewell> farewells_;
  std::optional<absl::Status> gives_up_;  // why
  uint64_t iteration_ = 0;
  std::optional<Dealing::Share> share_;
  std::vector<int> to_push_;     // tensors, the last one first
  uint32_t assigned_array_ = 0;  // of the state
  bool contributes_ = true;      // has gradients, or values that are assigned
  PushedGradients gradients_;
  std::vector<std::vector<float>> parameters_;  // by chunk
};

}  // namespace evenshard

#endif  // EVENSHARD_TESTS_SIMULATION_WORKER_PROCESS_H_
