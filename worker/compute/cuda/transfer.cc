#include "worker/compute/cuda/transfer.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace evenshard {

CudaTransfer::CudaTransfer(CudaDevice* device, const Model* model, CudaMemory* memory,
                           CudaTimeline* timeline)
    : device_(device),
      model_(model),
      timeline_(timeline),
      parameters_(memory->Declare(model->buffer_size() * sizeof(float))),
      gradients_(memory->Declare(model->buffer_size() * sizeof(float))),
      layer_of_tensor_(model->tensors().size()),
      links_(model->layers().size()) {
  absl::MutexLock lock(&mutex_);
  for (size_t layer = 0; layer < links_.size(); ++layer) {
    const Layer& owner = model->layers()[layer];
    links_[layer].elements = owner.elements;
    for (int i = 0; i < owner.tensor_count; ++i) layer_of_tensor_[owner.first_tensor + i] = layer;
  }
}

void CudaTransfer::Prepare() {
  // The gaps between the tensors are copied to the host too.
  Check(cudaMemsetAsync(gradients_->data, 0, gradients_->bytes, device_->compute()),
        "clearing the gradients");
}

void CudaTransfer::UseBuffers(absl::Span<const float> parameters, absl::Span<float> gradients) {
  device_->Synchronize();
  parameter_lock_ = {};
  gradient_lock_ = {};
  parameter_lock_ =
      PinnedMemory::Lock(const_cast<float*>(parameters.data()), parameters.size() * sizeof(float));
  if (!gradients.empty()) {
    gradient_lock_ = PinnedMemory::Lock(gradients.data(), gradients.size() * sizeof(float));
  }
  host_parameters_ = parameters;
  host_gradients_ = gradients;
  absl::MutexLock lock(&mutex_);
  for (Link& link : links_) link.written = 0;
}

void CudaTransfer::Written(int64_t begin, int64_t count) {
  const std::vector<Tensor>& tensors = model_->tensors();
  const int64_t end = begin + count;
  auto tensor =
      std::upper_bound(tensors.begin(), tensors.end(), begin,
                       [](int64_t at, const Tensor& t) { return at < t.offset + t.size; });
  absl::MutexLock lock(&mutex_);
  if (failure_.has_value()) return;
  try {
    device_->Use();
    for (; tensor != tensors.end() && tensor->offset < end; ++tensor) {
      const int64_t first = std::max(begin, tensor->offset);
      const int64_t last = std::min(end, tensor->offset + tensor->size);
      Upload(layer_of_tensor_[tensor - tensors.begin()], first, last - first);
    }
  } catch (const CudaError& error) {
    failure_ = error;
  }
}

void CudaTransfer::Upload(int layer, int64_t begin, int64_t count) {
  Link& link = links_[layer];
  const cudaStream_t stream = device_->upload();
  timeline_->Begin(Trace::Row::kToDevice, "to the device", layer, stream);
  Check(cudaMemcpyAsync(parameters_->floats() + begin, host_parameters_.data() + begin,
                        count * sizeof(float), cudaMemcpyHostToDevice, stream),
        "copying parameters to the device");
  link.on_device.Record(stream);
  timeline_->End(Trace::Row::kToDevice, layer, stream);
  if (link.is_complete) return;
  link.written += count;
  link.is_complete = link.written >= link.elements;
}

void CudaTransfer::AwaitOnDevice(int layer) {
  absl::MutexLock lock(&mutex_);
  if (failure_.has_value()) throw *failure_;
  const Link& link = links_[layer];
  if (!link.is_complete) {
    throw CudaError(
        CudaError::Kind::kOther,
        absl::StrCat("the device has ", link.written, " of its ", link.elements, " parameters"));
  }
  link.on_device.Await(device_->compute());
}

void CudaTransfer::Fetch(int layer) {
  const auto [begin, size] = model_->RangeOf(model_->layers()[layer]);
  const cudaStream_t stream = device_->download();
  absl::MutexLock lock(&mutex_);
  Link& link = links_[layer];
  link.computed.Record(device_->compute());
  link.computed.Await(stream);
  if (!fetches()) {
    link.on_host.Record(stream);
    return;
  }
  timeline_->Begin(Trace::Row::kFromDevice, "from the device", layer, stream);
  Check(cudaMemcpyAsync(host_gradients_.data() + begin, gradients_->floats() + begin,
                        size * sizeof(float), cudaMemcpyDeviceToHost, stream),
        "copying gradients from the device");
  timeline_->End(Trace::Row::kFromDevice, layer, stream);
  link.on_host.Record(stream);
}

void CudaTransfer::AwaitOnHost(int layer) {
  const CudaEvent* on_host;
  {
    absl::MutexLock lock(&mutex_);
    on_host = &links_[layer].on_host;  // recorded by this thread alone
  }
  on_host->Await();
}

}  // namespace evenshard
