#ifndef EVENSHARD_SERVER_UPDATE_GRADIENT_H_
#define EVENSHARD_SERVER_UPDATE_GRADIENT_H_

#include <cstdint>
#include <memory>
#include <optional>

#include "common/wire/chunk_codec.h"

namespace evenshard {

// A pushed gradient chunk. `data` points to where it was received, and these bytes live as long as
// `owner`.
struct Gradient {
  GradientHeader header;
  Segments data;  // pieces of any alignment
  std::shared_ptr<const void> owner;
  std::optional<double> norm = {};  // see NormLimit::Measure
};

// Sends the reply to a push. Implementations are thread-safe.
class ReplySink {
 public:
  virtual ~ReplySink() = default;

  // Sends the parameters of `chunk` in reply to the push of `iteration`; with `dropped` only that
  // the push does not count. The update policy calls this without holding a lock. Must not block.
  virtual void Reply(uint32_t chunk, uint64_t iteration, bool dropped) = 0;
};

}  // namespace evenshard

#endif  // EVENSHARD_SERVER_UPDATE_GRADIENT_H_
