#include "server/shard/push_format.h"

#include <cmath>
#include <optional>

#include "absl/strings/str_cat.h"
#include "common/wire/encoding.h"
#include "common/wire/hyperparameter_check.h"

namespace evenshard {

absl::StatusOr<int> IndexOfPush(const WorkerSession& session, const GradientHeader& header,
                                const ParameterStore& store, int shard) {
  if (header.worker != session.rank() || header.incarnation != session.incarnation()) {
    return absl::InvalidArgumentError(
        absl::StrCat("worker ", header.worker, " pushed on the stream of worker ", session.rank(),
                     "; each incarnation opens its own"));
  }
  const int index = store.IndexOf(header.chunk);
  if (index < 0) {
    return absl::InvalidArgumentError(absl::StrCat("worker ", header.worker, " pushed chunk ",
                                                   header.chunk, ", which shard ", shard,
                                                   " does not own"));
  }
  return index;
}

absl::Status CheckFormat(const PlannedConfig& config, const Gradient& gradient,
                         const Chunk& chunk) {
  const GradientHeader& header = gradient.header;
  const Tensor& tensor = config.model().tensors()[chunk.tensor];
  const Encoding encoding = config.GradientEncoding(header.iteration, chunk);
  if (header.encoding != encoding) {
    return absl::InvalidArgumentError(
        absl::StrCat("worker ", header.worker, " pushed chunk ", chunk.id, " as ",
                     EncodingName(header.encoding), "; allowed: ", EncodingName(encoding),
                     config.IsBuffer(chunk) ? ", as for every buffer"
                                            : ", the run's exchange.gradient_encoding"));
  }
  if (config.IsInitial(header.iteration) && header.worker != 0 && !header.skip) {
    return absl::InvalidArgumentError(
        absl::StrCat("worker ", header.worker, " pushed initial parameters, chunk ", chunk.id,
                     "; only worker 0 gives them, and others set `skip`"));
  }
  if (config.IsBuffer(chunk) && header.worker != 0 && header.has_data()) {
    return absl::InvalidArgumentError(
        absl::StrCat("worker ", header.worker, " pushed chunk ", chunk.id, " of the buffer ",
                     tensor.name, "; only worker 0 gives it, and others set `absent`"));
  }
  if (header.absent && (header.skip || config.IsInitial(header.iteration))) {
    return absl::InvalidArgumentError(absl::StrCat(
        "worker ", header.worker, " pushed chunk ", chunk.id, " with `absent` and ",
        header.skip ? "`skip`; allowed: one of them" : "no initial parameters; allowed: `data`"));
  }
  if (header.hyperparameters != Hyperparameters()) {
    const absl::Status status =
        tensor.role == TensorRole::kParameter
            ? CheckHyperparameters(header.hyperparameters, config.proto().optimizer().kind())
            : absl::InvalidArgumentError(
                  absl::StrCat(ToText(header.hyperparameters), "; only a parameter has one"));
    if (!status.ok()) {
      return absl::InvalidArgumentError(absl::StrCat("worker ", header.worker, " pushed chunk ",
                                                     chunk.id, ": ", status.message()));
    }
  }
  const size_t bytes = SegmentsSize(gradient.data);
  const size_t expected = header.has_data() ? EncodedBytes(encoding, chunk.size) : 0;
  if (bytes != expected) {
    return absl::InvalidArgumentError(absl::StrCat("worker ", header.worker, " pushed ", bytes,
                                                   " bytes for chunk ", chunk.id,
                                                   header.skip     ? " with `skip`"
                                                   : header.absent ? " with `absent`"
                                                                   : "",
                                                   ", which takes ", expected));
  }
  return absl::OkStatus();
}

absl::Status CheckFinite(const PlannedConfig& config, const Gradient& gradient,
                         const Chunk& chunk) {
  if (config.IsBuffer(chunk)) return absl::OkStatus();
  const GradientHeader& header = gradient.header;
  const auto encoding = static_cast<Encoding>(header.encoding);
  const int64_t bad = FindNonFinite(encoding, gradient.data);
  if (bad < 0) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "worker ", header.worker, " pushed a gradient that is not finite", RangeOf(encoding),
      " at iteration ", header.iteration, ": ", config.model().tensors()[chunk.tensor].name,
      " element ", chunk.begin + bad, " (chunk ", chunk.id, ")"));
}

}  // namespace evenshard
