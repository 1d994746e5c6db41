#ifndef PS_TESTS_TESTING_CUDA_STATE_H_
#define PS_TESTS_TESTING_CUDA_STATE_H_

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

// What runtime.cc, blas.cc and dnn.cc share.

namespace ps::cuda_stand_in {

// A count that one side advances and another waits for. The waiter is ordered after who advanced,
// and, unlike with a mutex or a condition variable, nobody is ordered after a waiter: what
// thread-sanitizer sees is the order that CUDA promises and no more.
class Signal {
 public:
  void Advance();
  // Blocks until the count is not `seen`.
  void AwaitOtherThan(uint32_t seen) const;
  bool OtherThan(uint32_t seen) const { return count_.load(std::memory_order_acquire) != seen; }

 private:
  std::atomic<uint32_t> count_{0};
};

// A place in a stream's work. Reached when everything before it has run.
struct Moment {
  Signal reached;
  std::chrono::steady_clock::time_point at;
};

// A piece of memory: a device's, or the host's that is pinned.
struct Range {
  size_t bytes;
  int device;
  char* owned;     // what to free, guards included; null for registered memory
  int64_t number;  // the how-manieth allocation
};
using Ranges = std::map<uintptr_t, Range>;  // by the address of the first byte

struct State {
  std::mutex mutex;  // of all below but `lost`; taken by calls, never by a stream's thread
  Options options;
  std::atomic<cudaError_t> lost = cudaSuccess;
  int64_t lose_at = -1;  // of totals.enqueues; -1: never
  cudaError_t loss = cudaSuccess;
  Totals totals;
  int64_t allocations = 0;  // ever made
  Ranges device_ranges;
  Ranges pinned_ranges;
  std::set<cudaStream_t> streams;
  std::vector<cudaStream_t> retired_streams;  // destroyed, perhaps with work left
  std::set<cudaEvent_t> events;
  std::deque<Moment> moments;  // kept until Reset, so that nobody counts references (see Signal)
  std::set<const void*> blas_handles;
  std::set<const void*> dnn_handles;
  int64_t dnn_descriptors = 0;

  ~State();
};
State& GlobalState();

// The calling thread's, as in CUDA.
int& CurrentDevice();
cudaError_t& LastError();

// Notes what is wrong with the call, for LastProblem.
void SetProblem(std::string text);
// Notes the error for cudaGetLastError, and returns it. The problem is `text`, or noted already.
cudaError_t Fail(cudaError_t error, std::string text);
cudaError_t Fail(cudaError_t error);

// Success if calls can succeed at all now, else the error that this one returns.
cudaError_t Usable();

// Whether the range lies within one live allocation of the stream's device. If not, sets the
// problem, with `what` it is.
bool OnDevice(const void* begin, size_t bytes, cudaStream_t stream, const std::string& what);

// Puts `work` on the stream. It is dropped if the device is lost before it begins, unless
// `always`.
cudaError_t Enqueue(cudaStream_t stream, std::function<void()> work, bool always = false);

// Workspace in use: filled with a value of its own while the work runs, so that another use of
// the memory meanwhile shows.
class WorkspaceUse {
 public:
  WorkspaceUse(void* workspace, size_t bytes);
  bool Disturbed() const;

 private:
  unsigned char* const begin_;
  const size_t bytes_;
  const unsigned char value_;
};

}  // namespace ps::cuda_stand_in

#endif  // PS_TESTS_TESTING_CUDA_STATE_H_
