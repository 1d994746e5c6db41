#ifndef PS_TESTS_TESTING_CUDA_STREAM_H_
#define PS_TESTS_TESTING_CUDA_STREAM_H_

#include <thread>

#include "tests/testing/cuda/state.h"

// What cudaStream_t and cudaEvent_t point to.

// A thread and the queue of what it runs. The queue is a linked list whose end belongs to who
// enqueues and whose front to the thread, which gives nothing back (see Signal).
struct CUstream_st {
  CUstream_st(int device, std::chrono::microseconds longest_delay, uint64_t seed);
  ~CUstream_st();  // runs what is enqueued, then joins the thread

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
  ps::cuda_stand_in::Signal pushed_;
  std::thread thread_;
};

struct CUevent_st {
  const int device;
  const unsigned flags;
  ps::cuda_stand_in::Moment* recorded = nullptr;  // guarded by State::mutex
};

namespace ps::cuda_stand_in {

// Whether this thread is a stream's, in which no call is permitted.
bool InStream();

// REQUIRES, for both: the caller holds State::mutex.
// Whether the stream is alive; sets the problem if not.
bool CheckStream(const State& state, cudaStream_t stream);
// The moment when what was enqueued so far has run, or, on a lost device, was dropped.
Moment* PushMoment(State& state, cudaStream_t stream);

// Waits for all work, also that of streams already destroyed.
void Drain();

}  // namespace ps::cuda_stand_in

#endif  // PS_TESTS_TESTING_CUDA_STREAM_H_
