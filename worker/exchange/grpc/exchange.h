#ifndef EVENSHARD_WORKER_EXCHANGE_GRPC_EXCHANGE_H_
#define EVENSHARD_WORKER_EXCHANGE_GRPC_EXCHANGE_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <stop_token>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "common/base/clock.h"
#include "common/base/float_buffer.h"
#include "common/checkpoint/states_by_name.h"
#include "common/control/view/view_link.h"
#include "common/placement/planned_config.h"
#include "proto/worker_usage.pb.h"
#include "worker/exchange/core/exchange_core.h"
#include "worker/exchange/core/gradient_encoder.h"
#include "worker/exchange/core/program_exchange.h"
#include "worker/exchange/grpc/chunk_transfer.h"
#include "worker/exchange/grpc/mean_calls.h"
#include "worker/exchange/grpc/persistent_calls.h"
#include "worker/exchange/grpc/shard_connection.h"
#include "worker/exchange/grpc/worker_state_calls.h"

namespace evenshard {

// Logs a stall that is news: which shards are waited for, or that the iteration goes on.
void LogStall(const Stall& stall);

// A worker's side of the exchange with all shards: membership, pull and push-pull. Buffers have the
// layout that Model defines. ExchangeCore decides what follows when a connection breaks or a view
// comes, and its ExchangeRound owns the iteration; this class gives them gRPC, threads and memory.
//
//   absl::Status Train(const PlannedConfig& config, int rank, int64_t iterations) {
//     ASSIGN_OR_RETURN(Exchange::Buffers buffers, Exchange::AllocateBuffers(config, {}));
//     ASSIGN_OR_RETURN(const std::unique_ptr<Exchange> exchange,
//                      Exchange::Connect({.config = &config, .rank = rank, .buffers = &buffers}));
//     const absl::Span<float> parameters = buffers.parameters.span();
//     const absl::Span<float> gradients = buffers.gradients.span();
//     RETURN_IF_ERROR(exchange->Pull(parameters));
//     for (int64_t i = exchange->next_iteration(); i < iterations; ++i) {
//       ComputeGradients(parameters, gradients);
//       RETURN_IF_ERROR(exchange->PushPull(i, gradients, parameters));
//     }
//     return exchange->Leave(absl::OkStatus());
//   }
//
// Not thread-safe, except for the methods that say otherwise.
class Exchange final : public ProgramExchange {
 public:
  // Memory for the gradients and the parameters of the whole model, as Model lays them out: floats
  // where a tensor is FLOAT32. It can be shared with the shards of this host if the config allows
  // that and the system provides such memory.
  struct Buffers {
    FloatBuffer gradients;
    FloatBuffer parameters;
  };

  struct Options {
    const PlannedConfig* config = nullptr;  // must outlive the exchange
    int rank = 0;
    const Clock* clock = nullptr;  // must outlive the exchange; null for the system's clock
    // The shards' addresses, or none to use the config's. Tests whose ports are 0 set them.
    std::vector<std::string> addresses = {};
    // Where the run's views come from; null for a run without views. Must outlive the exchange,
    // which starts it.
    ViewLink* view_link = nullptr;
    // The only buffers that PushPull and Begin will be given; null if the caller does not know
    // them. Shards of this host read and write in them if they can be shared, and may still do so
    // after an error. Another exchange then needs other buffers.
    Buffers* buffers = nullptr;
    Trace* trace = nullptr;  // records pushes and pulls (see ChunkStates); null for no trace
    // Called when Pull or a push-pull has written a range of the parameters, before any wait for
    // that range ends. Must be thread-safe.
    ChunkTransfer::OnWritten on_parameters_written = [](int64_t, int64_t) {};
    // Called by a thread of the exchange while a wait for the shards makes no progress (see
    // ExchangeRound::CheckProgress). Must not call the exchange.
    std::function<void(const Stall&)> on_stall = LogStall;
    // Called about every 100 ms by a thread that waits for a layer, a tensor or all of them. Of the
    // exchange it may call OfferState only. Null: nothing is called.
    std::function<void()> while_waiting = nullptr;
    // Makes blocked calls, and later ones, return CANCELLED soon.
    std::stop_token stop = {};
  };

