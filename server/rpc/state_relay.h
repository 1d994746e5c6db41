#ifndef EVENSHARD_SERVER_RPC_STATE_RELAY_H_
#define EVENSHARD_SERVER_RPC_STATE_RELAY_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "common/net/raw_call.h"
#include "server/rpc/chunk_source.h"

namespace evenshard {

// Passes on what workers send each other (ParameterServer.SendWorkerState, ReceiveWorkerState),
// message by message and without a copy. Of each transfer it keeps one message, which the sender's
// call brings and the receiver's takes; whichever comes first waits for the other. If one of them
// ends early, so does the other. Thread-safe.
class StateRelay {
 public:
  // At most so many transfers.
  explicit StateRelay(size_t limit) : limit_(limit) {}

  // Where the receiver's call takes the messages from, until it destroys that. Errors, here and of
  // Send: ALREADY_EXISTS if the transfer has a receiver; RESOURCE_EXHAUSTED.
  absl::StatusOr<std::unique_ptr<ChunkSource>> Receive(int slot, uint64_t ticket,
                                                       std::function<void()> wake);
  // Answers the sender's call.
  ReadReactor* Send(int slot, uint64_t ticket, MessageBytes* response);

 private:
  class Transfer;
  class Source;
  class Sender;

  absl::StatusOr<std::shared_ptr<Transfer>> Find(int slot, uint64_t ticket);

  const size_t limit_;
  absl::Mutex mutex_;  // acquired before a transfer's
  // Each lives as long as one of its ends.
  std::map<std::pair<int, uint64_t>, std::weak_ptr<Transfer>> transfers_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace evenshard

#endif  // EVENSHARD_SERVER_RPC_STATE_RELAY_H_
