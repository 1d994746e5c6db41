#include "common/net/pull.h"

#include <optional>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/net/status_conversion.h"
#include "common/wire/encoding.h"

namespace evenshard {
namespace {

// What all chunks that a shard sends must be.
struct Expected {
  std::optional<uint64_t> iteration = {};
  bool may_lack_data = false;
};

absl::Status CheckChunk(const Plan& plan, int shard, const ParameterChunk& message,
                        const Expected& must, std::vector<bool>* received) {
  if (message.chunk() >= plan.chunks().size() || plan.chunks()[message.chunk()].shard != shard) {
    return absl::DataLossError(
        absl::StrCat("sent chunk ", message.chunk(), ", which the plan does not give to it"));
  }
  if (message.encoding() != FLOAT32) {
    return absl::DataLossError(absl::StrCat("sent chunk ", message.chunk(), " as ",
                                            EncodingName(message.encoding()),
                                            ", expected FLOAT32"));
  }
  const size_t expected = plan.chunks()[message.chunk()].size * sizeof(float);
  if (message.data().size() != expected && !(must.may_lack_data && message.data().empty())) {
    return absl::DataLossError(absl::StrCat("sent ", message.data().size(), " bytes as chunk ",
                                            message.chunk(), ", which has ", expected));
  }
  if ((*received)[message.chunk()]) {
    return absl::DataLossError(absl::StrCat("sent chunk ", message.chunk(), " twice"));
  }
  (*received)[message.chunk()] = true;
  return absl::OkStatus();
}

// Receives what `reader` has, from `shard`.
absl::Status Receive(grpc::ClientReaderInterface<ParameterChunk>* reader,
                     grpc::ClientContext* context, const Plan& plan, int shard,
                     const Expected& must,
                     const std::function<absl::Status(const Chunk&, const ParameterChunk&)>& take) {
  std::vector<bool> received(plan.chunks().size());
  ParameterChunk message;
  while (reader->Read(&message)) {
    absl::Status status = CheckChunk(plan, shard, message, must, &received);
    if (status.ok() && must.iteration.value_or(message.iteration()) != message.iteration()) {
      status =
          absl::DataLossError(absl::StrCat("sent chunk ", message.chunk(), " of iteration ",
                                           message.iteration(), ", expected ", *must.iteration));
    }
    if (status.ok()) status = take(plan.chunks()[message.chunk()], message);
    if (!status.ok()) {
      context->TryCancel();
      reader->Finish();
      return status;
    }
  }
  RETURN_IF_ERROR(FromGrpc(reader->Finish()));
  for (const uint32_t chunk : plan.chunks_of_shard(shard)) {
    if (!received[chunk]) return absl::DataLossError(absl::StrCat("did not send chunk ", chunk));
  }
  return absl::OkStatus();
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