  // Allocates buffers for an exchange with shards at `addresses` (see Options). Errors:
  // RESOURCE_EXHAUSTED.
  static absl::StatusOr<Buffers> AllocateBuffers(const PlannedConfig& config,
                                                 const std::vector<std::string>& addresses);

  // Waits until every shard is up, opens the streams and takes the rank at each shard. With views
  // it first waits until the run has taken this worker in. Errors: DEADLINE_EXCEEDED with the names
  // of the shards that were not up within limits.startup_seconds, with views within
  // limits.exchange_seconds; a shard's refusal (see Shard::Join) with its name; those of
  // GradientEncoder::Create.
  static absl::StatusOr<std::unique_ptr<Exchange>> Connect(const Options& options);

  // Calls Leave with an error if the caller has not called it.
  ~Exchange() override;

  // Also above 0 if Initialize has taken iteration 0.
  int64_t next_iteration() const override { return static_cast<int64_t>(round().next_iteration()); }

  uint64_t view_number() const override { return core_.view_number(); }
  std::vector<WorkerSet> worker_sets() const override { return core_.worker_sets(); }
  bool went_back() const override { return core_.went_back(); }
  // Errors: those of Connect; FAILED_PRECONDITION if the run has not gone back.
  absl::StatusOr<int64_t> Resume() override;

  // Fetches all parameters. Blocks. A worker that joins a run under way or is_behind() waits until
  // the others have completed the iteration before its next one. Errors name the shard that failed.
  absl::Status Pull(absl::Span<float> parameters) override;

  // Calls `take` for every chunk that has the array (StoredChunk::array), from several threads at
  // the same time, with its values as float32. Under SYNC, between iterations, all are of this
  // moment, since no other worker can go on. Blocks. Errors, which do not end the exchange: those
  // of Pull; FAILED_PRECONDITION if an iteration has begun; ABORTED if a chunk is at another
  // iteration than this worker.
  absl::Status PullState(
      int array,
      const std::function<absl::Status(const Chunk&, const ParameterChunk& message)>& take)
      override;

  // With model.from_workers, in place of Pull: at the start of the run all workers receive the
  // `initial` parameters of worker 0; those of others are ignored. `initial` must lie in the memory
  // that PushPull takes as gradients. Errors: those of PushPull; DEADLINE_EXCEEDED if worker 0 has
  // given none within limits.exchange_seconds.
  absl::Status Initialize(absl::Span<const float> initial, absl::Span<float> parameters) override;

  // Sets the learning rates, by tensor, that replace the config's from the next iteration on; none
  // to use the config's. Under SYNC all workers must give the same ones.
  void SetHyperparameters(std::vector<Hyperparameters> by_tensor) override {
    hyperparameters_ = std::move(by_tensor);
  }

  // How much this worker's gradients, which have been multiplied by it, count in the mean from the
  // next iteration on.
  void SetWeight(float weight) override { weight_ = weight; }

  // Pushes every chunk of `gradients`, front layers first, and receives the updated chunks into
  // `parameters`. If `gradients` is empty, the worker takes part without contributing (`skip`).
  // Blocks. The buffers are in use until it returns or, after an error, until Leave returns.
  //
  // Errors end this exchange, unless went_back() is true. They are: the reason and name of a shard
  // whose stream has ended for good (see ExchangeCore);
  // DEADLINE_EXCEEDED with the names of the shards that have not answered for longer than
  // limits.exchange_seconds; OUT_OF_RANGE for a parameter that exchange.parameter_encoding cannot
  // represent.
  absl::Status PushPull(int64_t iteration, absl::Span<const float> gradients,
                        absl::Span<float> parameters) override;

