#ifndef EVENSHARD_TESTS_SIMULATION_ORACLE_H_
#define EVENSHARD_TESTS_SIMULATION_ORACLE_H_

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "absl/strings/string_view.h"
#include "common/checkpoint/checkpoint_id.h"
#include "common/control/view/worker_set.h"
#include "common/placement/planned_config.h"
#include "proto/view.pb.h"
#include "server/store/chunk_observer.h"
#include "server/store/parameter_store.h"
#include "tests/simulation/oracle/history.h"

namespace evenshard {

// What has happened in simulated runs, to see that they meet what they are meant to meet.
struct Coverage {
  int changes = 0;       // of chunks
  int lost_changes = 0;  // that the slot's next primary does not have
  int takeovers = 0;     // of a slot by another process
  int handovers = 0;     // of those, the ones that were asked for
  int confirmed = 0;     // messages, by copies
  int checkpoints = 0;   // that were completed
  int restored = 0;      // slots, from a checkpoint
  int begun_anew = 0;    // generations after the first, from the initial parameters
  int losses = 0;        // of workers, without whom the run goes on
  int joins = 0;         // of workers, to a run under way
  int repeats = 0;       // pushes of what was pushed before
  int reads = 0;         // of chunks, by readers outside the training
  int mixed = 0;         // iterations that a worker repeats with some chunks updated already
  int forgotten = 0;     // times that a worker went on without the residual of error feedback
  int norms = 0;         // iterations whose norm was that of the gradients
  int limited = 0;       // gradients that were scaled down, since their norm was too large
  int dropped = 0;       // pushes of which a worker was told that they do not count
  int bounded = 0;       // answers of which SSP promises that they have others' updates
  int corrected = 0;     // stale gradients that were corrected
  int uncorrected = 0;   // those of which it was not known what they were computed from

  void Add(const Coverage& other);
  std::string ToString() const;
};

// Judges what happens in a simulation by what can be seen of it: what was pushed, how chunks
// changed, what workers were told, what copies and checkpoints hold. It keeps the whole history,
// and computes each update once more. The first violation is kept.
//
// Everything that arrives of what is pushed is a small multiple of a power of two, so that sums do
// not depend on the order of their terms.
class Oracle {
 public:
  // `config` must outlive the oracle. `staleness` is what SSP allows.
  Oracle(const PlannedConfig* config, std::optional<uint64_t> staleness);

  const std::string& violation() const { return violation_; }
  void Violated(std::string what);

  // The run is started, for the first time or again.
  void RunStarted() { ++run_; }
  GenerationId Generation(uint64_t generation) const { return {run_, generation}; }

  // A process has become primary of a slot, in a view that it may have got late. Returns the number
  // of this primary.
  int PrimaryBegan(int process, int slot, const View& view, ParameterStore& store);
  // A primary has changed a chunk. The chunk's lock is held.
  void Changed(int primary, const StoredChunk& chunk, const ChunkChange& change)
      ABSL_SHARED_LOCKS_REQUIRED(chunk.mutex);
  // The copy of a slot has confirmed a message of a primary about a chunk.
  void CopyConfirmed(int primary, StoredChunk& chunk);
  // A worker pushes a chunk.
  void Pushed(GenerationId generation, uint32_t rank, uint64_t iteration, uint32_t chunk,
              PushRecord push);
  // A worker computes its gradients of an iteration from parameters that it was answered with.
  // QUORUM: those gradients count only if they are the ones of the iteration.
  void Computes(GenerationId generation, uint32_t rank, uint64_t iteration,
                const std::vector<std::vector<float>>& parameters);
  // A worker has accepted the answer that its push does not count.
  void Dropped(GenerationId generation, uint32_t rank, const ParameterHeader& header);
  // A worker has accepted an answer of a primary to a push, of an exchange in which it contributes
  // or not.
  //
  // SYNC, QUORUM: the version that it was told must never be lost. ASYNC: its push must not be. The
  // parameters that it was shown may have others' pushes that are not confirmed yet, and that their
  // workers repeat if the primary dies. SSP: they have what the bound promises.
  void Answered(int primary, GenerationId generation, uint32_t rank, uint64_t incarnation,
                const ParameterHeader& header, absl::Span<const float> parameters,
                bool contributes);
  // A worker has trained to the end or given up, and is not waited for any more.
  void Left(GenerationId generation, uint32_t rank) { left_.emplace(generation, rank); }
  // A worker begins an iteration of which some chunks are updated already: the others' gradients
  // will not be those of a run without faults.
  void Mixed() { ++coverage_.mixed; }
  void Forgot() { ++coverage_.forgotten; }
  // A reader outside the training has taken a chunk of the snapshot of iteration k from a primary.
  void WasRead(int primary, uint64_t k, uint32_t chunk, uint64_t version,
               absl::Span<const float> parameters);
  // A manifest is on the disk.
  void CheckpointCompleted(const CheckpointId& id);
  // A file of a checkpoint has changed. Whoever does not notice must not be harmed.
  void Damaged(const CheckpointId& id) { damaged_.insert(id); }
  // Whether it was completed and not changed since.
  bool IsWhole(const CheckpointId& id) const {
    return complete_.contains(id) && !damaged_.contains(id);
  }
  std::optional<CheckpointId> NewestCheckpoint() const;
  // The coordinator goes over to a view. `reads_newest`: a generation must begin from the newest
  // complete checkpoint.
  void ViewBegan(const View& view, bool reads_newest);

