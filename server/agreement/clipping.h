#ifndef EVENSHARD_SERVER_AGREEMENT_CLIPPING_H_
#define EVENSHARD_SERVER_AGREEMENT_CLIPPING_H_

#include <cstdint>
#include <functional>
#include <optional>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/synchronization/mutex.h"
#include "common/optimizer/square_sum.h"
#include "common/placement/planned_config.h"
#include "proto/agreement.pb.h"
#include "server/agreement/agreed.h"
#include "server/agreement/agreement_subject.h"
#include "server/store/parameter_store.h"

namespace evenshard {

// Clipping of the mean gradient by its norm (common/optimizer/norm_clipping.h), as far as one slot
// is concerned:
//
//   gradients of a chunk complete -> AddSum -> ... of all chunks -> on_part: the slot's part of the
//   norm goes to slot 0 (NormDecider) -> the answer: ParameterStore::Learn -> Coefficient
//
// A chunk without any gradient counts as zero. Initial parameters are not clipped and do not count.
//
// Thread-safe. Lock order: a chunk's lock, then this one's.
class Clipping final : public AgreementSubject {
 public:
  struct Options {
    const PlannedConfig* config = nullptr;  // must outlive this, like every pointer here
    int slot = 0;
    ParameterStore* store = nullptr;
    // Called without a lock when report() has a part that it did not have before.
    std::function<void()> on_part;
  };

  // REQUIRES: the config clips the mean (Config::clips_mean).
  explicit Clipping(Options options);

  // Whether the slot has something to clip. One without takes no part in the agreement.
  static bool TakesPart(const PlannedConfig& config, int slot);

  // The policy's side. Whether the update of an iteration's gradients is clipped.
  bool Clips(const Chunk& chunk, uint64_t iteration) const;
  // All gradients of an iteration are in the chunk's sum, or there is none (`has_sum`). `scale`
  // times the sum is the mean. Called once for each chunk and iteration. Errors: OUT_OF_RANGE as
  // for StoredChunk::ApplySum; INTERNAL if the norm of a later iteration is known, since then that
  // of this one never will be.
  absl::Status AddSum(const StoredChunk& chunk, bool has_sum, float scale)
      ABSL_SHARED_LOCKS_REQUIRED(chunk.mutex);
  // By what the mean gradient of an iteration is multiplied (ClipCoefficient). Absent until the
  // norm is known.
  std::optional<float> Coefficient(uint64_t iteration) const;
  // Calls on_part if that is due. REQUIRES: no chunk's lock is held.
  void TellPart();

  // What the slot's primary reports, but for its view: the latest norm that it knows and, unless
  // that is of the same iteration, its part.
  AgreementReport report() const override;
  std::optional<uint64_t> AskedBy(const AgreementReport& report) const override;
  std::optional<uint64_t> AnsweredBy(const AgreementAnswer& answer) const override;
  void Learn(const AgreementAnswer& answer) override;
  absl::string_view what() const override { return kAgreedNorm; }

 private:
  const Options options_;
  const SquareRule rule_;
  const int chunks_;  // how many of the slot's chunks are clipped

  mutable absl::Mutex mutex_;
  uint64_t iteration_ ABSL_GUARDED_BY(mutex_) = 0;  // of the part that is added up
  int added_ ABSL_GUARDED_BY(mutex_) = 0;           // chunks
  SquareSum part_ ABSL_GUARDED_BY(mutex_);
  bool tells_part_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace evenshard

#endif  // EVENSHARD_SERVER_AGREEMENT_CLIPPING_H_
