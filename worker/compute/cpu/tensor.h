#ifndef EVENSHARD_WORKER_COMPUTE_CPU_TENSOR_H_
#define EVENSHARD_WORKER_COMPUTE_CPU_TENSOR_H_

#include <cstdint>

#include "absl/types/span.h"
#include "common/placement/model/model.h"
#include "oneapi/dnnl/dnnl.hpp"
#include "worker/compute/cpu/device.h"

namespace evenshard {

// A parameter tensor as oneDNN sees it in a worker's buffers: in the plain format, at its offset.
// Immutable.
class CpuTensor {
 public:
  CpuTensor(const CpuDevice& device, const Tensor& tensor)
      : engine_(device.engine()), desc_(PlainFormat(tensor.shape)), offset_(tensor.offset) {}

  const dnnl::memory::desc& desc() const { return desc_; }

  // Both return a view that is valid as long as the buffer. oneDNN has no read-only memory, so a
  // view of the parameters may only be used as a source.
  dnnl::memory InParameters(absl::Span<const float> parameters) const {
    return dnnl::memory(desc_, engine_, const_cast<float*>(parameters.data() + offset_));
  }
  dnnl::memory InGradients(absl::Span<float> gradients) const {
    return dnnl::memory(desc_, engine_, gradients.data() + offset_);
  }

 private:
  dnnl::engine engine_;
  dnnl::memory::desc desc_;
  int64_t offset_;
};

}  // namespace evenshard

#endif  // EVENSHARD_WORKER_COMPUTE_CPU_TENSOR_H_
