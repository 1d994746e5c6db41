#include "common/security/expiry_watch.h"

#include "absl/time/clock.h"
#include "common/security/tls_files.h"

namespace evenshard {

std::shared_ptr<ExpiryWatch> ExpiryWatch::Start(Security security, absl::Duration period) {
  std::shared_ptr<ExpiryWatch> watch(new ExpiryWatch(std::move(security), period));
  watch->Tell();
  return watch;
}

void ExpiryWatch::Tell() {
  LogExpiry(security_);
  alarm_ = std::make_unique<grpc::Alarm>();  // the last one's callback is this call
  alarm_->Set(absl::ToChronoTime(absl::Now() + period_), [weak = weak_from_this()](bool) {
    if (const auto watch = weak.lock(); watch != nullptr) watch->Tell();
  });
}

}  // namespace evenshard
