#include "common/net/status_conversion.h"

#include <string>

#include "absl/strings/cord.h"
#include "absl/types/optional.h"
#include "common/base/error_kind.h"
#include "common/base/text.h"
#include "common/security/rights.h"
#include "proto/error.pb.h"

namespace evenshard {

namespace {

// A message is sent in the trailing metadata, of which a peer accepts 8 KiB: once by itself, where
// encoding may turn one byte into three, and once in the details, where it turns three into four.
constexpr size_t kMaxMessageBytes = 1700;

constexpr char kOwnRefusal[] =
    "refused: this process's certificate (security.certificate) gives it no right to this; the log "
    "of the other process says for whom it was taken";

constexpr char kNotOffered[] =
    "nothing answers this call there: another program, or another version, has the address";

}  // namespace

grpc::Status ToGrpc(const absl::Status& status) {
  if (status.ok()) return grpc::Status::OK;
  StatusDetails details;
  details.set_code(status.raw_code());
  details.set_message(Printable(status.message(), kMaxMessageBytes));
  const auto code = static_cast<grpc::StatusCode>(status.raw_code());
  const absl::optional<absl::Cord> error = status.GetPayload(kErrorDetailUrl);
  if (!error.has_value()) return grpc::Status(code, details.message());
  StatusDetails::Detail& detail = *details.add_detail();
  detail.set_type_url(kErrorDetailUrl);
  detail.set_value(std::string(*error));
  return grpc::Status(code, details.message(), details.SerializeAsString());
}

absl::Status FromGrpc(const grpc::Status& status) {
  if (status.ok()) return absl::OkStatus();
  std::string message = Printable(status.error_message(), kMaxMessageBytes);
  if (message == kRefused) message = kOwnRefusal;
  if (message.empty() && status.error_code() == grpc::StatusCode::UNIMPLEMENTED) {
    message = kNotOffered;  // gRPC itself says nothing
  }
  const absl::Status converted(static_cast<absl::StatusCode>(status.error_code()), message);
  StatusDetails details;
  if (!details.ParseFromString(status.error_details())) return converted;
  for (const StatusDetails::Detail& detail : details.detail()) {
    ErrorDetail error;
    if (detail.type_url() == kErrorDetailUrl && error.ParseFromString(detail.value())) {
      return WithDifferingState(error.differing_state(), WithKind(error.kind(), converted));
    }
  }
  return converted;
}

}  // namespace evenshard
