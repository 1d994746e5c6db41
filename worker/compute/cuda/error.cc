#include "worker/compute/cuda/error.h"

#include <array>

namespace evenshard {
namespace {

// Returns "CUDA 12.4" for 12040, the form in which the run-time library gives versions.
std::string Version(int version) {
  return "CUDA " + std::to_string(version / 1000) + "." + std::to_string(version % 1000 / 10);
}

std::string DriverTooOld() {
  int driver = 0;
  int needed = 0;
  cudaDriverGetVersion(&driver);
  cudaRuntimeGetVersion(&needed);
  if (driver == 0) return "this machine has no NVIDIA driver";
  return "the NVIDIA driver is for " + Version(driver) +
         ", too old for this program, which needs " + Version(needed);
}

CudaError::Kind KindOf(cudaError_t result) {
  switch (result) {
    case cudaErrorNoDevice:
    case cudaErrorInvalidDevice:
    case cudaErrorInsufficientDriver:
    case cudaErrorSystemDriverMismatch:
    case cudaErrorNoKernelImageForDevice:
      return CudaError::Kind::kSetup;
    case cudaErrorMemoryAllocation:
      return CudaError::Kind::kMemory;
    case cudaErrorAssert:
    case cudaErrorContextIsDestroyed:
    case cudaErrorDevicesUnavailable:
    case cudaErrorECCUncorrectable:
    case cudaErrorHardwareStackError:
    case cudaErrorIllegalAddress:
    case cudaErrorIllegalInstruction:
    case cudaErrorInvalidAddressSpace:
    case cudaErrorInvalidPc:
    case cudaErrorLaunchFailure:
    case cudaErrorLaunchTimeout:
    case cudaErrorMisalignedAddress:
    case cudaErrorMpsClientTerminated:
    case cudaErrorNvlinkUncorrectable:
    case cudaErrorSystemNotReady:
    case cudaErrorUnknown:
      return CudaError::Kind::kLost;
    default:
      return CudaError::Kind::kOther;
  }
}

// Throws if the device is lost. Called after errors of cuBLAS and cuDNN, which only say that
// something failed, and do not report the device's error.
void CheckDevice(const char* what) { Check(cudaDeviceSynchronize(), what); }

}  // namespace

bool IsOutOfMemory(cudnnStatus_t result) {
  return result == CUDNN_STATUS_INTERNAL_ERROR_HOST_ALLOCATION_FAILED ||
         result == CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED;
}

void Check(cudaError_t result, const char* what) {
  if (result == cudaSuccess) return;
  cudaGetLastError();  // so that a later call does not report it again
  const CudaError::Kind kind = KindOf(result);
  std::string text = result == cudaErrorInsufficientDriver
                         ? DriverTooOld()
                         : std::string(cudaGetErrorString(result));
  if (kind == CudaError::Kind::kLost) text = "the device was lost: " + text;
  throw CudaError(kind, std::string(what) + ": " + text + " (" + cudaGetErrorName(result) + ")");
}

void Check(cublasStatus_t result, const char* what) {
  if (result == CUBLAS_STATUS_SUCCESS) return;
  CheckDevice(what);
  const auto kind =
      result == CUBLAS_STATUS_ALLOC_FAILED ? CudaError::Kind::kMemory : CudaError::Kind::kOther;
  throw CudaError(kind, std::string(what) + ": cuBLAS: " + cublasGetStatusString(result));
}

void Check(cudnnStatus_t result, const char* what) {
  if (result == CUDNN_STATUS_SUCCESS) return;
  CheckDevice(what);
  std::array<char, 512> detail = {};
  cudnnGetLastErrorString(detail.data(), detail.size());
  throw CudaError(
      IsOutOfMemory(result) ? CudaError::Kind::kMemory : CudaError::Kind::kOther,
      std::string(what) + ": cuDNN: " + cudnnGetErrorString(result) + ": " + detail.data());
}

}  // namespace evenshard
