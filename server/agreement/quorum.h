#ifndef EVENSHARD_SERVER_AGREEMENT_QUORUM_H_
#define EVENSHARD_SERVER_AGREEMENT_QUORUM_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/strings/string_view.h"
#include "absl/synchronization/mutex.h"
#include "common/placement/planned_config.h"
#include "proto/admin.pb.h"
#include "proto/agreement.pb.h"
#include "server/agreement/agreed.h"
#include "server/agreement/agreement_subject.h"
#include "server/session/policy_view.h"
#include "server/session/worker_sets.h"
#include "server/store/parameter_store.h"

namespace evenshard {

// Whose gradients count under QUORUM, as far as one slot is concerned:
//
//   pushes of a chunk -> Arrived -> ... of all chunks of a worker -> on_arrival: who has arrived
//   goes to slot 0 (QuorumDecider) -> the answer: Learn, ParameterStore -> IsKnown, Counts
//
// It also counts what has become of each worker's gradients.
//
// Thread-safe. Lock order: a chunk's lock, then this one's, then the store's.
class Quorum final : public AgreementSubject {
 public:
  struct Options {
    const PlannedConfig* config = nullptr;  // must outlive this, like every pointer here
    int slot = 0;
    ParameterStore* store = nullptr;
    // Called without a lock when report() asks for something that it did not ask for before.
    std::function<void()> on_arrival;
  };

  // REQUIRES: the policy is QUORUM.
  explicit Quorum(Options options);

  // The policy's side. A worker's push of one more chunk of an iteration is here. Every chunk of an
  // iteration comes before any of the next one.
  void Arrived(uint32_t rank, uint64_t iteration);
  // Adopts a view: its worker sets, and who is not waited for. `iteration`: the least that a chunk
  // is at.
  void Adopt(const PolicyView& view, uint64_t iteration);
  // An incarnation takes a rank; it has finished or is lost, unless another one has the rank.
  void Join(uint32_t rank, uint64_t incarnation);
  void Leave(uint32_t rank, uint64_t incarnation);
  // Calls on_arrival if that is due. REQUIRES: no chunk's lock is held.
  void TellArrivals();

  // Whether the set of an iteration is known. It is not if that of a later one is.
  bool IsKnown(uint64_t iteration) const;
  // Whether a worker's gradient of an iteration counts. REQUIRES: its set, or that of a later one,
  // is known; it is the worker's latest iteration.
  bool Counts(uint32_t rank, uint64_t iteration) const;
  // A worker's gradient of an iteration does not count.
  void NoteDropped(uint32_t rank, uint64_t iteration);

  void FillStats(ShardStats* stats) const;

  AgreementReport report() const override;
  std::optional<uint64_t> AskedBy(const AgreementReport& report) const override;
  std::optional<uint64_t> AnsweredBy(const AgreementAnswer& answer) const override;
  void Learn(const AgreementAnswer& answer) override;
  absl::string_view what() const override { return kAgreedSet; }

 private:
  struct Worker {
    uint64_t incarnation = 0;
    bool has_left = false;
    int pushed = 0;  // chunks of iteration_
    // Iterations, and whether each of the latest ones was dropped, in bits, the newest one first.
    uint64_t counted = 0;
    uint64_t dropped = 0;
    uint64_t dropped_before = 0;  // the iteration after the latest one that was dropped
    uint32_t lately = 0;
    bool is_told = false;  // the log says that nearly all are dropped
  };

  // The ranks that the update of iteration_ may wait for.
  std::vector<uint32_t> Training() const ABSL_SHARED_LOCKS_REQUIRED(mutex_);
  // The workers that have arrived; absent if those are too few, or their set is known already. If
  // the whole worker set of the iteration is leaving, nobody may come any more, and none is enough.
  std::optional<std::vector<uint32_t>> Asking() const ABSL_SHARED_LOCKS_REQUIRED(mutex_);
  // Goes on to the pushes of another iteration.
  void Begin(uint64_t iteration) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void NoteOutcome(uint32_t rank, bool dropped) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const Options options_;
  const int chunks_;

  mutable absl::Mutex mutex_;
  std::shared_ptr<const WorkerSets> worker_sets_ ABSL_GUARDED_BY(mutex_);
  uint64_t iteration_ ABSL_GUARDED_BY(mutex_) = 0;       // of the pushes that are counted
  std::vector<Worker> workers_ ABSL_GUARDED_BY(mutex_);  // by rank
  bool tells_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace evenshard

#endif  // EVENSHARD_SERVER_AGREEMENT_QUORUM_H_
