#include "server/rpc/chunk_source.h"

#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/config/optimizer_arrays.h"
#include "common/config/parameter_encodings.h"
#include "common/wire/encoding.h"
#include "server/rpc/chunk_message.h"

namespace evenshard {
namespace {

// Between two looks at a chunk of which the newest update is on its way to the replica.
constexpr absl::Duration kUnconfirmedPause = absl::Milliseconds(1);

// Returns OK if the shard can answer a PullRequest or a SnapshotRequest.
template <typename Request>
absl::Status Check(const Shard& shard, const Request& request) {
  RETURN_IF_ERROR(shard.CheckHoldsRole());
  if (request.plan_fingerprint() != shard.config().plan().fingerprint()) {
    return absl::FailedPreconditionError(absl::StrCat("the puller has another plan than shard ",
                                                      shard.index(),
                                                      "; give both the same config file"));
  }
  if (!Encoding_IsValid(request.encoding()) || !IsForParameters(request.encoding())) {
    return absl::InvalidArgumentError(
        absl::StrCat("the puller asks for ", EncodingName(request.encoding()), "; shard ",
                     shard.index(), " speaks ", EncodingNames(IsForParameters)));
  }
  return absl::OkStatus();
}

class AllChunks final : public ChunkSource {
 public:
  AllChunks(std::shared_ptr<Shard> shard, const PullRequest& request)
      : shard_(std::move(shard)),
        array_(static_cast<int>(request.array())),
        encoding_(request.encoding()),
        worker_(request.has_worker() ? std::optional(request.worker()) : std::nullopt) {}

  absl::StatusOr<Next> TakeNext() override {
    if (next_ == shard_->store().chunks().size()) return Next{.is_end = true};
    Next next{.message = PullMessage(shard_.get(), shard_->store().chunks()[next_], array_,
                                     encoding_, worker_),
              .pause = kUnconfirmedPause};
    // Once the slot is another process's, nothing is left that waits for a confirmation.
    if (worker_.has_value()) {
      RETURN_IF_ERROR(shard_->failure());
    }
    if (next.message.has_value()) ++next_;
    return next;
  }

 private:
  const std::shared_ptr<Shard> shard_;
  const int array_;
  const Encoding encoding_;
  const std::optional<uint32_t> worker_;
  size_t next_ = 0;  // index of the next chunk to send
};

class SnapshotChunks final : public ChunkSource {
 public:
  SnapshotChunks(std::shared_ptr<Shard> shard, uint64_t iteration, Encoding encoding,
                 std::unique_ptr<Snapshots::Reader> reader)
      : shard_(std::move(shard)),
        iteration_(iteration),
        encoding_(encoding),
        reader_(std::move(reader)) {}

  absl::StatusOr<Next> TakeNext() override {
    Next next;
    ASSIGN_OR_RETURN(const Snapshots::Reader::Progress progress,
                     reader_->Take([&](const Snapshots::Taken& taken) {
                       next.message = SnapshotMessage(shard_.get(), taken, iteration_, encoding_);
                     }));
    next.is_end = progress == Snapshots::Reader::Progress::kAll;
    return next;
  }

 private:
  const std::shared_ptr<Shard> shard_;
  const uint64_t iteration_;
  const Encoding encoding_;
  const std::unique_ptr<Snapshots::Reader> reader_;  // destroyed before the shard
};

}  // namespace

absl::StatusOr<std::unique_ptr<ChunkSource>> PullSource(std::shared_ptr<Shard> shard,
                                                        const PullRequest& request) {
  RETURN_IF_ERROR(Check(*shard, request));
  const int arrays = 1 + StateArrays(shard->config().proto());
  if (request.array() >= static_cast<uint32_t>(arrays)) {
    return absl::InvalidArgumentError(absl::StrCat("the puller asks for array ", request.array(),
                                                   "; the chunks have arrays 0 to ", arrays - 1));
  }
  return std::make_unique<AllChunks>(std::move(shard), request);
}

absl::StatusOr<std::unique_ptr<ChunkSource>> SnapshotSource(std::shared_ptr<Shard> shard,
                                                            const SnapshotRequest& request,
                                                            std::function<void()> wake) {
  RETURN_IF_ERROR(Check(*shard, request));
  if (shard->config().proto().optimizer().kind() == OptimizerConfig::MEAN) {
    return absl::FailedPreconditionError(
        "the shards of this run have mean gradients and no parameters (optimizer.kind MEAN); "
        "allowed: to have a worker's program save its model");
  }
  ASSIGN_OR_RETURN(std::unique_ptr<Snapshots::Reader> reader,
                   shard->snapshots().Open(request.iteration(), std::move(wake)));
  return std::make_unique<SnapshotChunks>(std::move(shard), request.iteration(), request.encoding(),
                                          std::move(reader));
}

}  // namespace evenshard
