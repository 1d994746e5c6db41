#ifndef PS_SERVER_GRADIENT_H_
#define PS_SERVER_GRADIENT_H_

#include <cstdint>
#include <memory>

#include "common/chunk_codec.h"

namespace ps {

// A pushed gradient chunk where it was received. Move it to keep it; the bytes live
// as long as `owner`.
struct Gradient {
  GradientHeader header;
  Segments data;  // in pieces of any alignment
  std::shared_ptr<const void> owner;
};

// Where the answer to a push goes. Thread-safe.
class ReplySink {
 public:
  virtual ~ReplySink() = default;

  // The update policy lets the parameters of `chunk` go, in answer to the push of
  // `iteration`. Must not block, and is called without any lock held.
  virtual void Reply(uint32_t chunk, uint64_t iteration) = 0;
};

}  // namespace ps

#endif  // PS_SERVER_GRADIENT_H_
