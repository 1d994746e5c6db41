#ifndef EVENSHARD_TESTS_TESTING_CUDA_DEVICE_H_
#define EVENSHARD_TESTS_TESTING_CUDA_DEVICE_H_

#include <cuda_runtime_api.h>
#include <cudnn.h>

#include <chrono>
#include <cstdint>
#include <string>

// A stand-in for a CUDA device. It implements, on the CPU and behind the toolkit's own headers, the
// functions of the CUDA runtime (runtime.cc), cuBLAS (blas.cc) and cuDNN (dnn.cc) that this project
// calls. A program that is linked against it runs without a GPU, driver or NVIDIA library. With
// this header a test sets up the device, makes it fail, and looks for leaks.
//
// The stand-in reproduces what host code can get wrong:
// - Order. A stream is a thread that runs its work in order; a call enqueues work and returns. Only
//   streams, events and synchronisation order one stream after another, or the host after a stream.
//   No lock of the stand-in's own adds to this order. A missing event therefore gives wrong numbers
//   or a report of thread-sanitizer, and Options::longest_delay brings both to light.
// - Memory. Device memory is limited host memory, filled with NaNs (0xff) when allocated, between
//   guards that cudaFree checks. Copies, gemms and convolutions check the range of every operand.
//   Host memory is accessed when CUDA accesses it: pinned memory when the copy runs, pageable
//   memory during the call.
// - Errors. Calls fail for wrong arguments, exceeded limits, a driver that is too old, a missing
//   device, and a device that is lost on the way.
//
// The stand-in is stricter than CUDA. It has no default stream (a null stream is an error), device
// memory cannot be reached from another device, a copy must not overlap itself, and a cuDNN
// descriptor must outlive the finalized ones that refer to it. Kernels are host functions
// (cudaLaunchHostFunc), so what they access is checked by the guards only.
//
// The stand-in says nothing about a GPU's speed or rounding. All arithmetic is in float32.

namespace evenshard::cuda_stand_in {

struct Options {
  int devices = 1;                          // 0: cudaErrorNoDevice
  int64_t memory_bytes = int64_t{2} << 30;  // of each device
  bool driver_too_old = false;              // every call fails with cudaErrorInsufficientDriver,
                                            // except those that ask for versions and texts
  int driver_version = CUDART_VERSION;      // 1000 * major + 10 * minor
  int runtime_version = CUDART_VERSION;
  size_t cudnn_version = CUDNN_VERSION;  // 10000 * major + 100 * minor + patch
  int compute_major = 9;
  int compute_minor = 0;
  // Each piece of a stream's work is delayed by a random time of at most this.
  std::chrono::microseconds longest_delay{0};
  uint64_t seed = 0;  // selects the delays
};

// Starts over with a fresh device and zero counts. Aborts, and says what is alive, if anything is,
// so that a leak is found in the test that made it.
void Reset(const Options& options = {});

// Loses all devices. Until Reset, `error` is the result of the `enqueues`-th call from now that
// puts work on a stream (1 is the next such call, 0 stands for this moment), and of every call
// after it. Work that is enqueued but has not begun is dropped. Objects are destroyed and memory is
// freed in spite of the error.
void LoseDevice(int64_t enqueues, cudaError_t error = cudaErrorLaunchFailure);

// The numbers of objects that are alive.
struct Live {
  int64_t allocations = 0;
  int64_t bytes = 0;          // in the allocations
  int64_t registrations = 0;  // of host memory, registered or allocated as pinned memory
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
  int64_t peak_bytes = 0;  // the largest amount of device memory at any time
  int64_t gemms = 0;
  int64_t convolutions = 0;
  int64_t tf32_calls = 0;  // gemms and convolutions that let a GPU round float32 operands to TF32
};
Totals GetTotals();

// Returns what was wrong with this thread's last failed call, in words. cudnnGetLastErrorString
// returns the same text.
std::string LastProblem();

}  // namespace evenshard::cuda_stand_in

#endif  // EVENSHARD_TESTS_TESTING_CUDA_DEVICE_H_
