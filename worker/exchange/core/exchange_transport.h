#ifndef EVENSHARD_WORKER_EXCHANGE_CORE_EXCHANGE_TRANSPORT_H_
#define EVENSHARD_WORKER_EXCHANGE_CORE_EXCHANGE_TRANSPORT_H_

#include <cstdint>
#include <string>

#include "absl/time/time.h"
#include "proto/parameter_server.pb.h"

namespace evenshard {

// How an ExchangeCore reaches the slots of its plan. A slot has at most one connection at a time,
// which is the outcome of an attempt. No method blocks or calls the core.
//
// An attempt waits until `not_before`, opens the streams, and joins. Then it calls
// ExchangeCore::Connected, and its streams take chunks with ExchangeRound::Take until that returns
// nothing, whenever Wake has been called. If anything of this fails, before or after Connected, the
// transport calls ExchangeCore::Broken with the attempt's number.
class ExchangeTransport {
 public:
  struct Attempt {
    int slot = 0;
    uint64_t number = 0;  // counts the slot's attempts, from 1
    std::string address;
    absl::Time not_before;
    // Without shared_buffers, which the transport may offer.
    JoinRequest join;
  };

  virtual ~ExchangeTransport() = default;

  // Begins an attempt. It replaces the slot's connection and any earlier attempt: Connected comes
  // only after all streams of earlier attempts have ended, and these take and report nothing
  // afterwards.
  virtual void Connect(const Attempt& attempt) = 0;
  // Ends the slot's connection and any attempt.
  virtual void Disconnect(int slot) = 0;
  // Tells the slot's streams, if any, that there is something to take. Idempotent. Only this method
  // may call the round (Take).
  virtual void Wake(int slot) = 0;
};

}  // namespace evenshard

#endif  // EVENSHARD_WORKER_EXCHANGE_CORE_EXCHANGE_TRANSPORT_H_
