#include "common/net/status_conversion.h"

#include <string>

#include "common/base/text.h"

namespace evenshard {

namespace {

// A message is sent in the trailing metadata, of which a peer accepts 8 KiB. Encoding may turn one
// byte into three.
constexpr size_t kMaxMessageBytes = 2000;

}  // namespace

grpc::Status ToGrpc(const absl::Status& status) {
  if (status.ok()) return grpc::Status::OK;
  return grpc::Status(static_cast<grpc::StatusCode>(status.raw_code()),
                      Printable(status.message(), kMaxMessageBytes));
}

absl::Status FromGrpc(const grpc::Status& status) {
  if (status.ok()) return absl::OkStatus();
  return absl::Status(static_cast<absl::StatusCode>(status.error_code()),
                      Printable(status.error_message(), kMaxMessageBytes));
}

}  // namespace evenshard
