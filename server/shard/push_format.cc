#include "server/shard/push_format.h"

#include <algorithm>
#include <string>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/config/optimizer_arrays.h"
#include "common/wire/encoding.h"
#include "common/wire/hyperparameter_check.h"

namespace evenshard {
namespace {

// Far from where the sum of weights, or a gradient times its own, would leave the range of float32.
constexpr float kLargestWeight = 1e6f;
constexpr float kSmallestWeight = 1e-9f;  // its inverse is a factor of the update

// How many arrays a chunk's state has: see StoredChunk::arrays.
uint32_t ArraysOf(const PlannedConfig& config, const Tensor& tensor) {
  return tensor.role == TensorRole::kParameter ? 1 + StateArrays(config.proto()) : 1;
}

// Checks a push of an exchange that assigns values.
absl::Status CheckAssigned(const PlannedConfig& config, const GradientHeader& header,
                           const Chunk& chunk) {
  const uint32_t array = *header.assigned;
  const uint32_t arrays = ArraysOf(config, config.model().tensors()[chunk.tensor]);
  const bool is_initial = config.IsInitial(header.iteration);
  std::string problem;
  if (header.has_data() && header.worker != 0) {
    problem = "only worker 0 gives the values, and others set `absent`";
  } else if (header.skip) {
    problem = "nobody sets `skip`; allowed: `absent`";
  } else if (header.has_data() && array >= arrays) {
    problem = absl::StrCat("the chunk has arrays 0 to ", arrays - 1);
  } else if (is_initial && array != 0) {
    problem = "at the beginning of the run the parameters are needed, array 0";
  } else if (is_initial && header.worker == 0 && header.absent) {
    problem = "the initial parameters are needed, and `absent` brings none";
  } else if (!is_initial && config.proto().update().policy() != Update::SYNC) {
    problem = "the workers have an exchange in common under SYNC only";
  } else if (header.hyperparameters != Hyperparameters()) {
    problem = absl::StrCat(ToText(header.hyperparameters), " goes with a gradient only");
  }
  if (problem.empty()) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("worker ", header.worker, " assigned array ",
                                                 array, " of chunk ", chunk.id, ": ", problem));
}

}  // namespace

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
  const Encoding encoding = config.GradientEncoding(header.assigned.has_value(), chunk);
  if (header.encoding != encoding) {
    return absl::InvalidArgumentError(
        absl::StrCat("worker ", header.worker, " pushed chunk ", chunk.id, " as ",
                     EncodingName(header.encoding), "; allowed: ", EncodingName(encoding),
                     header.assigned.has_value() ? ", as for all that is assigned"
                     : config.IsBuffer(chunk)    ? ", as for every buffer"
                     : encoding == config.proto().exchange().gradient_encoding()
                         ? ", the run's exchange.gradient_encoding"
                     : tensor.role == TensorRole::kRunningStatistic
                         ? ", as for every running statistic"
                         : absl::StrCat(", the type of ", tensor.name)));
  }
  if (header.assigned.has_value()) {
    RETURN_IF_ERROR(CheckAssigned(config, header, chunk));
  } else if (config.IsInitial(header.iteration) && !header.skip) {
    return absl::InvalidArgumentError(absl::StrCat(
        "worker ", header.worker, " pushed a gradient of chunk ", chunk.id,
        " in exchange 0, which assigns the initial parameters; allowed: `assigned` 0"));
  }
  if (config.IsBuffer(chunk) && header.worker != 0 && header.has_data()) {
    return absl::InvalidArgumentError(
        absl::StrCat("worker ", header.worker, " pushed chunk ", chunk.id, " of the buffer ",
                     tensor.name, "; only worker 0 gives it, and others set `absent`"));
  }
  if (header.absent && header.skip) {
    return absl::InvalidArgumentError(
        absl::StrCat("worker ", header.worker, " pushed chunk ", chunk.id,
                     " with `absent` and `skip`; allowed: one of them"));
  }
  if (!(header.weight >= kSmallestWeight && header.weight <= kLargestWeight)) {
    return absl::InvalidArgumentError(
        absl::StrCat("worker ", header.worker, " pushed chunk ", chunk.id, " with weight ",
                     header.weight, "; allowed: ", kSmallestWeight, " to ", kLargestWeight));
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
  if (header.onlooks && !(header.skip && config.has_quorum())) {
    return absl::InvalidArgumentError(
        absl::StrCat("worker ", header.worker, " pushed chunk ", chunk.id,
                     " with `onlooks`; allowed: under QUORUM, and with `skip`"));
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
                         StoredChunk& stored) {
  const Chunk& chunk = stored.info();
  if (!config.MustBeFinite(chunk)) return absl::OkStatus();
  const GradientHeader& header = gradient.header;
  const auto encoding = static_cast<Encoding>(header.encoding);
  const int64_t bad = FindNonFinite(encoding, gradient.data, chunk.size);
  if (bad < 0) return absl::OkStatus();
  absl::ReaderMutexLock lock(&stored.mutex);
  const uint64_t behind = std::min(stored.clock().assignments, header.iteration);
  return absl::InvalidArgumentError(
      absl::StrCat("worker ", header.worker,
                   header.assigned.has_value() ? " assigned a value" : " pushed a gradient",
                   " that is not finite", RangeOf(encoding), " at iteration ",
                   header.iteration - behind, ": ", config.model().tensors()[chunk.tensor].name,
                   " element ", chunk.begin + bad, " (chunk ", chunk.id, ")"));
}

}  // namespace evenshard
