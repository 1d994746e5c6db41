#ifndef EVENSHARD_WORKER_EXCHANGE_GRPC_LENT_MEMORY_H_
#define EVENSHARD_WORKER_EXCHANGE_GRPC_LENT_MEMORY_H_

#include <memory>

#include "absl/time/time.h"
#include "absl/types/span.h"
#include "common/base/pending_count.h"
#include "grpcpp/support/slice.h"

namespace evenshard {

// Lends memory to gRPC, which sends from it without a copy, and counts what has not been given
// back. The slices share the count with the lender, since they may outlive it for a moment.
// Thread-safe.
class LentMemory {
 public:
  // While it exists, AwaitAll waits. A caller holds one while it decides whether to lend.
  class Hold {
   public:
    explicit Hold(LentMemory* memory) : lent_(*memory->lent_) { lent_.Add(); }
    ~Hold() { lent_.Remove(); }
    Hold(const Hold&) = delete;
    Hold& operator=(const Hold&) = delete;

   private:
    PendingCount& lent_;
  };

  // Returns a slice of `memory`, which must stay as it is until AwaitAll has returned true.
  grpc::Slice Lend(absl::Span<const char> memory) {
    using Count = std::shared_ptr<PendingCount>;
    lent_->Add();
    return grpc::Slice(
        const_cast<char*>(memory.data()), memory.size(),
        [](void* count) { (*std::unique_ptr<Count>(static_cast<Count*>(count)))->Remove(); },
        new Count(lent_));
  }

  // Waits until everything has been given back. Returns false if `timeout` passes before.
  bool AwaitAll(absl::Duration timeout) { return lent_->AwaitZeroFor(timeout); }

 private:
  const std::shared_ptr<PendingCount> lent_ = std::make_shared<PendingCount>();
};

}  // namespace evenshard

#endif  // EVENSHARD_WORKER_EXCHANGE_GRPC_LENT_MEMORY_H_
