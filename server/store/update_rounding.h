#ifndef EVENSHARD_SERVER_STORE_UPDATE_ROUNDING_H_
#define EVENSHARD_SERVER_STORE_UPDATE_ROUNDING_H_

#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "proto/encoding.pb.h"

namespace evenshard {

// Rounds a chunk's updates to an encoding, in which they go to the workers
// (exchange.update_encoding). Of an update u and the residual e of those before, the parameters
// change by D(C(u + e)), and e becomes u + e - D(C(u + e)), as in DoubleSqueeze (Tang et al.,
// arXiv:1905.05957). So shard and workers have the same parameters, to the bit.
//
// Not thread-safe: guarded by the chunk's lock.
class UpdateRounding {
 public:
  // `residual`, of as many elements as the chunk has parameters, is part of the chunk's state. It
  // must outlive this.
  UpdateRounding(Encoding encoding, absl::Span<float> residual)
      : encoding_(encoding), residual_(residual) {}

  absl::Span<float> residual() const { return residual_; }

  // Rounds the update that has made `parameters` of `before`, and by which they have come to
  // `version`.
  void Round(absl::Span<const float> before, uint64_t version, absl::Span<float> parameters);
  // The parameters have become others in another way.
  void Forget() { version_ = 0; }

  // C(u + e) of the update that led to `version`; empty if that is not known here.
  absl::Span<const char> EncodedUpdate(uint64_t version) const {
    return version == version_ ? absl::MakeConstSpan(encoded_) : absl::Span<const char>();
  }

 private:
  const Encoding encoding_;
  const absl::Span<float> residual_;
  std::vector<char> encoded_;
  uint64_t version_ = 0;  // the first update leads to version 1
};

}  // namespace evenshard

#endif  // EVENSHARD_SERVER_STORE_UPDATE_ROUNDING_H_
