#include "worker/exchange/grpc/lent_memory.h"

namespace evenshard {
namespace {

void GiveBack(void* lender) {
  const std::unique_ptr<std::shared_ptr<PendingCount>> lent(
      static_cast<std::shared_ptr<PendingCount>*>(lender));
  (*lent)->Remove();
}

}  // namespace

grpc::Slice LentMemory::Lend(absl::Span<const float> memory) {
  lent_->Add();
  return grpc::Slice(const_cast<float*>(memory.data()), memory.size() * sizeof(float), &GiveBack,
                     new std::shared_ptr<PendingCount>(lent_));
}

}  // namespace evenshard
