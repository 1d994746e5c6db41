#ifndef EVENSHARD_TESTS_TESTING_CUDA_STREAM_H_
#define EVENSHARD_TESTS_TESTING_CUDA_STREAM_H_

#include <thread>

#include "tests/testing/cuda/state.h"

// The types behind cudaStream_t and cudaEvent_t.

// A thread and the queue of its work. The queue is a linked list. Its end belongs to the callers
// that enqueue, and its front to the thread, which hands nothing back (see Signal).
struct CUstream_st {
  CUstream_st(int device, std::chrono::microseconds longest_delay, uint64_t seed);
  ~CUstream_st();  // runs the work that is left, then joins the thread

  // REQUIRES: the caller holds State::mutex. Empty work ends the thread.
  void Push(std::function<void()> work, bool always);

  const int device;

 private:
  struct Item {
    std::function<void()> work;
    bool always = false;
    std::atomic<Item*> next{nullptr};
  };

  void Run(Item* done, std::chrono::microseconds longest_delay, uint64_t seed);

  Item* last_;
  evenshard::cuda_stand_in::Signal pushed_;
  std::thread thread_;
};

struct CUevent_st {
  const int device;
  const unsigned flags;
  evenshard::cuda_stand_in::Moment* recorded = nullptr;  // guarded by State::mutex
};

namespace evenshard::cuda_stand_in {

// Returns whether this thread runs a stream. Such a thread may make no calls.
bool InStream();

// REQUIRES, for both: the caller holds State::mutex.
// Returns whether the stream is alive. If it is not, records the problem.
bool CheckStream(const State& state, cudaStream_t stream);
// Returns the moment when the work that was enqueued so far has run, or, on a lost device, was
// dropped.
Moment* PushMoment(State& state, cudaStream_t stream);

// Waits for all work, including that of streams already destroyed.
void Drain();

}  // namespace evenshard::cuda_stand_in

#endif  // EVENSHARD_TESTS_TESTING_CUDA_STREAM_H_
