#ifndef EVENSHARD_COMMON_SECURITY_EXPIRY_WATCH_H_
#define EVENSHARD_COMMON_SECURITY_EXPIRY_WATCH_H_

#include <memory>
#include <utility>

#include "absl/time/time.h"
#include "grpcpp/alarm.h"
#include "proto/config.pb.h"

namespace evenshard {

// Tells at once, and from time to time as long as it exists, what LogExpiry tells of a certificate.
// Thread-safe.
class ExpiryWatch : public std::enable_shared_from_this<ExpiryWatch> {
 public:
  static std::shared_ptr<ExpiryWatch> Start(Security security, absl::Duration period);

 private:
  ExpiryWatch(Security security, absl::Duration period)
      : security_(std::move(security)), period_(period) {}

  void Tell();

  const Security security_;
  const absl::Duration period_;
  std::unique_ptr<grpc::Alarm> alarm_;  // calls Tell, after which there is another one
};

}  // namespace evenshard

#endif  // EVENSHARD_COMMON_SECURITY_EXPIRY_WATCH_H_
