#ifndef EVENSHARD_SERVER_STORE_SENT_PARAMETERS_H_
#define EVENSHARD_SERVER_STORE_SENT_PARAMETERS_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "absl/container/inlined_vector.h"
#include "absl/types/span.h"

namespace evenshard {

// The parameters of a chunk as each worker was last sent them, for the correction of its next
// gradient, which it computes from them (Asynchrony.Correction).
//
// A reply only notes its worker, since the chunk stays as it is until its next update. That update
// first copies the parameters for all who are noted. So a replica that is told of these workers
// with the update has the same copies. What was noted after the last update is lost with the
// process: the worker's next gradient is then of a version that is not here, and is not corrected.
//
// The parameters are the float32 ones, also where replies round them: a difference that is only due
// to rounding is no staleness. Owned by StoredChunk, whose lock guards it. Note may be called with
// the lock shared.
class SentParameters {
 public:
  using Ranks = absl::InlinedVector<uint32_t, 4>;

  static constexpr uint64_t kNoVersion = UINT64_MAX;

  // `copies`: by rank, memory for `size` elements each. None are kept if it is empty.
  SentParameters(std::vector<float*> copies, int64_t size)
      : copies_(std::move(copies)),
        size_(size),
        versions_(copies_.size(), kNoVersion),
        is_noted_(std::make_unique<std::atomic<bool>[]>(copies_.size())) {}

  bool are_kept() const { return !copies_.empty(); }
  // The workers of the config, or none.
  size_t workers() const { return copies_.size(); }

  // A worker is sent the chunk as it is now.
  void Note(uint32_t rank) const {
    if (rank < copies_.size()) is_noted_[rank].store(true, std::memory_order_relaxed);
  }
  // Those who are noted, but for `pusher`, whose next gradient will be of parameters that it is
  // still to be sent.
  Ranks NotedBut(uint32_t pusher) const;

  // Keeps the parameters of `version` for the workers, just before they change. Nobody is noted
  // afterwards. Ignores ranks for which there is no memory.
  void Keep(const Ranks& ranks, absl::Span<const float> parameters, uint64_t version);

  // What was kept for a worker, if it is of `version`, or null.
  const float* Find(uint32_t rank, uint64_t version) const {
    return rank < versions_.size() && versions_[rank] == version ? copies_[rank] : nullptr;
  }

  // The state that replicas share. By rank: the version of what is kept, or kNoVersion, and that.
  const std::vector<uint64_t>& versions() const { return versions_; }
  absl::Span<const float> copy(size_t rank) const {
    return {copies_[rank], static_cast<size_t>(size_)};
  }
  // Takes such a state over; the copies are written through mutable_copy.
  void SetVersions(const std::vector<uint64_t>& versions);
  float* mutable_copy(size_t rank) { return copies_[rank]; }

 private:
  void ForgetNotes();

  const std::vector<float*> copies_;
  const int64_t size_;
  std::vector<uint64_t> versions_;
  const std::unique_ptr<std::atomic<bool>[]> is_noted_;
};

}  // namespace evenshard

#endif  // EVENSHARD_SERVER_STORE_SENT_PARAMETERS_H_
