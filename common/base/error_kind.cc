#include "common/base/error_kind.h"

#include <utility>

#include "absl/strings/cord.h"
#include "absl/types/optional.h"
#include "common/base/text.h"

namespace evenshard {
namespace {

// A name has to find room in gRPC's metadata, beside the message (common/net/status_conversion.cc).
// One that is cut has three bytes more.
constexpr size_t kMaxNameBytes = 253;

ErrorDetail DetailOf(const absl::Status& status) {
  ErrorDetail detail;
  const absl::optional<absl::Cord> payload = status.GetPayload(kErrorDetailUrl);
  if (!payload.has_value() || !detail.ParseFromString(std::string(*payload))) return {};
  return detail;
}

absl::Status WithDetail(const ErrorDetail& detail, absl::Status status) {
  const std::string payload = detail.SerializeAsString();
  if (payload.empty()) {
    status.ErasePayload(kErrorDetailUrl);
  } else {
    status.SetPayload(kErrorDetailUrl, absl::Cord(payload));
  }
  return status;
}

}  // namespace

ErrorDetail::Kind KindOf(const absl::Status& status) {
  const ErrorDetail::Kind kind = DetailOf(status).kind();
  return ErrorDetail::Kind_IsValid(kind) ? kind : ErrorDetail::OTHER;
}

absl::Status WithKind(ErrorDetail::Kind kind, absl::Status status) {
  ErrorDetail detail = DetailOf(status);
  detail.set_kind(kind);
  return WithDetail(detail, std::move(status));
}

std::string DifferingStateOf(const absl::Status& status) {
  return DetailOf(status).differing_state();
}

absl::Status WithDifferingState(absl::string_view name, absl::Status status) {
  ErrorDetail detail = DetailOf(status);
  detail.set_differing_state(Printable(name, kMaxNameBytes));
  return WithDetail(detail, std::move(status));
}

absl::Status Reworded(const absl::Status& status, absl::string_view message) {
  return WithDetail(DetailOf(status), absl::Status(status.code(), message));
}

}  // namespace evenshard