  // These methods do the same layer by layer. Call Begin, then Push once for each layer with
  // tensors, then AwaitLayer for each of them or AwaitAll, which ends the iteration. After its Push
  // a layer's parameters may change until they have been received. Its gradients must not change
  // until all layers have been received. Begin and Push do not block. Pushes leave when the
  // SchedulePolicy lets them; small chunks wait for others to share a message with, until all are
  // pushed or a caller waits. Errors: those of PushPull, and those of ExchangeRound for calls out
  // of order.
  absl::Status Begin(int64_t iteration, absl::Span<const float> gradients,
                     absl::Span<float> parameters) override;
  absl::Status Push(int layer) override;
  void Flush() override { core_.round().Flush(); }
  absl::Status AwaitLayer(int layer) override { return Settle(core_.round().AwaitLayer(layer)); }
  absl::Status AwaitAll() override { return Settle(core_.round().AwaitAll()); }
  bool is_behind() const override { return round().is_behind(); }
  bool is_begun() const override { return round().phase() != ExchangeRound::Phase::kIdle; }

  // Begins an exchange of another kind. `pushed` has the layout of gradients.
  absl::Status Begin(ExchangeKind kind, absl::Span<const float> pushed,
                     absl::Span<float> parameters) override;
  // The same as Push for single tensors, in this order. Without gradients they count as zeros.
  absl::Status PushTensors(absl::Span<const int> tensors, Contribution contribution) override {
    return core_.round().Push(tensors, contribution);
  }
  absl::Status AwaitTensor(int tensor) override {
    return Settle(core_.round().AwaitTensor(tensor));
  }
  // The owner of the iteration, which knows what of it is pushed and received.
  const ExchangeRound& round() const { return core_.round(); }
  ExchangeRound::Phase phase() const override { return round().phase(); }
  bool TensorPushed(int tensor) const override { return round().TensorPushed(tensor); }
  bool TensorAnswered(int tensor) const override { return round().TensorAnswered(tensor); }
  bool TensorAllAbsent(int tensor) const override { return round().TensorAllAbsent(tensor); }
  uint64_t UpdatesOf(int tensor) const override { return round().UpdatesOf(tensor); }
  AssignmentCounts assignments() const override { return round().assignments(); }
  absl::Status failure() const override { return round().failure(); }

  // The mean of a value over the workers, which all give it between the same two iterations and in
  // the same order; see MeanCalls::Ask.
  absl::StatusOr<std::vector<double>> Mean(const std::string& place,
                                           const std::vector<double>& value) override {
    return means_.Ask(round().next_iteration(), place, value);
  }

  // Gives what counts beside the model before the next exchange, or takes what the others have
  // given (RegisteredStates). Block while no process has slot 0; TakeState until there is something
  // to take. Errors: those of PersistentCalls and of Shard::KeepState and TakeState.
  absl::Status KeepState(StatesByName states) override;
  absl::StatusOr<StatesByName> TakeState() override;

  // See WorkerStateCalls. OfferState counts it as progress if another call waits for a worker that
  // needs its state.
  absl::Status ReceiveState(const WorkerState::Place& place) override {
    return states_.Receive(round().next_iteration(), place);
  }
  void OfferState(WorkerState::Make make, absl::FunctionRef<void()> meanwhile) override {
    const auto note = [&] {
      core_.round().NoteProgress();
      meanwhile();
    };
    if (states_.Offer(round().next_iteration(), make, note)) core_.round().NoteProgress();
  }

  // Sends shard 0 what this worker uses, for the statistics. Blocks for a few seconds at most, and
  // returns CANCELLED soon after `stop` is requested. May be called from any thread until Leave.
  // Errors, which do not end the exchange: the shard's refusal (see Shard::Report), or why the call
  // failed.
  absl::Status Report(const WorkerUsage& usage, const std::stop_token& stop) override;

