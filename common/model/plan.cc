#include "common/model/plan.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "common/base/hash.h"

namespace ps {
namespace {

constexpr int64_t kMaxChunks = int64_t{1} << 24;

int64_t CeilDiv(int64_t a, int64_t b) { return (a + b - 1) / b; }
int64_t RoundUp(int64_t n) { return CeilDiv(n, kAlignment) * kAlignment; }

// Places whole layers, or whole tensors, on the shards that `placement` selects.
std::vector<Slice> CutByLayers(const Model& model, Partition::Placement placement, int shards) {
  // A run of tensors that is placed as one piece.
  struct Unit {
    int first_tensor;
    int tensor_count;
    int64_t elements;
  };
  std::vector<Unit> units;
  for (const Layer& layer : model.layers()) {
    if (placement == Partition::TENSOR_ROUND_ROBIN) {
      for (int i = 0; i < layer.tensor_count; ++i) {
        const int tensor = layer.first_tensor + i;
        units.push_back({tensor, 1, model.tensors()[tensor].size});
      }
    } else if (layer.tensor_count > 0) {
      units.push_back({layer.first_tensor, layer.tensor_count, layer.elements});
    }
  }

  std::vector<int> order(units.size());
  std::iota(order.begin(), order.end(), 0);
  if (placement == Partition::GREEDY) {
    std::stable_sort(order.begin(), order.end(),
                     [&](int a, int b) { return units[a].elements > units[b].elements; });
  }
  std::vector<int64_t> load(shards, 0);
  std::vector<int> shard_of_tensor(model.tensors().size());
  for (size_t i = 0; i < order.size(); ++i) {
    const Unit& unit = units[order[i]];
    const int shard = placement == Partition::GREEDY
                          ? std::min_element(load.begin(), load.end()) - load.begin()
                          : i % shards;
    load[shard] += unit.elements;
    std::fill_n(shard_of_tensor.begin() + unit.first_tensor, unit.tensor_count, shard);
  }

  std::vector<Slice> slices;
  for (size_t tensor = 0; tensor < model.tensors().size(); ++tensor) {
    slices.push_back({.tensor = static_cast<int>(tensor),
                      .size = model.tensors()[tensor].size,
                      .shard = shard_of_tensor[tensor]});
  }
  return slices;
}

// Returns how many elements each shard owns under MEMORY_BASED. For S shards, let the number of all
// elements be 16 * (q * S + m) + r with m < S and r < 16. The first m shards own 16 * (q + 1)
// elements each and the others 16 * q. The last shard is always one of the others and owns r more.
// So no two shards differ by more than 16 elements.
std::vector<int64_t> EqualSizes(int64_t parameters, int shards) {
  const int64_t units = parameters / kAlignment;
  std::vector<int64_t> sizes(shards);
  for (int shard = 0; shard < shards; ++shard) {
    sizes[shard] = kAlignment * (units / shards + (shard < units % shards ? 1 : 0));
  }
  sizes.back() += parameters % kAlignment;
  return sizes;
}

// Returns how many elements each shard owns under AUTO. Units of 16 elements are assigned in
// proportion to the rates, and rounded so that the largest quotient of units and rate is as small
// as possible. Equal rates give EqualSizes.
std::vector<int64_t> ProportionalSizes(int64_t parameters, absl::Span<const double> rates) {
  const int64_t units = parameters / kAlignment;
  const double sum = std::accumulate(rates.begin(), rates.end(), 0.0);
  std::vector<int64_t> sizes;
  int64_t left = units;
  for (const double rate : rates) {
    // Each shard first gets one unit less than its share rounded down, so that rounding errors of
    // the division never hand out more units than there are.
    sizes.push_back(
        std::max<int64_t>(0, static_cast<int64_t>(std::floor(units * (rate / sum))) - 1));
    left -= sizes.back();
  }
  for (; left > 0; --left) {
    size_t next = 0;
    for (size_t shard = 1; shard < sizes.size(); ++shard) {
      if ((sizes[shard] + 1) / rates[shard] < (sizes[next] + 1) / rates[next]) next = shard;
    }
    ++sizes[next];
  }
  for (int64_t& size : sizes) size *= kAlignment;
  sizes.back() += parameters % kAlignment;
  return sizes;
}

// Cuts the tensors, in model order, into one run of elements per shard, of the given sizes.
std::vector<Slice> CutBySizes(const Model& model, const std::vector<int64_t>& sizes) {
  std::vector<Slice> slices;
  int shard = -1;
  int64_t room = 0;  // elements that `shard` can still take
  for (size_t tensor = 0; tensor < model.tensors().size(); ++tensor) {
    int64_t begin = 0;
    while (begin < model.tensors()[tensor].size) {
      while (room == 0) room = sizes[++shard];
      const int64_t size = std::min(room, model.tensors()[tensor].size - begin);
      slices.push_back(
          {.tensor = static_cast<int>(tensor), .begin = begin, .size = size, .shard = shard});
      begin += size;
      room -= size;
    }
  }
  return slices;
}

// Returns the largest number of shards for which each of them owns something.
int64_t MaxShards(const Model& model, const Partition& partition) {
  if (partition.scheme() != Partition::LAYER_BASED) {
    return CeilDiv(model.element_count(), kAlignment);
  }
  if (partition.placement() == Partition::TENSOR_ROUND_ROBIN) return model.tensors().size();
  return std::count_if(model.layers().begin(), model.layers().end(),
                       [](const Layer& layer) { return layer.tensor_count > 0; });
}

std::string SchemeName(const Partition& partition) {
  std::string name = Partition::Scheme_Name(partition.scheme());
  if (partition.scheme() == Partition::LAYER_BASED) {
    absl::StrAppend(&name, " ", Partition::Placement_Name(partition.placement()));
  }
  return name;
}

// Hashes a text in which a separator follows every number and every name's length precedes it, so
// that different plans have different texts.
uint64_t Fingerprint(const Model& model, const std::vector<Slice>& slices, int shards,
                     int64_t chunk_bytes) {
  std::string text = absl::StrCat("plan;", shards, ";", chunk_bytes, ";");
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

absl::StatusOr<Plan> Plan::Create(const Model& model, const Partition& partition, int shards,
                                  int64_t chunk_bytes, absl::Span<const double> shard_rates) {
  if (partition.scheme() == Partition::SCHEME_UNSPECIFIED) {
    return absl::InvalidArgumentError(
        "the partition scheme is missing, allowed are LAYER_BASED, MEMORY_BASED and AUTO");
  }
  if (chunk_bytes <= 0 || chunk_bytes % 64 != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("chunk_bytes is ", chunk_bytes, ", it must be a positive multiple of 64"));
  }
  if (const int64_t most = MaxShards(model, partition); shards < 1 || shards > most) {
    return absl::InvalidArgumentError(absl::StrCat(
        "the plan has ", shards, " shards, but the model ", model.name(), " can fill 1 to ", most,
        " shards under ", SchemeName(partition), "; every shard must own parameters"));
  }

  Plan plan;
  if (partition.scheme() == Partition::LAYER_BASED) {
    plan.slices_ = CutByLayers(model, partition.placement(), shards);
  } else {
    const bool by_rates = partition.scheme() == Partition::AUTO && !shard_rates.empty();
    const std::vector<int64_t> sizes = by_rates
                                           ? ProportionalSizes(model.element_count(), shard_rates)
                                           : EqualSizes(model.element_count(), shards);
    if (const auto empty = std::find(sizes.begin(), sizes.end(), 0); empty != sizes.end()) {
      const int64_t shard = empty - sizes.begin();
      return absl::InvalidArgumentError(absl::StrCat(
          "shard ", shard, " would own nothing under AUTO, its rate of ", shard_rates[shard],
          " is too small beside the others'; every shard must own parameters"));
    }
    plan.slices_ = CutBySizes(model, sizes);
  }
  plan.fingerprint_ = Fingerprint(model, plan.slices_, shards, chunk_bytes);

  const int64_t chunk_size = chunk_bytes / static_cast<int64_t>(sizeof(float));
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
  plan.shard_parameters_.resize(shards);
  plan.shard_buffer_size_.resize(shards);
  for (Slice& slice : plan.slices_) {
    slice.shard_offset = plan.shard_buffer_size_[slice.shard];
    plan.shard_buffer_size_[slice.shard] += RoundUp(slice.size);
    plan.shard_parameters_[slice.shard] += slice.size;
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

}  // namespace ps
