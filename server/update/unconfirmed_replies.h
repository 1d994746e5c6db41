#ifndef EVENSHARD_SERVER_UPDATE_UNCONFIRMED_REPLIES_H_
#define EVENSHARD_SERVER_UPDATE_UNCONFIRMED_REPLIES_H_

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "server/update/gradient.h"

namespace evenshard {

// A reply that is due.
struct DueReply {
  std::shared_ptr<ReplySink> sink;
  uint64_t iteration = 0;
  bool dropped = false;
};

// REQUIRES: the chunk's lock is not held.
inline void SendReplies(uint32_t chunk, const std::vector<DueReply>& due) {
  for (const DueReply& reply : due) {
    reply.sink->Reply(chunk, reply.iteration, reply.dropped);
  }
}

// The replies of one chunk that wait until a change of the chunk is confirmed (ChunkObserver). Not
// thread-safe: the chunk's lock guards it.
class UnconfirmedReplies {
 public:
  // Begins a change of number `change`, whose replies wait.
  void Begin(uint64_t change) { newest_ = change; }
  // Whether a change has not been confirmed yet.
  bool waits() const { return newest_.has_value(); }
  // Keeps a reply until the newest change is confirmed. One that need not wait goes to `released`.
  void Add(DueReply reply, std::vector<DueReply>& released) {
    if (waits()) {
      replies_.emplace_back(*newest_, std::move(reply));
    } else {
      released.push_back(std::move(reply));
    }
  }

  // Returns the replies to changes up to number `change`.
  std::vector<DueReply> Confirm(uint64_t change) {
    std::vector<DueReply> due;
    while (!replies_.empty() && replies_.front().first <= change) {
      due.push_back(std::move(replies_.front().second));
      replies_.pop_front();
    }
    if (newest_.has_value() && *newest_ <= change) newest_.reset();
    return due;
  }

 private:
  std::optional<uint64_t> newest_;  // the newest change, if it is not confirmed
  std::deque<std::pair<uint64_t, DueReply>> replies_;
};

}  // namespace evenshard

#endif  // EVENSHARD_SERVER_UPDATE_UNCONFIRMED_REPLIES_H_