  // Gives up the rank at every shard and ends the streams. The worker has finished if `outcome` is
  // OK, and failed if it is an error. With views one that has finished waits until all have. Errors
  // name the shards that could not be reached; with views they are those of PushPull, and the
  // exchange goes on if went_back() is true.
  absl::Status Leave(const absl::Status& outcome) override;

  // Only sends Leave's message, for a process that must end at once. May be called from any thread.
  absl::Status SendLeave(const absl::Status& outcome, absl::Duration timeout) override;

  Traffic traffic() const override { return round().traffic(); }

 private:
  // Passes the core's requests on to the slots' connections.
  class Transport final : public ExchangeTransport {
   public:
    explicit Transport(Exchange* exchange) : connections_(exchange->connections_) {}
    void Connect(const Attempt& attempt) override { connections_[attempt.slot]->Connect(attempt); }
    void Disconnect(int slot) override { connections_[slot]->Disconnect(); }
    void Wake(int slot) override { connections_[slot]->Wake(); }

   private:
    std::vector<std::unique_ptr<ShardConnection>>& connections_;
  };
  // Passes the views on as long as the exchange is there.
  struct ViewListener;

  Exchange(const Options& options, std::unique_ptr<GradientEncoder> encoder);

  // Calls CheckProgress and Tick once per period until `stop` is requested.
  void Watch(const std::stop_token& stop);
  // Tells the coordinator this worker's state (ExchangeCore::State).
  void Announce();
  // Tells slot 0's process ExchangeCore::KeptAtEnd, once in each view. Blocks for half a second at
  // most.
  void RetellKept();
  // The slot's process in the view that is followed, or null.
  std::shared_ptr<ShardControl> ControlInView(int slot) const;
  // Ends the run if another worker waits in a mean for this one, which waits for exchange
  // `exchange`, the training's `iteration`: neither would go on.
  void CheckMeans(uint64_t exchange, uint64_t iteration);
  // After a wait for answers: ends the iteration if everything is answered, once the view is new
  // enough and gRPC has given the lent gradients back.
  absl::Status Settle(const absl::Status& awaited);
  // Receives the parameters from which this worker continues (ParameterBootstrap).
  absl::Status Bootstrap(bool brings_parameters, absl::Span<const float> initial,
                         absl::Span<float> parameters);
  absl::Status BeginAt(uint64_t iteration, ExchangeKind kind, absl::Span<const float> gradients,
                       absl::Span<float> parameters);
  using Take = std::function<absl::Status(const Chunk&, const ParameterChunk&)>;
  // Pulls an array of a slot's chunks, from one process after another while the slot moves.
  absl::Status PullSlot(int slot, int array, const Take& take);

  // Constant after construction.
  const PlannedConfig& config_;
  const int rank_;
  const Clock& clock_;
  const std::stop_token stop_;
  const std::function<void(const Stall&)> on_stall_;
  const Buffers* const shared_buffers_;  // null if they cannot be shared
  ViewLink* const view_link_;

  std::vector<Hyperparameters> hyperparameters_;  // by tensor, or empty
  float weight_ = 1;
  bool leave_called_ = false;
  uint64_t retold_in_ = 0;  // the view; used by the watcher

  // Thread-safe.
  Transport transport_{this};
  ExchangeCore core_;
  ChunkTransfer transfer_;
  absl::Mutex announce_mutex_;  // held while the state is sent, so that the latest is sent last

  // Destroyed first, since they use the other members.
  std::vector<std::unique_ptr<ShardConnection>> connections_;  // by slot
  PersistentCalls calls_;
  MeanCalls means_;
  WorkerStateCalls states_;
  const std::stop_callback<std::function<void()>> on_stop_;  // fails the exchange
  std::shared_ptr<ViewListener> listener_;
  std::jthread watcher_;
};

}  // namespace evenshard

#endif  // EVENSHARD_WORKER_EXCHANGE_GRPC_EXCHANGE_H_
