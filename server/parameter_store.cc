#include "server/parameter_store.h"

#include "common/initializer.h"
#include "server/aggregate.h"

namespace ps {
namespace {

// Returns the optimizer that subtracts what is pushed as it is.
std::unique_ptr<const Optimizer> MakeSubtraction() {
  OptimizerConfig config;
  config.set_kind(OptimizerConfig::SGD);
  config.set_learning_rate(1);
  return Optimizer::Create(config, /*clip_value=*/0);
}

}  // namespace

void StoredChunk::StartSum(const Segments& gradient) {
  CountedTime time(&counters_->aggregate_nanoseconds);
  Decode(gradient_encoding_, gradient, sum_);
}

void StoredChunk::AddToSum(const Segments& gradient) {
  CountedTime time(&counters_->aggregate_nanoseconds);
  ForEachDecodedRun(gradient_encoding_, gradient,
                    [&](int64_t first, const UnalignedFloat* floats, int64_t count) {
                      AddGradient(sum_ + first, floats, count);
                    });
}

void StoredChunk::ApplySum(float scale, int64_t iteration) {
  CountedTime time(&counters_->apply_nanoseconds);
  ++version_;
  optimizer_->Apply(state_, sum_, scale, iteration, version_);
  ++counters_->updates;
}

void StoredChunk::ApplyGradient(const Segments& gradient, int64_t iteration) {
  Apply(/*sum=*/nullptr, gradient, /*scale=*/1.0f, iteration);
}

void StoredChunk::ApplySumAndGradient(const Segments& gradient, float scale, int64_t iteration) {
  Apply(sum_, gradient, scale, iteration);
}

void StoredChunk::Apply(const float* sum, const Segments& gradient, float scale,
                        int64_t iteration) {
  CountedTime time(&counters_->apply_nanoseconds);
  const uint64_t update = ++version_;
  const auto apply = [&](int64_t first, const UnalignedFloat* floats, int64_t count) {
    OptimizerSpan run{state_.parameters.subspan(first, count)};
    for (int slot = 0; slot < optimizer_->slots(); ++slot) {
      run.slots[slot] = state_.slots[slot] + first;
    }
    if (sum != nullptr) run.sum = sum + first;
    optimizer_->Apply(run, floats, scale, iteration, update);
  };
  ForEachDecodedRun(gradient_encoding_, gradient, apply);
  ++counters_->updates;
}

absl::StatusOr<std::unique_ptr<ParameterStore>> ParameterStore::Create(const Config& config,
                                                                       int shard,
                                                                       ShardCounters* counters) {
  const Plan& plan = config.plan();
  const int64_t floats = plan.shard_buffer_size(shard);
  std::unique_ptr<ParameterStore> store(new ParameterStore());
  store->optimizer_ =
      Optimizer::Create(config.proto().optimizer(), config.proto().update().clip_value());
  store->subtraction_ = MakeSubtraction();

  const auto allocate = [&](FloatBuffer& buffer) -> absl::Status {
    absl::StatusOr<FloatBuffer> allocated = FloatBuffer::Allocate(floats);
    if (allocated.ok()) buffer = *std::move(allocated);
    return allocated.status();
  };
  if (absl::Status status = allocate(store->parameters_); !status.ok()) return status;
  for (int slot = 0; slot < store->optimizer_->slots(); ++slot) {
    if (absl::Status status = allocate(store->slots_[slot]); !status.ok()) return status;
  }
  // Otherwise each gradient is an update by itself and is applied as received.
  if (config.proto().update().policy() == Update::SYNC && config.workers() > 1) {
    if (absl::Status status = allocate(store->sums_); !status.ok()) return status;
  }

  store->index_of_.assign(plan.chunks().size(), -1);
  for (const uint32_t id : plan.chunks_of_shard(shard)) {
    const Chunk& chunk = plan.chunks()[id];
    OptimizerSpan state{store->parameters_.span().subspan(chunk.shard_offset, chunk.size)};
    for (int slot = 0; slot < store->optimizer_->slots(); ++slot) {
      state.slots[slot] = store->slots_[slot].data() + chunk.shard_offset;
    }
    const Tensor& tensor = config.model().tensors()[chunk.tensor];
    InitializeParameters(config.proto().training().seed(), tensor, chunk.begin, state.parameters);
    const Optimizer* const optimizer =
        tensor.role == TensorRole::kParameter ? store->optimizer_.get() : store->subtraction_.get();
    float* const sum =
        store->sums_.data() == nullptr ? nullptr : store->sums_.data() + chunk.shard_offset;
    store->index_of_[id] = static_cast<int>(store->chunks_.size());
    store->chunks_.emplace_back(chunk, config.proto().exchange().gradient_encoding(), state, sum,
                                optimizer, counters);
  }
  return store;
}

int ParameterStore::IndexOf(uint32_t chunk_id) const {
  return chunk_id < index_of_.size() ? index_of_[chunk_id] : -1;
}

}  // namespace ps
