#include "common/base/error_kind.h"

#include <string>

#include "absl/strings/cord.h"
#include "absl/types/optional.h"

namespace evenshard {

ErrorDetail::Kind KindOf(const absl::Status& status) {
  const absl::optional<absl::Cord> payload = status.GetPayload(kErrorDetailUrl);
  if (!payload.has_value()) return ErrorDetail::OTHER;
  ErrorDetail detail;
  const bool is_known =
      detail.ParseFromString(std::string(*payload)) && ErrorDetail::Kind_IsValid(detail.kind());
  return is_known ? detail.kind() : ErrorDetail::OTHER;
}

absl::Status WithKind(ErrorDetail::Kind kind, absl::Status status) {
  if (kind == ErrorDetail::OTHER) {
    status.ErasePayload(kErrorDetailUrl);
  } else {
    ErrorDetail detail;
    detail.set_kind(kind);
    status.SetPayload(kErrorDetailUrl, absl::Cord(detail.SerializeAsString()));
  }
  return status;
}

absl::Status Reworded(const absl::Status& status, absl::string_view message) {
  return WithKind(KindOf(status), absl::Status(status.code(), message));
}

}  // namespace evenshard
