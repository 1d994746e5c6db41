#include "server/shard.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/strip.h"
#include "common/encoding.h"
#include "common/incarnation.h"
#include "common/resident_memory.h"
#include "common/same_host.h"
#include "common/text.h"
#include "google/protobuf/util/message_differencer.h"
#include "spdlog/spdlog.h"

namespace ps {
namespace {

constexpr uint64_t kMaxIteration = uint64_t{1} << 53;
// A name, a bus id and some numbers.
constexpr size_t kMaxUsageBytes = 256;

// "optimizer.learning_rate: 0.1 -> 0.2" for each field that differs.
std::string Differences(const ClusterConfig& own, const ClusterConfig& theirs) {
  std::string report;
  google::protobuf::util::MessageDifferencer differencer;
  differencer.ReportDifferencesToString(&report);
  differencer.Compare(own, theirs);
  return Printable(absl::StrReplaceAll(absl::StripSuffix(report, "\n"), {{"\n", "; "}}));
}

// OK where the worker speaks the encodings of the exchange.
absl::Status CheckEncodings(const ExchangeConfig& exchange, const JoinRequest& request) {
  const auto speaks = [&](int encoding) {
    const auto& listed = request.encodings();
    return encoding == FLOAT32 || std::find(listed.begin(), listed.end(), encoding) != listed.end();
  };
  for (const auto& [field, encoding] :
       {std::pair("gradient_encoding", exchange.gradient_encoding()),
        std::pair("parameter_encoding", exchange.parameter_encoding())}) {
    if (speaks(encoding)) continue;
    return absl::FailedPreconditionError(
        absl::StrCat("worker ", request.worker(), " does not speak ", EncodingName(encoding),
                     ", which is the run's exchange.", field, ", but ", EncodingNames(speaks)));
  }
  return absl::OkStatus();
}

// Null where the worker offers none, or the exchange is not to go through them, or they cannot be
// mapped, as from another container: then data is sent.
std::shared_ptr<WorkerBuffers> MapBuffers(const Config& config, const JoinRequest& request) {
  if (!request.has_shared_buffers() || !MayShareMemory(config.proto().exchange())) return nullptr;
  auto buffers = std::make_shared<WorkerBuffers>();
  for (const auto& [place, buffer] :
       {std::pair(&request.shared_buffers().gradients(), &buffers->gradients),
        std::pair(&request.shared_buffers().parameters(), &buffers->parameters)}) {
    absl::StatusOr<FloatBuffer> mapped = FloatBuffer::Map(*place, config.model().buffer_size());
    if (!mapped.ok()) {
      spdlog::info("exchanging with worker {} by messages: {}", request.worker(),
                   std::string(mapped.status().message()));
      return nullptr;
    }
    *buffer = *std::move(mapped);
  }
  return buffers;
}

}  // namespace

absl::StatusOr<std::unique_ptr<Shard>> Shard::Create(const Config* config, int index,
                                                     const Clock* clock) {
  if (index < 0 || index >= config->shards()) {
    return absl::OutOfRangeError(absl::StrCat("there is no shard ", index, ": the config has ",
                                              config->shards(), " shards, 0 to ",
                                              config->shards() - 1));
  }
  std::unique_ptr<Shard> shard(new Shard(config, index, clock));
  absl::StatusOr<std::unique_ptr<ParameterStore>> store =
      ParameterStore::Create(*config, index, &shard->counters_);
  if (!store.ok()) return store.status();
  shard->store_ = *std::move(store);
  shard->policy_ = UpdatePolicy::Create(*config, shard->store_.get(), &shard->counters_, clock);
  return shard;
}

Shard::Shard(const Config* config, int index, const Clock* clock)
    : config_(*config),
      index_(index),
      clock_(clock),
      start_time_(clock->Now()),
      incarnation_(NewIncarnation()),
      membership_(config->workers(), absl::Seconds(config->proto().limits().startup_seconds()),
                  clock) {}

absl::StatusOr<JoinResponse> Shard::Join(const JoinRequest& request, const std::string& address) {
  if (absl::Status status = failure(); !status.ok()) {
    // With a code of its own: the worker must not take it for its own time limit.
    return absl::FailedPreconditionError(
        absl::StrCat("the run has failed, start the shards again: ", status.message()));
  }
  if (request.config_fingerprint() != config_.fingerprint() ||
      request.plan_fingerprint() != config_.plan().fingerprint()) {
    const std::string differences =
        request.has_config() ? Differences(config_.Contract(), request.config()) : "";
    return absl::FailedPreconditionError(absl::StrCat(
        "worker ", request.worker(), " has another ",
        request.plan_fingerprint() != config_.plan().fingerprint() ? "plan" : "config",
        " than shard ", index_, "; give both the same config file",
        differences.empty() ? "" : absl::StrCat(" (shard -> worker: ", differences, ")")));
  }
  absl::Status speaks = CheckEncodings(config_.proto().exchange(), request);
  if (!speaks.ok()) return speaks;
  std::shared_ptr<WorkerBuffers> buffers = MapBuffers(config_, request);
  JoinResponse response;
  response.set_shared_buffers(buffers != nullptr);
  absl::Status joined =
      membership_.Join(request.worker(), request.incarnation(), address, std::move(buffers));
  if (!joined.ok()) return joined;
  response.set_shard(index_);
  response.set_incarnation(incarnation_);
  response.set_start_iteration(membership_.NextIteration(request.worker()));
  return response;
}

absl::Status Shard::Leave(const LeaveRequest& request) {
  const bool failed = !request.error().empty();
  const absl::StatusOr<bool> took_part =
      membership_.Leave(request.worker(), request.incarnation(), failed);
  if (!took_part.ok()) return took_part.status();
  // Who has not taken part yet can be started again without harm.
  if (failed && *took_part && config_.proto().update().policy() == Update::SYNC) {
    Fail(absl::AbortedError(
        absl::StrCat("worker ", request.worker(), " gave up: ", Printable(request.error()))));
  }
  return absl::OkStatus();
}

absl::Status Shard::Report(const ReportRequest& request) {
  if (const size_t bytes = request.usage().ByteSizeLong(); bytes > kMaxUsageBytes) {
    return absl::InvalidArgumentError(absl::StrCat("worker ", request.worker(),
                                                   " reported usage of ", bytes,
                                                   " bytes; allowed: ", kMaxUsageBytes));
  }
  return membership_.Report(request.worker(), request.incarnation(), request.usage());
}

absl::Status Shard::Push(Gradient gradient, std::shared_ptr<ReplySink> sink) {
  const GradientHeader header = gradient.header;
  const uint64_t bytes = SegmentsSize(gradient.data);
  const int index = store_->IndexOf(header.chunk);
  if (index < 0) {
    return absl::InvalidArgumentError(absl::StrCat("worker ", header.worker, " pushed chunk ",
                                                   header.chunk, ", which shard ", index_,
                                                   " does not own"));
  }
  if (header.iteration > kMaxIteration) {
    return absl::InvalidArgumentError(absl::StrCat("worker ", header.worker, " is at iteration ",
                                                   header.iteration, "; the largest is ",
                                                   kMaxIteration));
  }
  if (absl::Status status = failure(); !status.ok()) return status;
  absl::Status checked = CheckGradient(gradient, store_->chunks()[index].info());
  if (!checked.ok()) return checked;

  membership_.CountPush(header.worker, header.iteration, bytes);
  counters_.bytes_in += bytes;
  return policy_->Push(index, std::move(gradient), std::move(sink));
}

absl::Status Shard::CheckGradient(const Gradient& gradient, const Chunk& chunk) {
  const GradientHeader& header = gradient.header;
  const Encoding encoding = config_.proto().exchange().gradient_encoding();
  if (header.encoding != encoding) {
    return absl::InvalidArgumentError(absl::StrCat(
        "worker ", header.worker, " pushed chunk ", chunk.id, " as ", EncodingName(header.encoding),
        "; the run's exchange.gradient_encoding is ", EncodingName(encoding)));
  }
  const size_t bytes = SegmentsSize(gradient.data);
  const size_t expected = header.skip ? 0 : EncodedBytes(encoding, chunk.size);
  if (bytes != expected) {
    return absl::InvalidArgumentError(
        absl::StrCat("worker ", header.worker, " pushed ", bytes, " bytes for chunk ", chunk.id,
                     header.skip ? " with `skip`" : "", ", which takes ", expected));
  }
  const int64_t bad = FindNonFinite(encoding, gradient.data);
  if (bad < 0) return absl::OkStatus();
  const absl::Status status = absl::InvalidArgumentError(absl::StrCat(
      "worker ", header.worker, " pushed a gradient that is not finite", RangeOf(encoding),
      " at iteration ", header.iteration, ": ", config_.model().tensors()[chunk.tensor].name,
      " element ", chunk.begin + bad, " (chunk ", chunk.id, ")"));
  // Under SKIP a worker leaves such a gradient out itself, whole: one that does not is
  // refused, and others are not harmed.
  if (config_.proto().update().non_finite() == Update::REJECT) Fail(status);
  return status;
}

void Shard::WorkerLost(uint32_t rank) {
  if (config_.proto().update().policy() != Update::SYNC) return;
  Fail(absl::UnavailableError(absl::StrCat(membership_.Describe(rank),
                                           " was lost: its connection ended before it left, and "
                                           "SYNC needs every worker")));
}

void Shard::CheckOverdue() {
  const absl::Duration limit = absl::Seconds(config_.proto().limits().exchange_seconds());
  const absl::Status overdue = policy_->CheckOverdue(clock_->Now() - limit, membership_);
  if (!overdue.ok()) Fail(overdue);
}

absl::Status Shard::failure() const {
  if (!failed_) return absl::OkStatus();
  absl::MutexLock lock(&failure_mutex_);
  return failure_;
}

void Shard::OnFailure(std::function<void(const absl::Status&)> listener) {
  on_failure_ = std::move(listener);
}

void Shard::Fail(const absl::Status& failure) {
  if (!Close(failure)) return;
  if (on_failure_) on_failure_(failure);
  policy_->Abandon();
}

bool Shard::Close(const absl::Status& reason) {
  absl::MutexLock lock(&failure_mutex_);
  if (failed_) return false;  // what follows from the first failure is not news
  failure_ = reason;
  failed_ = true;
  return true;
}

ShardStats Shard::Stats() const {
  ShardStats stats;
  stats.set_shard(index_);
  stats.set_incarnation(incarnation_);
  stats.set_plan_fingerprint(config_.plan().fingerprint());
  stats.set_uptime_seconds(absl::ToDoubleSeconds(clock_->Now() - start_time_));
  stats.set_resident_bytes(ResidentBytes());
  stats.set_parameters(config_.plan().shard_parameters(index_));
  stats.set_parameter_bytes(config_.plan().shard_parameters(index_) * sizeof(float));
  stats.set_chunks(config_.plan().chunks_of_shard(index_).size());
  counters_.Fill(&stats);
  membership_.Fill(&stats);
  stats.set_failure(std::string(failure().message()));
  return stats;
}

}  // namespace ps