  // The run has succeeded; `last` is its last view, and training has ended before `iterations`
  // under SYNC.
  void RunFinished(const View& last, uint64_t iterations);

  // By chunk: the changes that led to the end of the newest generation.
  std::vector<std::vector<ChangeRecord>> FinalHistory() const;
  const Coverage& coverage() const { return coverage_; }

 private:
  using PushKey = std::tuple<GenerationId, uint32_t, uint64_t, uint32_t>;

  // Walks from the end of a chunk's line in a generation to its beginning.
  const ChunkState* Find(GenerationId generation, uint32_t chunk,
                         const std::function<bool(const ChunkState&)>& is_it) const;
  std::vector<const Instance*> Line(GenerationId generation, int slot) const;
  // SSP: returns which update misses in what a worker is shown in answer to `iteration`, or "".
  std::string MissingUpdate(GenerationId generation, uint64_t iteration, const ChunkClock& shown);
  Instance* Newest(GenerationId generation, int slot);
  void CheckStart(const Instance& instance, const std::string& checkpoint);
  void CheckTakeover(Instance& instance, Instance& before);
  // Whether the slot was handed over between the two.
  bool WasHandedOver(const Instance& before, const Instance& instance) const;
  // QUORUM: notes what a worker was told of its gradient, which all answers must agree on.
  void Told(GenerationId generation, uint32_t rank, uint64_t iteration, bool counts);
  // QUORUM: returns what is wrong with whose gradients are in a change, or "".
  std::string CheckQuorum(GenerationId generation, const ChangeRecord& record) const;
  // QUORUM: all chunks have the same workers in an iteration, as these were told.
  void CheckSets(GenerationId last, uint64_t iterations);
  std::string CheckClock(const ChunkState& before, const ChunkState& after,
                         const ChunkChange& change) const;
  // Computes the update from what the workers pushed. Returns what is wrong with `after`.
  std::string CheckUpdate(const Instance& instance, const StoredChunk& chunk,
                          const ChunkState& before, const ChunkState& after, float scale,
                          ChangeRecord* record);
  // A push as it counts in an update: with update.max_norm it may have been scaled down, to `norm`,
  // which goes into its worker's mean.
  struct Counted {
    const PushRecord* push = nullptr;
    std::vector<float> gradient = {};
    double norm = 0;
    bool is_limited = false;
  };
  // Appends how a worker's push may count in a change of a chunk that was at `before`. There are
  // several ways only if the views of the time do not agree on who has a say.
  void AppendCounted(GenerationId generation, const Chunk& chunk, const ChunkClock& before,
                     const ChangeRecord& record, const PushRecord& push,
                     std::vector<Counted>* counted) const;
  // With a correction: returns what is wrong with what the worker of a change is said to have read.
  std::string CheckSent(const ChunkState& before, const ChangeRecord& record,
                        const PushRecord& push, const SentParameters& sent);
  // A change in the line of history that led to the end, and the generation in which it was made.
  struct Step {
    GenerationId generation;
    const ChangeRecord* change;
  };
  // The changes that led to the end of a chunk's line, beginning with the initial parameters.
  std::vector<Step> WholeLine(GenerationId generation, uint32_t chunk) const;
  void CheckCounts(GenerationId last, uint64_t iterations, uint32_t chunk);
  void CheckEpochs(const View& last);
  // All chunks of an iteration are clipped by the same norm and, in a generation in which every
  // slot has had one primary, by that of the gradients.
  void CheckNorms(GenerationId last, uint64_t iterations);

  const PlannedConfig& config_;
  const bool sync_;
  const std::optional<uint64_t> staleness_;
  std::vector<std::unique_ptr<ParameterStore>> scratch_;  // by slot; with the initial parameters
  std::map<uint32_t, ChunkState> initial_;                // by chunk

  uint64_t run_ = 0;
  std::deque<Instance> instances_;
  std::map<PushKey, std::vector<PushRecord>> pushes_;
  // The latest version that a start of a worker was told, by generation, under ASYNC primary,
  // incarnation and chunk.
  std::map<std::tuple<GenerationId, int, uint64_t, uint32_t>, uint64_t> told_;
  // The run's start that completed a checkpoint.
  std::map<CheckpointId, uint64_t> complete_;
  std::set<CheckpointId> damaged_;
  // The ranks that SSP has ever not waited for, by generation.
  std::set<std::pair<GenerationId, uint32_t>> left_;
  // The worker sets of each generation, as its latest view says them.
  std::map<GenerationId, WorkerSetHistory> worker_sets_;
  // update.max_norm: what the views of each generation say of the workers, by which follows who has
  // a say in a bound.
  std::map<GenerationId, std::vector<View>> views_;
  View view_;  // the latest
  // The views in which a slot was handed over by a primary that had been asked for it and holds the
  // replica since then, by generation and slot.
  std::set<std::tuple<GenerationId, int, uint64_t>> handed_over_;
  // What a generation began from.
  std::map<GenerationId, std::optional<std::pair<GenerationId, CheckpointId>>> origins_;
  // QUORUM: what each worker was told of its gradient of an iteration, and whose gradients are of
  // other parameters than the iteration's.
  std::map<std::tuple<GenerationId, uint32_t, uint64_t>, bool> told_counts_;
  std::set<std::tuple<GenerationId, uint32_t, uint64_t>> misread_;
  Coverage coverage_;
  std::string violation_;
};

}  // namespace evenshard

#endif  // EVENSHARD_TESTS_SIMULATION_ORACLE_H_
