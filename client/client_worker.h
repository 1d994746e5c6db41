#ifndef EVENSHARD_CLIENT_CLIENT_WORKER_H_
#define EVENSHARD_CLIENT_CLIENT_WORKER_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <stop_token>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "common/base/clock.h"
#include "common/checkpoint/states_by_name.h"
#include "common/control/view/view_link.h"
#include "common/placement/planned_config.h"
#include "worker/exchange/core/exchange_round.h"
#include "worker/exchange/core/program_exchange.h"
#include "worker/exchange/core/schedule_policy.h"
#include "worker/exchange/core/worker_state/worker_state.h"
#include "worker/exchange/grpc/exchange.h"

namespace evenshard {

// A worker of client/evenshard.h: an exchange, with shards or in a ring, with its memory. That
// header describes each method. Not thread-safe, except for Interrupt.
class ClientWorker {
 public:
  // `coordinator`: its address, or "" for a run without views. REQUIRES: config.has_model().
  static absl::StatusOr<std::unique_ptr<ClientWorker>> Create(PlannedConfig config, int rank,
                                                              const std::string& coordinator);
  ~ClientWorker();

  const PlannedConfig& config() const { return config_; }
  const SchedulePolicy& schedule() const { return schedule_; }
  bool waits_for_workers() const { return config_.proto().update().policy() == Update::SYNC; }
  bool follows_views() const { return views_ != nullptr; }
  int rank() const { return rank_; }
  void* parameters(int tensor) {
    return reinterpret_cast<char*>(buffers_.parameters.data()) + TensorAt(tensor).parameters_begin;
  }
  void* gradients(int tensor) {
    return reinterpret_cast<char*>(buffers_.gradients.data()) + TensorAt(tensor).gradient_begin;
  }
  float* assigned(int tensor) { return buffers_.gradients.data() + TensorAt(tensor).offset; }
  bool parameters_are_exact() const;
  int64_t iteration() const;
  int64_t assignments() const;
  bool joined_late() const { return joined_late_; }
  ExchangeRound::Phase phase() const;
  bool IsPushed(int tensor) const;
  int Received(int tensor) const;
  uint64_t Updates(int tensor) const;
  bool AllAbsent(int tensor) const;
  bool HasFailed() const { return exchange_ != nullptr && !exchange_->failure().ok(); }
  double LearningRate(int tensor) const;

  absl::Status Join();
  absl::Status SetWeight(float weight);
  absl::Status Begin(bool contributes, std::vector<Hyperparameters> by_tensor);
  absl::Status BeginAssignment(int array, std::vector<uint64_t> steps);
  // After an error none of them has been pushed.
  absl::Status Push(absl::Span<const int> tensors, Contribution contribution);
  absl::Status Wait(int tensor);
  absl::Status WaitAll();
  absl::Status PushPull(std::vector<Hyperparameters> by_tensor);
  absl::Status Pull();
  absl::Status PullState(int array, float* const* out, uint64_t* steps);
  // Replaces `value` by the mean over the workers. `place` is in the caller's program.
  absl::Status Mean(const std::string& place, absl::Span<double> value);
  absl::Status KeepState(StatesByName states);
  absl::Status TakeState();
  const StatesByName& taken_states() const { return taken_states_; }
  // Says what this worker keeps by itself, or why it cannot be sent now.
  using StateGiver = std::function<absl::StatusOr<WorkerState>()>;
  void SetStateGiver(StateGiver give) { give_state_ = std::move(give); }
  absl::Status ReceiveState(const WorkerState::Place& place);
  absl::Status Resume();
  absl::Status Leave(const char* error);
  void Interrupt() { stop_.request_stop(); }

  // Since it joined: iterations of training, the time in which it waited for parameters, and what
  // it has exchanged.
  uint64_t iterations() const { return iterations_; }
  absl::Duration waited() const { return waited_; }
  TrainingExchange::Traffic traffic() const;

 private:
  ClientWorker(PlannedConfig config, int rank, const std::string& coordinator,
               Exchange::Buffers buffers);

  const Tensor& TensorAt(int tensor) const { return config_.model().tensors()[tensor]; }

  // Errors: FAILED_PRECONDITION if the worker has not joined or has left.
  absl::Status CheckJoined() const;
  // By tensor, for the next iteration; null for the config's. Errors: those of CheckJoined;
  // INVALID_ARGUMENT for a negative rate or none at all.
  absl::Status SetHyperparameters(std::vector<Hyperparameters> by_tensor);
  // Runs a call that waits for parameters, and counts the time and the iteration that it ends. The
  // exchange asks the interrupt check meanwhile.
  absl::Status Await(absl::FunctionRef<absl::Status()> call);
  // Runs any other call that may block, in a thread of its own if this one has something to do
  // meanwhile.
  absl::Status Aside(absl::FunctionRef<absl::Status()> call);
  // Called in the program's thread while a call waits.
  void WhileWaiting();
  // Replaces an error whose cause is that the run has gone back to a checkpoint.
  absl::Status Explained(const absl::Status& status) const;
  // Receives the parameters from which this worker continues: at the start of a run with
  // model.from_workers worker 0's `initial` ones.
  absl::Status TakeParameters(absl::Span<const float> initial);
  // What was assigned has left. Gives back the memory that gradients do not need.
  void EndAssignment();

  const PlannedConfig config_;
  const SchedulePolicy schedule_;
  const int rank_;
  const RealClock clock_;
  Exchange::Buffers buffers_;
  std::stop_source stop_;
  std::unique_ptr<ViewLink> views_;  // null without views; outlives the exchange
  std::unique_ptr<ProgramExchange> exchange_;
  // The parameters of worker 0, as they lie in its memory, for a run that may go back to them.
  std::vector<float> initial_;
  bool is_assigning_ = false;
  bool runs_aside_ = false;  // a call runs in a thread of its own
  bool has_left_ = false;
  bool has_joined_ = false;  // Join has succeeded, or a Resume after it
  bool joined_late_ = false;
  StatesByName taken_states_;  // the latest
  StateGiver give_state_;      // null if there is nothing to send
  uint64_t iterations_ = 0;
  absl::Duration waited_;
};

}  // namespace evenshard

#endif  // EVENSHARD_CLIENT_CLIENT_WORKER_H_
