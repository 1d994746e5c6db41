#ifndef EVENSHARD_WORKER_RING_GRPC_RING_EXCHANGE_H_
#define EVENSHARD_WORKER_RING_GRPC_RING_EXCHANGE_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "common/base/clock.h"
#include "common/base/pending_count.h"
#include "common/net/listener.h"
#include "common/placement/plan/ring_plan.h"
#include "common/placement/planned_config.h"
#include "proto/ring.grpc.pb.h"
#include "worker/exchange/core/program_exchange.h"
#include "worker/exchange/core/stall_watch.h"
#include "worker/exchange/grpc/lent_memory.h"
#include "worker/ring/core/ring_notes.h"
#include "worker/ring/core/ring_part.h"
#include "worker/ring/core/ring_round.h"
#include "worker/ring/core/ring_tensors.h"
#include "worker/ring/grpc/ring_sender.h"
#include "worker/ring/grpc/ring_service.h"

namespace evenshard {

// Where a ring begins, as the views of a run with recovery say. By default, as one without.
struct RingStart {
  std::vector<int> ranks = {};  // of the ring's workers, in order; empty: all of the config
  uint64_t generation = 0;      // View::generation, or 0
  int64_t iteration = 0;        // the first
  std::string checkpoint = {};  // View::checkpoint
};

// A worker's exchange in a ring, without shards (topology: RING). It listens for its predecessor,
// and connects to its successor. RingRound owns the iteration; this class gives it gRPC, threads
// and memory.
//
// Nothing survives the loss of a worker: each one that notices it, or that fails by itself, tells
// both neighbours, so that the reason travels round the ring and ends the run everywhere.
//
// Not thread-safe, except for the methods that say otherwise.
class RingExchange final : public ProgramExchange, public RingSender::Handler {
 public:
  struct Options {
    const PlannedConfig* config = nullptr;  // must outlive the exchange
    int rank = 0;
    const Clock* clock = nullptr;  // must outlive the exchange
    // The buffers of all iterations, of Model::buffer_size() floats. Sums are made in `gradients`.
    absl::Span<float> gradients = {};
    absl::Span<float> parameters = {};
    // Called when a range of the parameters has been written, before any wait for it ends. Must be
    // thread-safe.
    std::function<void(int64_t begin, int64_t count)> on_parameters_written = [](int64_t, int64_t) {
    };
    // Called by a thread of the exchange while a wait makes no progress, see
    // RingRound::CheckProgress. Must not call the exchange.
    std::function<void(const Stall&)> on_stall = [](const Stall&) {};
    // Called about every 100 ms by a thread that waits for a layer, a tensor or all of them. Must
    // not call the exchange. Null: nothing is called.
    std::function<void()> while_waiting = nullptr;
    // Makes blocked calls, and later ones, return CANCELLED soon.
    std::stop_token stop = {};
    RingStart start = {};
  };

  // Listens, waits until the successor is up, until the predecessor has joined, and until all
  // workers are that far, each for at most limits.startup_seconds. Errors: UNAVAILABLE if it cannot
  // listen; DEADLINE_EXCEEDED with the name of a worker that was not there in time; a neighbour's
  // refusal with its name; RESOURCE_EXHAUSTED.
  static absl::StatusOr<std::unique_ptr<RingExchange>> Connect(const Options& options);

  // Calls Leave with an error if the caller has not called it. The buffers are not used any more.
  ~RingExchange() override;

  int64_t next_iteration() const override { return static_cast<int64_t>(round_->iteration()); }
  // There are no views, so a run has the same workers from its beginning to its end.
  uint64_t view_number() const override { return 0; }
  std::vector<WorkerSet> worker_sets() const override;
  bool went_back() const override { return false; }
  absl::StatusOr<int64_t> Resume() override;

  // Writes the initial parameters, which each worker makes by itself, or reads those of the
  // checkpoint, and with them the state of this worker's part. Errors: those of InitialParameters,
  // CheckpointReader and RingPart::Start.
  absl::Status Pull(absl::Span<float> parameters) override;

  // The same as Exchange's, with the buffers of the options. Gradients have changed when an
  // iteration is over, since sums take their place. Errors end the run for all workers: why this or
  // another worker has failed or was lost, with its rank and that of the worker that noticed it;
  // DEADLINE_EXCEEDED if a neighbour has sent nothing for limits.exchange_seconds and does not wait
  // itself.
  absl::Status PushPull(int64_t iteration, absl::Span<const float> gradients,
                        absl::Span<float> parameters) override;
  absl::Status Begin(int64_t iteration, absl::Span<const float> gradients,
                     absl::Span<float> parameters) override;
  absl::Status Begin(ExchangeKind kind, absl::Span<const float> pushed,
                     absl::Span<float> parameters) override;
  absl::Status Push(int layer) override { return round_->Push(layer); }
  void Flush() override {}  // nothing waits to share a message
  absl::Status AwaitLayer(int layer) override;
  absl::Status AwaitAll() override;
  bool is_begun() const override { return round_->is_begun(); }
  bool is_behind() const override { return false; }

