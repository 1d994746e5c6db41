#ifndef EVENSHARD_TESTS_TESTING_CUDA_STATE_H_
#define EVENSHARD_TESTS_TESTING_CUDA_STATE_H_

#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "tests/testing/cuda/device.h"

// State that runtime.cc, blas.cc and dnn.cc share.

namespace evenshard::cuda_stand_in {

// A count that one side advances and the other waits for. The waiter is ordered after the one that
// advanced it. Unlike with a mutex or a condition variable, nobody is ordered after a waiter, so
// that thread-sanitizer sees the order that CUDA promises and no more.
class Signal {
 public:
  void Advance();
  // Blocks until the count is not `seen`.
  void AwaitOtherThan(uint32_t seen) const;
  bool OtherThan(uint32_t seen) const { return count_.load(std::memory_order_acquire) != seen; }

 private:
  std::atomic<uint32_t> count_{0};
};

// A point in a stream's work, which is reached when all work before it has run.
struct Moment {
  Signal reached;
  std::chrono::steady_clock::time_point at;
};

// A piece of device memory or of pinned host memory.
struct Range {
  size_t bytes;
  int device;
  char* owned;     // the block to free, guards included; null for registered memory
  int64_t number;  // n for the n-th allocation
};
using Ranges = std::map<uintptr_t, Range>;  // by the address of the first byte

struct State {
  std::mutex mutex;  // guards all below but `lost`; calls take it, streams' threads never do
  Options options;
  std::atomic<cudaError_t> lost = cudaSuccess;
  int64_t lose_at = -1;  // the value of totals.enqueues at which the device is lost; -1: never
  cudaError_t loss = cudaSuccess;
  Totals totals;
  int64_t allocations = 0;  // the number of allocations ever made
  Ranges device_ranges;
  Ranges pinned_ranges;
  std::set<cudaStream_t> streams;
  std::vector<cudaStream_t> retired_streams;  // destroyed, but perhaps with work left
  std::set<cudaEvent_t> events;
  std::deque<Moment> moments;  // kept until Reset, and so not counted by reference (see Signal)
  std::set<const void*> blas_handles;
  std::set<const void*> dnn_handles;
  int64_t dnn_descriptors = 0;

  ~State();
};
State& GlobalState();

// Both belong to the calling thread, as in CUDA.
int& CurrentDevice();
cudaError_t& LastError();

// Records what is wrong with the call, for LastProblem.
void SetProblem(std::string text);
// Both record the error for cudaGetLastError, and return it. The first also records the problem.
cudaError_t Fail(cudaError_t error, std::string text);
cudaError_t Fail(cudaError_t error);

// Returns success if calls can succeed at all now, and otherwise the error that every call returns.
cudaError_t Usable();

// Returns whether the range lies within one live allocation of the stream's device. If it does not,
// records the problem, in which `what` names the range.
bool OnDevice(const void* begin, size_t bytes, cudaStream_t stream, const std::string& what);

// Enqueues `work` on the stream. Unless `always` is set, the work is dropped if the device is lost
// before the work begins.
cudaError_t Enqueue(cudaStream_t stream, std::function<void()> work, bool always = false);

// Marks a workspace as used. It fills the memory with a value of its own while the work runs, so
// that another use of the memory at the same time can be seen.
class WorkspaceUse {
 public:
  WorkspaceUse(void* workspace, size_t bytes);
  bool Disturbed() const;

 private:
  unsigned char* const begin_;
  const size_t bytes_;
  const unsigned char value_;
};

}  // namespace evenshard::cuda_stand_in

#endif  // EVENSHARD_TESTS_TESTING_CUDA_STATE_H_
