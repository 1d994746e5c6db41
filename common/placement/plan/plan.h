#ifndef EVENSHARD_COMMON_PLACEMENT_PLAN_PLAN_H_
#define EVENSHARD_COMMON_PLACEMENT_PLAN_PLAN_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/placement/model/model.h"
#include "proto/config.pb.h"

namespace evenshard {

// The version of the rules by which plans are made, which is part of every fingerprint. Processes
// with different versions could cut the same model differently. The rules of AUTO include the
// simulator's predictions. Version 2 has STRIPED, and AUTO is no longer a cut in model order.
inline constexpr uint32_t kPlanVersion = 2;

// Returns the scheme and, under LAYER_BASED, the placement: "LAYER_BASED GREEDY".
std::string PartitionName(const Partition& partition);

// A contiguous element range [begin, begin + size) of one tensor, owned by one shard.
struct Slice {
  int tensor = 0;
  int64_t begin = 0;
  int64_t size = 0;
  int shard = 0;
  int64_t shard_offset = 0;  // first element in the shard's memory, a multiple of 16
};

// The unit of transfer: at most chunk_bytes of one slice. A chunk's id is its index in
// Plan::chunks(), so ids ascend in model order.
struct Chunk {
  uint32_t id = 0;
  int tensor = 0;
  int64_t begin = 0;  // first element in the tensor
  int64_t size = 0;   // elements
  int shard = 0;
  int64_t model_offset = 0;  // in a worker's buffer (Model::buffer_size())
  int64_t shard_offset = 0;  // in the shard's memory
};

// Assigns every element of a model to exactly one shard and cuts each shard's part into chunks.
// A plan is a pure function of the model, the partition, the number and rates of the shards and
// the chunk size, so every process computes the same one. Immutable.
//
//   absl::StatusOr<std::vector<int64_t>> BytesOfShards(const Model& model, int shards) {
//     Partition partition;
//     partition.set_scheme(Partition::STRIPED);
//     ASSIGN_OR_RETURN(const Plan plan,
//                      Plan::Create(model, partition, shards, /*chunk_bytes=*/64 << 10));
//     std::vector<int64_t> bytes(shards);
//     for (const Chunk& chunk : plan.chunks()) bytes[chunk.shard] += chunk.size * sizeof(float);
//     return bytes;
//   }
class Plan {
 public:
  // The schemes give each shard a part in proportion to its rate in `shard_rates`, in any unit, or
  // equal parts if there are no rates or equal ones:
  // - MEMORY_BASED cuts the model, in model order, into one part for each shard. Without rates, the
  //   parts differ by at most 16 elements.
  // - STRIPED cuts every tensor, in model order, into at most one slice for each shard, so that
  //   each shard has its share of every stretch of the model. Let D be the elements of a chunk
  //   and 48 more. After each tensor, each of S shards owns at most D above its share of all
  //   tensors so far, and at most D * max(1, 1/2 + 1/3 + ... + 1/S) below it, without rates at most
  //   D; over several tensors in a row the difference is at most twice that. A slice that is not a
  //   whole tensor has at least p elements, the smaller of half a chunk and a quarter of an equal
  //   share. So there are at most as many slices as tensors and (elements / p) more.
  // - LAYER_BASED places whole layers or tensors. Only GREEDY goes by rates: each layer goes to
  //   the shard with the least load for its rate.
  // REQUIRES: `shard_rates` is empty or has a rate above 0 for each shard.
  //
  // Errors: INVALID_ARGUMENT if a shard would own nothing (the message says how many shards the
  // model can fill under this scheme, or which shard is too slow), if the scheme is missing or is
  // AUTO, which plan_choice.h resolves, if chunk_bytes is not a positive multiple of 64, or if
  // there would be more than 2^24 chunks.
  static absl::StatusOr<Plan> Create(const Model& model, const Partition& partition, int shards,
                                     int64_t chunk_bytes,
                                     absl::Span<const double> shard_rates = {});

  int shards() const { return static_cast<int>(shard_parameters_.size()); }
  const std::vector<Slice>& slices() const { return slices_; }
  const std::vector<Chunk>& chunks() const { return chunks_; }
  // The ids of the chunks of one shard, or of one tensor, in model order.
  absl::Span<const uint32_t> chunks_of_shard(int shard) const { return shard_chunks_[shard]; }
  absl::Span<const uint32_t> chunks_of_tensor(int tensor) const { return tensor_chunks_[tensor]; }
  // The number of elements that a shard owns.
  int64_t shard_parameters(int shard) const { return shard_parameters_[shard]; }
  // The floats of memory in which a shard keeps them, with each slice at a 64-byte boundary.
  int64_t shard_buffer_size(int shard) const { return shard_buffer_size_[shard]; }
  // Equal for equal plans of equal models, on every machine and in every build.
  uint64_t fingerprint() const { return fingerprint_; }

 private:
  std::vector<Slice> slices_;
  std::vector<Chunk> chunks_;
  std::vector<std::vector<uint32_t>> shard_chunks_;
  std::vector<std::vector<uint32_t>> tensor_chunks_;
  std::vector<int64_t> shard_parameters_;
  std::vector<int64_t> shard_buffer_size_;
  uint64_t fingerprint_ = 0;
};

}  // namespace evenshard

#endif  // EVENSHARD_COMMON_PLACEMENT_PLAN_PLAN_H_