  // All workers begin together, so that nobody needs another one's state.
  absl::Status ReceiveState(const WorkerState::Place& place) override {
    return absl::NotFoundError("no worker joins a ring that is under way");
  }
  void OfferState(WorkerState::Make make, absl::FunctionRef<void()> meanwhile) override {}

  // For programs that bring the model, of which each tensor is a layer of its own (RingTensors).
  ExchangeRound::Phase phase() const override { return tensors_->phase(); }
  bool TensorPushed(int tensor) const override { return tensors_->IsPushed(tensor); }
  bool TensorAnswered(int tensor) const override { return tensors_->IsAnswered(tensor); }
  bool TensorAllAbsent(int tensor) const override { return tensors_->IsAllAbsent(tensor); }
  uint64_t UpdatesOf(int tensor) const override { return tensors_->updates(tensor); }
  AssignmentCounts assignments() const override;
  absl::Status failure() const override { return round_->failure(); }
  void SetHyperparameters(std::vector<Hyperparameters> by_tensor) override {
    hyperparameters_ = std::move(by_tensor);
  }
  void SetWeight(float weight) override { weight_ = weight; }
  absl::Status PushTensors(absl::Span<const int> tensors, Contribution contribution) override {
    return tensors_->Push(tensors, contribution);
  }
  absl::Status AwaitTensor(int tensor) override { return AwaitLayer(tensor); }
  absl::Status Initialize(absl::Span<const float> initial, absl::Span<float> parameters) override;
  // UNIMPLEMENTED: no worker has more than its own part of the state.
  absl::Status PullState(
      int array,
      const std::function<absl::Status(const Chunk&, const ParameterChunk&)>& take) override;
  // A note to all workers, of which each waits for those of the others. Errors: the failure of the
  // run; FAILED_PRECONDITION, which ends it, if another worker does something else.
  absl::StatusOr<std::vector<double>> Mean(const std::string& place,
                                           const std::vector<double>& value) override;
  absl::Status KeepState(StatesByName states) override;
  // NOT_FOUND: no worker joins a ring that is under way.
  absl::StatusOr<StatesByName> TakeState() override;

  // Keeps it for GetStats.
  absl::Status Report(const WorkerUsage& usage, const std::stop_token& stop) override;

  // If `outcome` is OK, waits until the successor has received everything or is gone, for at most
  // limits.exchange_seconds; otherwise tells both neighbours why the run ends. Then it closes all
  // connections.
  absl::Status Leave(const absl::Status& outcome) override;
  // May be called from any thread.
  absl::Status SendLeave(const absl::Status& outcome, absl::Duration timeout) override;

  Traffic traffic() const override { return round_->traffic(); }

  // This worker's part, which changes during iterations only.
  const RingPart& part() const { return *part_; }

 private:
  RingExchange(const Options& options, RingPlan plan);

  // "worker 1 (10.0.0.2:50051)".
  std::string NameOf(int rank) const;
  int Connections() const { return config_.proto().limits().connections(); }
  void MakeRound();
  // The two ways of Pull. Errors: those of Pull.
  absl::Status MakeInitial(absl::Span<float> parameters);
  absl::Status ReadCheckpoint(absl::Span<float> parameters);
  // An error that the successor has answered with, with its name.
  absl::Status OfSuccessor(const absl::Status& error) const;
  // The steps of Connect. Errors: those of Connect.
  absl::Status Start();
  absl::Status Listen();
  absl::Status AwaitUp(absl::Duration patience);
  absl::Status Join();
  absl::Status OpenStreams(absl::Duration patience);
  // Nobody begins before all have their streams, since one that fails tells its neighbours only.
  absl::Status AwaitRing(absl::Duration patience);

