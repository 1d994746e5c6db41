#ifndef PS_TESTS_TESTING_CUDA_DEVICE_H_
#define PS_TESTS_TESTING_CUDA_DEVICE_H_

#include <cuda_runtime_api.h>
#include <cudnn.h>

#include <chrono>
#include <cstdint>
#include <string>

// A stand-in for a CUDA device: the functions of the CUDA runtime (runtime.cc), cuBLAS (blas.cc)
// and cuDNN (dnn.cc) that this project calls, on the CPU, behind the toolkit's own headers. What
// is linked against it runs without a GPU, driver or NVIDIA library. This header is how a test
// sets up the device, loses it, and looks for leaks.
//
// It is faithful in what host code can get wrong:
// - Order. A stream is a thread that runs what is enqueued, in order; a call enqueues and
//   returns. Nothing but streams, events and synchronisation orders one stream after another or
//   the host after a stream, not even a lock of the stand-in's own, so that a missing event gives
//   wrong numbers or a report of thread-sanitizer; Options::longest_delay shakes both out.
// - Memory. Device memory is memory of the host, limited, NaNs (0xff) when allocated, between
//   guards that cudaFree checks. Copies, gemms and convolutions look at every operand's range.
//   Host memory is read and written when CUDA does it: pinned when the copy runs, pageable at the
//   call.
// - Errors. Wrong arguments, limits, a driver too old, no device, a device lost on the way.
//
// Stricter than CUDA: there is no default stream (a null stream is an error), device memory
// cannot be reached from another device, a copy must not overlap itself, and a cuDNN descriptor
// must outlive the finalized ones that refer to it. Kernels are host functions
// (cudaLaunchHostFunc), so what they touch is not checked but for the guards.
//
// It says nothing about speed, nor about a GPU's rounding: all arithmetic is float32.

namespace ps::cuda_stand_in {

struct Options {
  int devices = 1;                          // 0: cudaErrorNoDevice
  int64_t memory_bytes = int64_t{2} << 30;  // of each device
  bool driver_too_old = false;              // every call: cudaErrorInsufficientDriver, but
                                            // for those that ask for versions and texts
  int driver_version = CUDART_VERSION;      // 1000 * major + 10 * minor
  int runtime_version = CUDART_VERSION;
  size_t cudnn_version = CUDNN_VERSION;  // 10000 * major + 100 * minor + patch
  int compute_major = 9;
  int compute_minor = 0;
  std::chrono::microseconds longest_delay{0};  // before each piece of a stream's work, uniform
  uint64_t seed = 0;                           // of the delays
};

// A fresh device with these options, nothing counted yet. REQUIRES: nothing is alive (aborts, and
// says what is): a leak is found where it was made.
void Reset(const Options& options = {});

// Loses all devices: the `enqueues`-th call from now that puts work on a stream (0: this moment,
// 1: the next one) and every call after it return `error`, until Reset. What is enqueued and has
// not begun is dropped. What is destroyed or freed is so in spite of the error.
void LoseDevice(int64_t enqueues, cudaError_t error = cudaErrorLaunchFailure);

// What is alive.
struct Live {
  int64_t allocations = 0;
  int64_t bytes = 0;          // of them
  int64_t registrations = 0;  // host memory, registered or allocated pinned
  int64_t streams = 0;
  int64_t events = 0;
  int64_t blas_handles = 0;
  int64_t dnn_handles = 0;
  int64_t dnn_descriptors = 0;

  bool operator==(const Live&) const = default;
};
Live GetLive();

// What was done since Reset.
struct Totals {
  int64_t enqueues = 0;    // calls that put work on a stream
  int64_t peak_bytes = 0;  // the most device memory at once
  int64_t gemms = 0;
  int64_t convolutions = 0;
  int64_t tf32_calls = 0;  // those of the two that let a GPU round float32 operands to TF32
};
Totals GetTotals();

// What was wrong with this thread's last call that failed, in words (cudnnGetLastErrorString
// gives the same).
std::string LastProblem();

}  // namespace ps::cuda_stand_in

#endif  // PS_TESTS_TESTING_CUDA_DEVICE_H_
