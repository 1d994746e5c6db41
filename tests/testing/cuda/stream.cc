#include "tests/testing/cuda/stream.h"

#include <random>

namespace {

thread_local bool in_stream = false;

}  // namespace

CUstream_st::CUstream_st(int device, std::chrono::microseconds longest_delay, uint64_t seed)
    : device(device), last_(new Item) {
  thread_ = std::thread(&CUstream_st::Run, this, last_, longest_delay, seed);
}

CUstream_st::~CUstream_st() {
  Push(nullptr, true);
  thread_.join();
}

void CUstream_st::Push(std::function<void()> work, bool always) {
  Item* item = new Item;
  item->work = std::move(work);
  item->always = always;
  last_->next.store(item, std::memory_order_release);
  last_ = item;
  pushed_.Advance();
}

void CUstream_st::Run(Item* done, std::chrono::microseconds longest_delay, uint64_t seed) {
  in_stream = true;
  std::mt19937_64 random(seed);
  std::uniform_int_distribution<int64_t> delay(0, longest_delay.count());
  const std::atomic<cudaError_t>& lost = evenshard::cuda_stand_in::GlobalState().lost;
  for (uint32_t popped = 0;; ++popped) {
    pushed_.AwaitOtherThan(popped);
    Item* item = done->next.load(std::memory_order_acquire);
    delete done;
    done = item;
    const std::function<void()> work = std::move(item->work);
    if (!work) break;
    if (longest_delay.count() > 0) {
      std::this_thread::sleep_for(std::chrono::microseconds(delay(random)));
    }
    if (item->always || lost.load(std::memory_order_relaxed) == cudaSuccess) work();
  }
  delete done;
}

namespace evenshard::cuda_stand_in {

bool InStream() { return in_stream; }

Moment* PushMoment(State& state, cudaStream_t stream) {
  Moment* moment = &state.moments.emplace_back();
  const auto reach = [moment] {
    moment->at = std::chrono::steady_clock::now();
    moment->reached.Advance();
  };
  stream->Push(reach, /*always=*/true);
  return moment;
}

bool CheckStream(const State& state, cudaStream_t stream) {
  if (state.streams.count(stream) > 0) return true;
  SetProblem(stream == nullptr ? "a null stream: the stand-in has no default stream"
                               : "not a stream that is alive");
  return false;
}

void Drain() {
  State& state = GlobalState();
  std::vector<Moment*> moments;
  std::vector<cudaStream_t> retired;
  {
    std::lock_guard lock(state.mutex);
    for (cudaStream_t stream : state.streams) moments.push_back(PushMoment(state, stream));
    retired.swap(state.retired_streams);
  }
  for (Moment* moment : moments) moment->reached.AwaitOtherThan(0);
  for (cudaStream_t stream : retired) delete stream;
}

cudaError_t Enqueue(cudaStream_t stream, std::function<void()> work, bool always) {
  State& state = GlobalState();
  std::lock_guard lock(state.mutex);
  if (!CheckStream(state, stream)) return Fail(cudaErrorInvalidResourceHandle);
  if (++state.totals.enqueues == state.lose_at) state.lost = state.loss;
  if (const cudaError_t lost = state.lost) return Fail(lost, "the device is lost");
  stream->Push(std::move(work), always);
  return cudaSuccess;
}

}  // namespace evenshard::cuda_stand_in