  // Calls one of the round's waits, and counts its time.
  absl::Status Await(absl::FunctionRef<absl::Status()> wait);
  // What GetStats answers. May be called from any thread.
  RingStats Stats() const;
  // Calls CheckProgress once per period until `stop` is requested.
  void Watch(const std::stop_token& stop);
  // Gives the others a note, and returns its number.
  absl::StatusOr<uint32_t> Give(RingNote note);
  // Where a worker gives a note: with the first thing of an iteration, or in a call of the
  // program's own, for which the others may be as late as they want.
  enum class Place : uint8_t { kBeginning, kBetween };
  // The same, and returns all workers' notes, by rank. Errors: at kBeginning DEADLINE_EXCEEDED,
  // with which the run fails, if another worker has not come there for limits.exchange_seconds.
  absl::StatusOr<std::vector<RingNote>> Exchanged(RingNote note, Place place);
  // This thread waits so long for a worker that has not begun an iteration.
  void CheckStall(const Stall& stall);
  // Another worker's note has come, which goes on to the successor unless it has been round.
  // Errors: INVALID_ARGUMENT, with which the run fails.
  absl::Status TakeNote(const RingNote& note);
  // Tells the successor a note, once the streams to it are open.
  void Pass(RingNote note);
  // Fails the run if another worker waits for a note of this one, which can give
  // none before the iteration is over that it waits for, or has finished although this one goes on.
  absl::Status CheckOthers();
  // Nothing has moved for limits.exchange_seconds or longer. Fails the run unless the predecessor,
  // or the successor if only what this worker sends is missing, waits itself, as all do but the one
  // at fault and its neighbours.
  void Blame(const Stall& stall);
  // Fails the run, with what this worker has noticed or was told, and tells both neighbours.
  void Fail(const absl::Status& status);
  void Lost(int rank, absl::string_view what);
  // The successor was not told a note. One that has finished, or that is lost, is the news of its
  // streams or of its successor; this call's end is the reason only if nothing else comes.
  void NotTold(const absl::Status& why);
  void CheckTold();
  // Tells both neighbours why the run ends, once.
  void Spread(const absl::Status& failure);
  // The same with the round's failure, if there is one. If it is only that the worker was told to
  // stop, Leave will know why.
  void SpreadFailure();
  // What the others are told if this worker ends with an error of its own.
  absl::Status GivenUp(const absl::Status& why) const;
  // Closes the streams to the successor when it has everything. Errors: those of AwaitAll;
  // DEADLINE_EXCEEDED.
  absl::Status CloseStreams();
  RingFailure FailureMessage(const absl::Status& status) const;

  static grpc::ByteBuffer NormMessage(const RingRound::Outgoing& part);
  bool NextMessage(RingWay way, int stream, grpc::ByteBuffer* message) override;
  void MessageLeft() override { round_->Sent(); }
  void SenderEnded(const absl::Status& status) override;

  // Constant after Connect.
  const Options options_;
  const PlannedConfig& config_;
  const std::vector<int> ranks_;  // by place in the ring
  const int place_;
  const int successor_;  // ranks
  const int predecessor_;
  const uint64_t incarnation_;
  const absl::Time started_;
  const RingPlan plan_;
  std::unique_ptr<RingPart> part_;
  std::unique_ptr<RingRound> round_;
  std::unique_ptr<RingTensors> tensors_;

  std::vector<Hyperparameters> hyperparameters_;  // by tensor, or empty
  float weight_ = 1;
  // This worker's notes at an iteration so far.
  uint64_t notes_iteration_ = 0;
  uint32_t notes_number_ = 0;
  bool leave_called_ = false;

  // Thread-safe.
  LentMemory lent_;
  RingNotes notes_;
  std::atomic<bool> has_joined_ = false;
  std::atomic<bool> is_connected_ = false;  // all senders are there
  std::atomic<bool> is_closing_ = false;    // the end of a stream is no loss any more
  std::atomic<bool> is_spread_ = false;
  std::atomic<bool> successor_finished_ = false;
  PendingCount telling_;  // calls that tell the successor of a failure, or take or pass on a note

  mutable absl::Mutex mutex_;
  struct Untold {
    absl::Time since;
    std::string why;
  };
  struct Reported {
    absl::Time time;
    WorkerUsage usage;
  };
  std::optional<Untold> untold_ ABSL_GUARDED_BY(mutex_);  // the first note
  bool passes_notes_ ABSL_GUARDED_BY(mutex_) = false;
  std::vector<RingNote> held_notes_ ABSL_GUARDED_BY(mutex_);  // until it does
  absl::Duration waited_ ABSL_GUARDED_BY(mutex_);             // in all waits that are over
  std::optional<Stall> stall_ ABSL_GUARDED_BY(mutex_);        // of the present wait
  std::optional<Reported> reported_ ABSL_GUARDED_BY(mutex_);

  std::unique_ptr<RingService> service_;
  std::unique_ptr<Listener> listener_;                // null before Listen and after Leave
  std::atomic<const Listener*> listening_ = nullptr;  // the same, for statistics
  std::shared_ptr<grpc::Channel> control_;
  std::unique_ptr<Ring::Stub> stub_;
  std::vector<std::unique_ptr<RingSender>> senders_;  // those of kReduce, then of kGather

  // Destroyed first, since they use the other members.
  std::optional<std::stop_callback<std::function<void()>>> on_stop_;
  std::jthread held_;
  std::jthread watcher_;
};

}  // namespace evenshard

#endif  // EVENSHARD_WORKER_RING_GRPC_RING_EXCHANGE_H_
