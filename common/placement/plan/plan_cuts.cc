#include "common/placement/plan/plan_cuts.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "absl/numeric/int128.h"

namespace evenshard {
namespace {

// Returns the shard with the least load for its rate, of equal ones the fastest, of those the
// first.
int LeastLoaded(const std::vector<int64_t>& load, absl::Span<const double> rates) {
  int least = 0;
  for (size_t shard = 1; shard < load.size(); ++shard) {
    const double rate = rates.empty() ? 1 : rates[shard];
    const double least_rate = rates.empty() ? 1 : rates[least];
    const double time = load[shard] / rate;
    const double least_time = load[least] / least_rate;
    if (time < least_time || (time == least_time && rate > least_rate)) least = shard;
  }
  return least;
}

// Places whole layers, or whole tensors, on the shards that `placement` selects.
std::vector<Slice> CutByLayers(const Model& model, Partition::Placement placement, int shards,
                               absl::Span<const double> rates) {
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
    const int shard =
        placement == Partition::GREEDY ? LeastLoaded(load, rates) : static_cast<int>(i % shards);
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

// Returns how many elements each shard owns under MEMORY_BASED without rates. For S shards, let the
// number of all elements be 16 * (q * S + m) + r with m < S and r < 16. The first m shards own
// 16 * (q + 1) elements each and the others 16 * q. The last shard is always one of the others and
// owns r more. So no two shards differ by more than 16 elements.
std::vector<int64_t> EqualSizes(int64_t parameters, int shards) {
  const int64_t units = parameters / kAlignment;
  std::vector<int64_t> sizes(shards);
  for (int shard = 0; shard < shards; ++shard) {
    sizes[shard] = kAlignment * (units / shards + (shard < units % shards ? 1 : 0));
  }
  sizes.back() += parameters % kAlignment;
  return sizes;
}

// Returns how many elements each shard owns under MEMORY_BASED with rates. Units of 16 elements are
// assigned in proportion to the rates, and rounded so that the largest quotient of units and rate
// is as small as possible. Equal rates give EqualSizes.
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

// Returns the smallest piece of a larger tensor under STRIPED: half a chunk, but at most a quarter
// of a shard's equal share, so that few large pieces cannot leave a shard without any.
int64_t LeastPiece(const Model& model, int shards, int64_t chunk_size) {
  const int64_t quarter = CeilDiv(model.element_count(), 4 * int64_t{shards});
  return RoundUp(std::min(CeilDiv(chunk_size, 2), quarter));
}

// Returns the rates as whole numbers, so that shares are computed without rounding errors.
std::vector<int64_t> Weights(int shards, absl::Span<const double> rates) {
  if (rates.empty()) return std::vector<int64_t>(shards, 1);
  constexpr int kBits = 32;
  const double largest = *std::max_element(rates.begin(), rates.end());
  std::vector<int64_t> weights;
  for (const double rate : rates) {
    weights.push_back(std::llround(std::ldexp(rate / largest, kBits)));
  }
  return weights;
}

// Deals out the tensors, in model order. A shard's deficit is what it lacks of its share of all
// elements up to the end of a tensor. The shards with the largest deficits get the tensor, so that
// equal deficits remain to them, and as many of them as there can be without a piece below
// LeastPiece. The pieces of a tensor lie in the order of the shards.
//
// The bounds in plan.h follow. Let p be the least piece and D = 2 * p + 32. A piece for one more
// shard would have been smaller than p, so after a tensor no deficit exceeds that of a shard which
// got a piece by more than D; 32 is for rounding to 16 elements. Deficits add up to 0. So a shard
// that got a piece has a deficit of at least -D, and until it gets the next one the deficit grows.
// With equal shares, all deficits grow at the same rate, so that no two ever differ by more than D.
// Otherwise let F(j) be the sum of the j largest deficits. If the whole tensor went to these
// shards, F(j) did not grow. If not, another shard got a piece, whose deficit is at least F(j) / j
// - D, and F(j + 1) / (j + 1) >= F(j) / j - D / (j + 1). As F(S) = 0, F(1) <= D * (1/2 + ... +
// 1/S).
std::vector<Slice> CutInStripes(const Model& model, int shards, int64_t chunk_size,
                                absl::Span<const double> rates) {
  const std::vector<int64_t> weights = Weights(shards, rates);
  const int64_t weight_sum = std::accumulate(weights.begin(), weights.end(), int64_t{0});
  const int64_t least_piece = LeastPiece(model, shards, chunk_size);
  std::vector<int64_t> load(shards, 0);
  std::vector<int64_t> deficit(shards);
  std::vector<int> neediest(shards);
  std::vector<int64_t> pieces(shards);
  int64_t dealt = 0;
  std::vector<Slice> slices;
  for (size_t tensor = 0; tensor < model.tensors().size(); ++tensor) {
    const int64_t size = model.tensors()[tensor].size;
    dealt += size;
    for (int shard = 0; shard < shards; ++shard) {
      const absl::uint128 share = absl::uint128(dealt) * weights[shard] / weight_sum;
      deficit[shard] = static_cast<int64_t>(absl::Uint128Low64(share)) - load[shard];
    }
    std::iota(neediest.begin(), neediest.end(), 0);
    std::stable_sort(neediest.begin(), neediest.end(),
                     [&](int a, int b) { return deficit[a] > deficit[b]; });

    // The piece of each shard is its deficit less (deficits - aligned) / count, which remains.
    const int64_t aligned = size / kAlignment * kAlignment;
    int64_t count = 1;
    int64_t deficits = deficit[neediest[0]];
    for (; count < shards; ++count) {
      const int64_t next = deficit[neediest[count]];
      if ((count + 1) * (next - least_piece) < deficits + next - aligned) break;
      deficits += next;
    }
    int64_t left = aligned / kAlignment;
    for (int64_t i = 0; i < count; ++i) {
      const int shard = neediest[i];
      const int64_t units = (count * deficit[shard] - deficits + aligned) / (count * kAlignment);
      pieces[shard] = units * kAlignment;
      left -= units;
    }
    for (int64_t i = 0; i < left; ++i) pieces[neediest[i]] += kAlignment;

    std::sort(neediest.begin(), neediest.begin() + count);
    pieces[neediest[count - 1]] += size - aligned;
    int64_t begin = 0;
    for (int64_t i = 0; i < count; ++i) {
      const int shard = neediest[i];
      slices.push_back({.tensor = static_cast<int>(tensor),
                        .begin = begin,
                        .size = pieces[shard],
                        .shard = shard});
      begin += pieces[shard];
      load[shard] += pieces[shard];
    }
  }
  return slices;
}

}  // namespace

int64_t MaxShards(const Model& model, const Partition& partition) {
  if (partition.scheme() == Partition::MEMORY_BASED) {
    return CeilDiv(model.element_count(), kAlignment);
  }
  if (partition.scheme() == Partition::STRIPED) {
    int64_t pieces = 0;
    for (const Tensor& tensor : model.tensors()) {
      pieces += std::max<int64_t>(1, tensor.size / kAlignment);
    }
    return pieces;
  }
  if (partition.placement() == Partition::TENSOR_ROUND_ROBIN) return model.tensors().size();
  return std::count_if(model.layers().begin(), model.layers().end(),
                       [](const Layer& layer) { return layer.tensor_count > 0; });
}

std::vector<Slice> CutModel(const Model& model, const Partition& partition, int shards,
                            int64_t chunk_size, absl::Span<const double> rates) {
  // Equal rates are as good as none, and exact.
  if (std::adjacent_find(rates.begin(), rates.end(), std::not_equal_to<>()) == rates.end()) {
    rates = {};
  }
  if (partition.scheme() == Partition::LAYER_BASED) {
    return CutByLayers(model, partition.placement(), shards, rates);
  }
  if (partition.scheme() == Partition::STRIPED) {
    return CutInStripes(model, shards, chunk_size, rates);
  }
  return CutBySizes(model, rates.empty() ? EqualSizes(model.element_count(), shards)
                                         : ProportionalSizes(model.element_count(), rates));
}

}  // namespace evenshard
