#ifndef EVENSHARD_SERVER_UPDATE_REPLY_SINKS_H_
#define EVENSHARD_SERVER_UPDATE_REPLY_SINKS_H_

#include <algorithm>
#include <memory>
#include <utility>

#include "absl/container/inlined_vector.h"
#include "server/update/gradient.h"

namespace evenshard {

// The streams that a push came on, which all get its reply, the oldest first. A push on a stream
// that the worker has given up may be overtaken by its repetition on another one.
using ReplySinks = absl::InlinedVector<std::shared_ptr<ReplySink>, 1>;

// Has replies go to a further stream. Only the latest few streams of a push can still be open.
inline void AddSink(std::shared_ptr<ReplySink> sink, ReplySinks& sinks) {
  constexpr size_t kMost = 8;
  if (std::find(sinks.begin(), sinks.end(), sink) != sinks.end()) return;
  if (sinks.size() == kMost) sinks.erase(sinks.begin());
  sinks.push_back(std::move(sink));
}

}  // namespace evenshard

#endif  // EVENSHARD_SERVER_UPDATE_REPLY_SINKS_H_
