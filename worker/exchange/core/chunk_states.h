#ifndef EVENSHARD_WORKER_EXCHANGE_CORE_CHUNK_STATES_H_
#define EVENSHARD_WORKER_EXCHANGE_CORE_CHUNK_STATES_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "common/placement/plan/plan.h"
#include "common/placement/planned_config.h"
#include "proto/config.pb.h"
#include "worker/exchange/core/exchange_kind.h"
#include "worker/exchange/core/schedule_policy.h"
#include "worker/exchange/core/training_exchange.h"
#include "worker/trace/trace.h"

namespace evenshard {

// How far the exchange of an iteration is with each chunk, and which version of it the worker
// holds.
//
//             Begin           Push            Release           MarkSent         Claim
//   answered -------> begun --------> pushed ---------> queued ---------> sent -------> claimed
//       ^                                                                                  |
//       +---------------------------------- Answer ----------------------------------------+
//
// The gradient of a chunk that is pushed is there; the schedule says when it may be queued for the
// streams to its shard. Not thread-safe: ExchangeRound guards it.
class ChunkStates {
 public:
  enum class State : uint8_t { kAnswered, kBegun, kPushed, kQueued, kSent, kClaimed };

  // `trace`, if not null, records each layer's "push", from its first chunk queued to its last one
  // sent, and its "pull", from its first answer to its last. All must outlive this.
  ChunkStates(const PlannedConfig* config, const SchedulePolicy* schedule, Trace* trace);

  // With `skip` the worker contributes nothing in the iteration, whatever it pushes. `assigns`: see
  // ExchangeKind.
  void Begin(uint64_t iteration, bool skip, bool assigns);
  // All chunks are answered, as before the first iteration, and their versions unknown: those of
  // another generation of the run are of other parameters.
  void Reset();

  // REQUIRES: the tensor's chunks are begun.
  void Push(int tensor, Contribution contribution);
  // Returns the chunks that may be queued from now on, in the order in which they should leave.
  std::vector<uint32_t> Release();
  // Whether Release may return something because everything queued has been sent.
  bool MayRelease() const { return unsent_ == 0 && !waiting_.empty(); }
  // Returns the chunks of the shard that are queued or sent, which have to be sent once more.
  std::vector<uint32_t> QueueAgain(int shard);
  // Does nothing for a chunk that is not queued.
  void MarkSent(uint32_t chunk);
  // `all_absent` is the answer's, which brings `bytes` of data. REQUIRES: IsPending(chunk).
  void Claim(uint32_t chunk, bool all_absent, int64_t bytes);
  void Answer(uint32_t chunk, uint64_t version);
  // Marks everything that is pushed and not claimed as answered, in the version held.
  void GiveUp();

  uint64_t iteration() const { return iteration_; }
  State state(uint32_t chunk) const { return states_[chunk]; }
  bool IsPending(uint32_t chunk) const {
    return states_[chunk] == State::kQueued || states_[chunk] == State::kSent;
  }
  Encoding encoding(uint32_t chunk) const {  // of its push
    return config_.GradientEncoding(assigns_, plan_.chunks()[chunk]);
  }
  // What its push brings. REQUIRES: its tensor is pushed.
  Contribution contribution(uint32_t chunk) const {
    return contributions_[plan_.chunks()[chunk].tensor];
  }
  // QueueAgain has returned it in this iteration.
  bool is_again(uint32_t chunk) const { return again_[chunk]; }
  bool is_pushed(int tensor) const { return pushed_[tensor]; }
  // Whether every worker pushed the tensor without a gradient. REQUIRES: its chunks are answered.
  bool is_all_absent(int tensor) const { return all_absent_[tensor]; }

  // What is left of the iteration.
  size_t unpushed_tensors() const { return unpushed_tensors_; }
  size_t unanswered() const { return unanswered_; }
  size_t unanswered_of_tensor(int tensor) const { return tensor_unanswered_[tensor]; }
  // The same for the tensors from `begin` to before `end`.
  size_t unanswered_of_tensors(int begin, int end) const;
  // Returns what they wait for, in the shards' names: "shard 1 has not answered 2 of 7 chunks".
  std::string Missing(int begin, int end,
                      const std::function<std::string(int shard)>& shard_name) const;
  // Pushed, and not queued: they wait until others have been sent, or pushed.
  bool has_waiting() const { return !waiting_.empty(); }

  uint64_t version(uint32_t chunk) const { return versions_[chunk]; }
  // How many updates of others came between the parameters of this worker's last gradient and its
  // update, at the chunk with most of them; before there is one, as many as there are other
  // workers.
  uint32_t staleness() const { return staleness_; }
  // A pull has brought a chunk in this version, and where it was at this iteration.
  void SetPulled(uint32_t chunk, uint64_t version, uint64_t iteration) {
    former_versions_[chunk] += version - versions_[chunk];  // the last gradient's staleness stays
    versions_[chunk] = version;
    pulled_at_[chunk] = iteration;
  }
  // Returns the number of chunks that were pulled at a later iteration than this.
  size_t PulledAfter(uint64_t iteration) const;
  // Returns the number of chunks whose version is greater than `version`.
  size_t ChunksAfter(uint64_t version) const;
  // Counts all pushes since the construction, and the answers that brought something new.
  const TrainingExchange::Traffic& traffic() const { return traffic_; }

 private:
  void Queue(uint32_t chunk);
  // A gradient is about to be computed from the versions held.
  void NoteStaleness();

  // Constant after construction.
  const PlannedConfig& config_;
  const Plan& plan_;
  const SchedulePolicy& schedule_;
  Trace* const trace_;
  std::vector<int> layer_of_chunk_;
  std::vector<size_t> layer_chunks_;

  uint64_t iteration_ = 0;
  bool skip_ = false;
  bool assigns_ = false;
  bool has_trained_ = false;
  uint32_t staleness_ = 0;
  std::vector<State> states_;  // by chunk, like the next three
  std::vector<bool> again_;
  std::vector<uint64_t> versions_;
  std::vector<uint64_t> former_versions_;    // when the last exchange with a gradient began
  std::vector<uint64_t> pulled_at_;          // SYNC: the iteration that the chunk was at
  std::vector<bool> pushed_;                 // by tensor, like the next two
  std::vector<Contribution> contributions_;  // where pushed
  std::vector<bool> all_absent_;             // as far as it has been answered
  std::vector<uint32_t> waiting_;            // pushed and not queued, as they were pushed
  std::vector<size_t> layer_unqueued_;
  std::vector<size_t> layer_unsent_;
  std::vector<size_t> layer_unanswered_;
  std::vector<size_t> tensor_unanswered_;
  size_t unpushed_tensors_ = 0;
  size_t unsent_ = 0;  // queued and not sent
  size_t unanswered_ = 0;
  TrainingExchange::Traffic traffic_;
};

}  // namespace evenshard

#endif  // EVENSHARD_WORKER_EXCHANGE_CORE_CHUNK_STATES_H_
