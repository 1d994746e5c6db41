#ifndef EVENSHARD_COMMON_SECURITY_EXPIRY_WATCH_H_
#define EVENSHARD_COMMON_SECURITY_EXPIRY_WATCH_H_

#include <thread>

#include "absl/time/time.h"
#include "proto/config.pb.h"

namespace evenshard {

// Tells at once, and every `period` as long as it exists, what LogExpiry tells of a certificate.
class ExpiryWatch {
 public:
  ExpiryWatch(const Security& security, absl::Duration period);

 private:
  std::jthread thread_;
};

}  // namespace evenshard

#endif  // EVENSHARD_COMMON_SECURITY_EXPIRY_WATCH_H_
