#include "common/placement/plan/plan.h"

#include <algorithm>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "common/base/hash.h"
#include "common/placement/plan/plan_cuts.h"

namespace evenshard {
namespace {

constexpr int64_t kMaxChunks = int64_t{1} << 24;

// Hashes a text in which a separator follows every number and every name's length precedes it, so
// that different plans have different texts.
uint64_t Fingerprint(const Model& model, const std::vector<Slice>& slices, int shards,
                     int64_t chunk_bytes) {
  std::string text = absl::StrCat("plan;", kPlanVersion, ";", shards, ";", chunk_bytes, ";");
  for (const Tensor& tensor : model.tensors()) {
    absl::StrAppend(&text, tensor.name.size(), ":", tensor.name, ";");
    for (const int64_t extent : tensor.shape) absl::StrAppend(&text, extent, ",");
    absl::StrAppend(&text, ";");
  }
  for (const Slice& slice : slices) {
    absl::StrAppend(&text, slice.tensor, ",", slice.begin, ",", slice.size, ",", slice.shard, ";");
  }
  return Fnv1a64(text);
}

}  // namespace

std::string PartitionName(const Partition& partition) {
  std::string name = Partition::Scheme_Name(partition.scheme());
  if (partition.scheme() == Partition::LAYER_BASED) {
    absl::StrAppend(&name, " ", Partition::Placement_Name(partition.placement()));
  }
  return name;
}

absl::StatusOr<Plan> Plan::Create(const Model& model, const Partition& partition, int shards,
                                  int64_t chunk_bytes, absl::Span<const double> shard_rates) {
  if (partition.scheme() == Partition::SCHEME_UNSPECIFIED ||
      partition.scheme() == Partition::AUTO) {
    return absl::InvalidArgumentError(
        absl::StrCat("the partition scheme is ", partition.has_scheme() ? "AUTO" : "missing",
                     ", allowed in a plan are LAYER_BASED, MEMORY_BASED and STRIPED"));
  }
  if (chunk_bytes <= 0 || chunk_bytes % 64 != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("chunk_bytes is ", chunk_bytes, ", it must be a positive multiple of 64"));
  }
  if (const int64_t most = MaxShards(model, partition); shards < 1 || shards > most) {
    return absl::InvalidArgumentError(
        absl::StrCat("the plan has ", shards, " shards, but the model ", model.name(),
                     " can fill 1 to ", most, " shards under ", PartitionName(partition),
                     "; every shard must own parameters (`shard` in "
                     "the config, --shards of `evenshard run`)"));
  }

  Plan plan;
  const int64_t chunk_size = chunk_bytes / static_cast<int64_t>(sizeof(float));
  plan.slices_ = CutModel(model, partition, shards, chunk_size, shard_rates);
  plan.shard_parameters_.resize(shards);
  for (const Slice& slice : plan.slices_) plan.shard_parameters_[slice.shard] += slice.size;
  const auto empty = std::find(plan.shard_parameters_.begin(), plan.shard_parameters_.end(), 0);
  if (empty != plan.shard_parameters_.end()) {
    const int64_t shard = empty - plan.shard_parameters_.begin();
    return absl::InvalidArgumentError(absl::StrCat(
        "shard ", shard, " would own nothing under ", PartitionName(partition), ", its rate of ",
        shard_rates[shard], " is too small beside the others'; every shard must own parameters"));
  }
  plan.fingerprint_ = Fingerprint(model, plan.slices_, shards, chunk_bytes);

  int64_t chunks = 0;
  for (const Slice& slice : plan.slices_) chunks += CeilDiv(slice.size, chunk_size);
  if (chunks > kMaxChunks) {
    return absl::InvalidArgumentError(
        absl::StrCat("chunk_bytes of ", chunk_bytes, " cut the model ", model.name(), " into ",
                     chunks, " chunks, allowed are ", kMaxChunks, "; make chunk_bytes larger"));
  }

  plan.chunks_.reserve(chunks);
  plan.shard_chunks_.resize(shards);
  plan.tensor_chunks_.resize(model.tensors().size());
  plan.shard_buffer_size_.resize(shards);
  for (Slice& slice : plan.slices_) {
    slice.shard_offset = plan.shard_buffer_size_[slice.shard];
    plan.shard_buffer_size_[slice.shard] += RoundUp(slice.size);
    for (int64_t done = 0; done < slice.size; done += chunk_size) {
      const uint32_t id = static_cast<uint32_t>(plan.chunks_.size());
      plan.chunks_.push_back(
          {.id = id,
           .tensor = slice.tensor,
           .begin = slice.begin + done,
           .size = std::min(chunk_size, slice.size - done),
           .shard = slice.shard,
           .model_offset = model.tensors()[slice.tensor].offset + slice.begin + done,
           .shard_offset = slice.shard_offset + done});
      plan.shard_chunks_[slice.shard].push_back(id);
      plan.tensor_chunks_[slice.tensor].push_back(id);
    }
  }
  return plan;
}

}  // namespace evenshard
