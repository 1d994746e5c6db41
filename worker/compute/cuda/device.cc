#include "worker/compute/cuda/device.h"

#include <array>

#include "absl/strings/str_cat.h"
#include "worker/compute/cuda/error.h"

namespace evenshard {
namespace {

// With a smaller workspace than this, cuBLAS uses its own.
constexpr size_t kLeastCublasWorkspace = size_t{4} << 20;

// Compute capabilities, as 10 * major + minor: the lowest one that the kernels are compiled for
// (third_party/cuda.bzl), and the lowest one that multiplies in bfloat16.
constexpr int kLeastCapability = 75;
constexpr int kLeastBfloat16Capability = 80;

std::string Capability(int number) { return absl::StrCat(number / 10, ".", number % 10); }

CudaError SetupError(const std::string& text) { return {CudaError::Kind::kSetup, text}; }

}  // namespace

CudaEvent::CudaEvent(bool timing) {
  const unsigned flags = cudaEventBlockingSync | (timing ? 0 : cudaEventDisableTiming);
  Check(cudaEventCreateWithFlags(&event_, flags), "making an event");
}

void CudaEvent::Record(cudaStream_t stream) {
  Check(cudaEventRecord(event_, stream), "recording an event");
}

void CudaEvent::Await(cudaStream_t stream) const {
  Check(cudaStreamWaitEvent(stream, event_, /*flags=*/0), "waiting for an event");
}

void CudaEvent::Await() const { Check(cudaEventSynchronize(event_), "waiting for the device"); }

bool CudaEvent::IsReached() const {
  const cudaError_t result = cudaEventQuery(event_);
  if (result != cudaErrorNotReady) Check(result, "asking for an event");
  return result == cudaSuccess;
}

double CudaEvent::SecondsBetween(const CudaEvent& from, const CudaEvent& to) {
  float milliseconds = 0;
  Check(cudaEventElapsedTime(&milliseconds, from.event_, to.event_), "reading a time");
  return milliseconds * 1e-3;
}

int CudaDevice::Count() {
  int count = 0;
  const cudaError_t result = cudaGetDeviceCount(&count);
  if (result != cudaErrorNoDevice) Check(result, "looking for CUDA devices");
  return count;
}

CudaDevice::CudaDevice(const Options& options) : options_(options) {
  try {
    Open();
  } catch (...) {
    Close();
    throw;
  }
}

CudaDevice::~CudaDevice() { Close(); }

void CudaDevice::Open() {
  const int count = Count();
  if (options_.number < 0 || options_.number >= count) {
    throw SetupError(absl::StrCat("there is no CUDA device ", options_.number,
                                  ": this machine has ", count,
                                  count == 0 ? "" : absl::StrCat(", numbers 0 to ", count - 1)));
  }
  if (cudnnGetVersion() < CUDNN_MAJOR * 10000) {
    throw SetupError(absl::StrCat("cuDNN is version ", cudnnGetVersion(),
                                  ", too old for this program, which needs ", CUDNN_MAJOR * 10000,
                                  " (", CUDNN_MAJOR, ".0)"));
  }
  Use();
  cudaDeviceProp properties;
  Check(cudaGetDeviceProperties(&properties, options_.number), "asking for the device's name");
  name_ = properties.name;
  const int capability = 10 * properties.major + properties.minor;
  const bool bfloat16 = precision() == Compute::Cuda::BFLOAT16;
  const int needed = bfloat16 ? kLeastBfloat16Capability : kLeastCapability;
  if (capability < needed) {
    throw SetupError(absl::StrCat("CUDA device ", options_.number, ", ", name_,
                                  ", has compute capability ", Capability(capability), ", and ",
                                  bfloat16 ? "compute.cuda.precision BFLOAT16" : "this program",
                                  " needs ", Capability(needed), " or more"));
  }
  std::array<char, 32> bus = {};
  Check(cudaDeviceGetPCIBusId(bus.data(), bus.size(), options_.number), "asking for the PCI bus");
  pci_bus_id_ = bus.data();

  for (cudaStream_t* stream : {&compute_, &upload_, &download_}) {
    Check(cudaStreamCreateWithFlags(stream, cudaStreamNonBlocking), "making a stream");
  }
  if (options_.workspace_bytes > 0) {
    Check(cudaMalloc(&workspace_, options_.workspace_bytes),
          "allocating the workspace (compute.cuda.workspace_bytes)");
  }
  Check(cublasCreate(&cublas_), "starting cuBLAS");
  Check(cublasSetStream(cublas_, compute_), "giving cuBLAS its stream");
  // Sums are float32, also where a product is made in parts and its result is bfloat16.
  Check(cublasSetMathMode(cublas_, CUBLAS_MATH_DISALLOW_REDUCED_PRECISION_REDUCTION),
        "choosing how cuBLAS sums");
  if (options_.workspace_bytes >= kLeastCublasWorkspace) {
    Check(cublasSetWorkspace(cublas_, workspace_, options_.workspace_bytes),
          "giving cuBLAS its workspace");
  }
  Check(cudnnCreate(&cudnn_), "starting cuDNN");
  Check(cudnnSetStream(cudnn_, compute_), "giving cuDNN its stream");
}

void CudaDevice::Close() {
  if (cudnn_ != nullptr) cudnnDestroy(cudnn_);
  if (cublas_ != nullptr) cublasDestroy(cublas_);
  if (workspace_ != nullptr) cudaFree(workspace_);
  for (const cudaStream_t stream : {compute_, upload_, download_}) {
    if (stream != nullptr) cudaStreamDestroy(stream);
  }
}

void CudaDevice::Use() const { Check(cudaSetDevice(options_.number), "choosing the device"); }

void CudaDevice::Synchronize() const {
  for (const cudaStream_t stream : {upload_, compute_, download_}) {
    Check(cudaStreamSynchronize(stream), "waiting for the device");
  }
}

}  // namespace evenshard
