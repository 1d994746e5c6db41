#include "common/security/expiry_watch.h"

#include <stop_token>

#include "common/base/clock.h"
#include "common/security/tls_files.h"

namespace evenshard {

ExpiryWatch::ExpiryWatch(const Security& security, absl::Duration period) {
  LogExpiry(security);
  thread_ = std::jthread([security, period](const std::stop_token& stop) {
    const RealClock clock;
    while (clock.SleepUntil(clock.Now() + period, stop)) LogExpiry(security);
  });
}

}  // namespace evenshard
