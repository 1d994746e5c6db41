#include "worker/training/local_model.h"

#include <algorithm>

#include "absl/memory/memory.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/base/text.h"
#include "common/config/optimizer_arrays.h"

namespace evenshard {

absl::StatusOr<std::unique_ptr<LocalModel>> LocalModel::Create(const PlannedConfig& config) {
  std::unique_ptr<LocalModel> local = absl::WrapUnique(new LocalModel(config));
  const auto allocate = [&](FloatBuffer& buffer) -> absl::Status {
    ASSIGN_OR_RETURN(buffer, FloatBuffer::Allocate(config.model().buffer_size()));
    return absl::OkStatus();
  };
  RETURN_IF_ERROR(allocate(local->parameters_));
  RETURN_IF_ERROR(allocate(local->gradients_));
  local->slots_.resize(OptimizerArrays(config.proto().local().optimizer().kind()));
  for (FloatBuffer& slot : local->slots_) RETURN_IF_ERROR(allocate(slot));
  return local;
}

LocalModel::LocalModel(const PlannedConfig& config)
    : model_(config.model()),
      optimizers_(config.proto().local().optimizer(), /*clip_value=*/0, config.model()) {}

void LocalModel::Step(int64_t iteration) {
  ++updates_;
  for (size_t i = 0; i < model_.tensors().size(); ++i) {
    const Tensor& tensor = model_.tensors()[i];
    const Optimizer& optimizer = optimizers_.Of(static_cast<int>(i));
    OptimizerSpan span{parameters().subspan(tensor.offset, tensor.size)};
    for (int slot = 0; slot < optimizer.slots(); ++slot) {
      span.slots[slot] = slots_[slot].data() + tensor.offset;
    }
    optimizer.Apply(span, gradients_.data() + tensor.offset, /*scale=*/1,
                    optimizer.NumbersOf(iteration), updates_);
  }
}

WorkerState LocalModel::state() {
  WorkerState state = {.text = absl::StrCat(updates_), .memory = {}};
  for (FloatBuffer& slot : slots_) {
    state.memory.push_back({reinterpret_cast<char*>(slot.data()), slot.span().size() * 4});
  }
  return state;
}

absl::StatusOr<WorkerState::Memory> LocalModel::PlaceState(const std::string& text) {
  if (!absl::SimpleAtoi(text, &updates_) || updates_ < 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("the state of a worker's optimizer begins with \"", Printable(text),
                     "\", expected the number of its steps"));
  }
  return state().memory;
}

void LocalModel::ForgetState() {
  updates_ = 0;
  for (FloatBuffer& slot : slots_) std::fill(slot.span().begin(), slot.span().end(), 0.0f);
}

}  // namespace evenshard
