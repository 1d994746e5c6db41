#ifndef EVENSHARD_SERVER_RECOVERY_REPLICA_H_
#define EVENSHARD_SERVER_RECOVERY_REPLICA_H_

#include <cstdint>
#include <memory>

#include "absl/status/status.h"
#include "common/wire/chunk_codec.h"
#include "proto/replication.pb.h"
#include "proto/view.pb.h"

namespace evenshard {

// A change of a chunk, or its whole state, on its way from the primary of a slot to its replica.
struct ReplicaMessage {
  ReplicaChunk header = {};  // without `data`
  // Lives as long as `owner`; without one, until the replica has confirmed the message or the
  // connection has ended.
  Segments data = {};
  std::shared_ptr<const void> owner = nullptr;
};

// A stream of messages from the primary of a slot to the slot's replica, in order. The destructor
// ends it, and returns once the receiver will not be called again.
class ReplicaStream {
 public:
  // Called by threads of the transport, one at a time, but never from within Send.
  class Receiver {
   public:
    virtual ~Receiver() = default;
    // The replica has taken the oldest message that was not confirmed.
    virtual void Confirmed(const ReplicaReceipt& receipt) = 0;
    // Called once at most: the replica has refused the stream or cannot be reached.
    virtual void Ended(const absl::Status& status) = 0;
  };

  virtual ~ReplicaStream() = default;

  // Sends a message after all others. Does not block.
  virtual void Send(ReplicaMessage message) = 0;
};

// Opens streams to the replicas of slots. Thread-safe.
class ReplicaTransport {
 public:
  virtual ~ReplicaTransport() = default;

  // Opens a stream from `primary` to `copy`, which carries messages of the view numbered `view`, on
  // the connection of the slot with the number `lane`. Connects if there is none. Does not block.
  // `receiver` must outlive the stream.
  virtual std::unique_ptr<ReplicaStream> Open(int slot, int lane, uint64_t view,
                                              const ProcessId& primary, const ProcessId& copy,
                                              ReplicaStream::Receiver* receiver) = 0;

  // The slot has another replica from now on, or none: its connections end with their streams.
  virtual void Disconnect(int slot) = 0;
};

}  // namespace evenshard

#endif  // EVENSHARD_SERVER_RECOVERY_REPLICA_H_
