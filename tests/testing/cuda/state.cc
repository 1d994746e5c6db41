#include "tests/testing/cuda/state.h"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <climits>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "tests/testing/cuda/stream.h"

namespace evenshard::cuda_stand_in {
namespace {

thread_local int current_device = 0;
thread_local cudaError_t last_error = cudaSuccess;
thread_local std::string last_problem;

}  // namespace

int& CurrentDevice() { return current_device; }
cudaError_t& LastError() { return last_error; }

void Signal::Advance() {
  count_.fetch_add(1, std::memory_order_release);
  syscall(SYS_futex, &count_, FUTEX_WAKE_PRIVATE, INT_MAX, nullptr, nullptr, 0);
}

void Signal::AwaitOtherThan(uint32_t seen) const {
  while (!OtherThan(seen)) {
    syscall(SYS_futex, &count_, FUTEX_WAIT_PRIVATE, seen, nullptr, nullptr, 0);
  }
}

State::~State() {
  for (cudaStream_t stream : streams) delete stream;
  for (cudaStream_t stream : retired_streams) delete stream;
}

State& GlobalState() {
  static State state;
  return state;
}

void SetProblem(std::string text) { last_problem = std::move(text); }
std::string LastProblem() { return last_problem; }

cudaError_t Fail(cudaError_t error) { return last_error = error; }

cudaError_t Fail(cudaError_t error, std::string text) {
  SetProblem(std::move(text));
  return Fail(error);
}

cudaError_t Usable() {
  State& state = GlobalState();
  if (InStream()) return Fail(cudaErrorNotPermitted, "a call from within a host function");
  if (state.options.driver_too_old) return Fail(cudaErrorInsufficientDriver, "driver too old");
  if (state.options.devices == 0) return Fail(cudaErrorNoDevice, "no device");
  if (const cudaError_t lost = state.lost) return Fail(lost, "the device is lost");
  return cudaSuccess;
}

WorkspaceUse::WorkspaceUse(void* workspace, size_t bytes)
    : begin_(static_cast<unsigned char*>(workspace)), bytes_(bytes), value_([] {
        static std::atomic<unsigned char> uses{0};
        return uses.fetch_add(1, std::memory_order_relaxed);
      }()) {
  if (bytes_ > 0) std::memset(begin_, value_, bytes_);
}

bool WorkspaceUse::Disturbed() const {
  return std::any_of(begin_, begin_ + bytes_,
                     [this](unsigned char byte) { return byte != value_; });
}

Live GetLive() {
  State& state = GlobalState();
  std::lock_guard lock(state.mutex);
  Live live;
  live.allocations = static_cast<int64_t>(state.device_ranges.size());
  for (const auto& [begin, range] : state.device_ranges) live.bytes += range.bytes;
  live.registrations = static_cast<int64_t>(state.pinned_ranges.size());
  live.streams = static_cast<int64_t>(state.streams.size());
  live.events = static_cast<int64_t>(state.events.size());
  live.blas_handles = static_cast<int64_t>(state.blas_handles.size());
  live.dnn_handles = static_cast<int64_t>(state.dnn_handles.size());
  live.dnn_descriptors = state.dnn_descriptors;
  return live;
}

Totals GetTotals() {
  State& state = GlobalState();
  std::lock_guard lock(state.mutex);
  return state.totals;
}

void Reset(const Options& options) {
  if (const Live live = GetLive(); live != Live{}) {
    const std::string text = absl::StrCat(
        "CUDA stand-in: still alive at Reset: ", live.allocations, " allocations (", live.bytes,
        " bytes), ", live.registrations, " registrations of host memory, ", live.streams,
        " streams, ", live.events, " events, ", live.blas_handles, " cuBLAS handles, ",
        live.dnn_handles, " cuDNN handles, ", live.dnn_descriptors, " cuDNN descriptors\n");
    std::fputs(text.c_str(), stderr);
    std::abort();
  }
  State& state = GlobalState();
  std::lock_guard lock(state.mutex);
  for (cudaStream_t stream : state.retired_streams) delete stream;
  state.retired_streams.clear();
  state.moments.clear();
  state.options = options;
  state.lost = cudaSuccess;
  state.lose_at = -1;
  state.totals = {};
  state.allocations = 0;
  CurrentDevice() = 0;
  LastError() = cudaSuccess;
}

void LoseDevice(int64_t enqueues, cudaError_t error) {
  State& state = GlobalState();
  std::lock_guard lock(state.mutex);
  state.lose_at = state.totals.enqueues + enqueues;
  state.loss = error;
  if (enqueues == 0) state.lost = error;
}

}  // namespace evenshard::cuda_stand_in
