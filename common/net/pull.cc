#include "common/net/pull.h"

#include "common/base/status_macros.h"
#include "common/net/pulled_chunks.h"
#include "common/net/status_conversion.h"

namespace evenshard {
namespace {

// Receives what `reader` has, from `shard`.
absl::Status Receive(grpc::ClientReaderInterface<ParameterChunk>* reader,
                     grpc::ClientContext* context, const Plan& plan, int shard,
                     const PulledChunks::Expected& expected,
                     const std::function<absl::Status(const Chunk&, const ParameterChunk&)>& take) {
  PulledChunks chunks(&plan, shard, expected);
  ParameterChunk message;
  while (reader->Read(&message)) {
    absl::Status status = chunks.Add(message);
    if (status.ok()) status = take(plan.chunks()[message.chunk()], message);
    if (!status.ok()) {
      context->TryCancel();
      reader->Finish();
      return status;
    }
  }
  RETURN_IF_ERROR(FromGrpc(reader->Finish()));
  return chunks.CheckEnd();
}

}  // namespace

absl::Status PullShard(ParameterServer::StubInterface* stub, grpc::ClientContext* context,
                       const Plan& plan, int shard,
                       const std::function<absl::Status(const Chunk&, const ParameterChunk&)>& take,
                       int array, std::optional<uint32_t> worker) {
  PullRequest request;
  if (worker.has_value()) request.set_worker(*worker);
  request.set_array(array);
  request.set_plan_fingerprint(plan.fingerprint());
  request.set_slot(shard);
  const auto reader = stub->Pull(context, request);
  return Receive(reader.get(), context, plan, shard, {.may_lack_data = array > 0}, take);
}

absl::Status SnapshotShard(
    ParameterServer::StubInterface* stub, grpc::ClientContext* context, const Plan& plan, int shard,
    uint64_t iteration,
    const std::function<absl::Status(const Chunk&, const ParameterChunk&)>& take) {
  SnapshotRequest request;
  request.set_plan_fingerprint(plan.fingerprint());
  request.set_iteration(iteration);
  request.set_slot(shard);
  const auto reader = stub->Snapshot(context, request);
  return Receive(reader.get(), context, plan, shard, {.iteration = iteration}, take);
}

}  // namespace evenshard
