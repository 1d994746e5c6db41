// The stand-in's device memory, pinned memory and copies; see device.h.

#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "tests/testing/cuda/stream.h"

namespace evenshard::cuda_stand_in {
namespace {

constexpr size_t kGuardBytes = 256;  // on each side; also the alignment of allocations
constexpr unsigned char kGuard = 0xa5;

size_t RoundedUp(size_t bytes) { return (bytes + kGuardBytes - 1) / kGuardBytes * kGuardBytes; }

uintptr_t Address(const void* pointer) { return reinterpret_cast<uintptr_t>(pointer); }

// Returns the one of `ranges` that contains [begin, begin + bytes), or null.
const Range* Containing(const Ranges& ranges, const void* begin, size_t bytes) {
  auto after = ranges.upper_bound(Address(begin));
  if (after == ranges.begin()) return nullptr;
  const auto& [first, range] = *std::prev(after);
  const uintptr_t offset = Address(begin) - first;
  return offset <= range.bytes && bytes <= range.bytes - offset ? &range : nullptr;
}

bool Touches(const Ranges& ranges, const void* begin, size_t bytes) {
  auto after = ranges.lower_bound(Address(begin) + bytes);
  if (after == ranges.begin()) return false;
  const auto& [first, range] = *std::prev(after);
  return first + range.bytes > Address(begin);
}

// Allocates `bytes` bytes of 0xff between guards.
Range Allocate(size_t bytes, int device, int64_t number, uintptr_t* begin) {
  const size_t size = kGuardBytes + RoundedUp(bytes) + kGuardBytes;
  char* owned = static_cast<char*>(std::aligned_alloc(kGuardBytes, size));
  if (owned == nullptr) std::abort();
  std::memset(owned, kGuard, size);
  std::memset(owned + kGuardBytes, 0xff, bytes);
  *begin = Address(owned + kGuardBytes);
  return {bytes, device, owned, number};
}

// Aborts if a byte outside the range was written.
void CheckGuards(const Range& range, const char* what) {
  const auto* bytes = reinterpret_cast<const unsigned char*>(range.owned);
  const size_t end = kGuardBytes + range.bytes;
  for (size_t i = 0; i < kGuardBytes + RoundedUp(range.bytes) + kGuardBytes; ++i) {
    if (i == kGuardBytes) i = end;
    if (bytes[i] == kGuard) continue;
    const std::string text = absl::StrCat(
        "CUDA stand-in: byte ", static_cast<int64_t>(i) - static_cast<int64_t>(kGuardBytes), " of ",
        what, " number ", range.number, " of ", range.bytes, " bytes on device ", range.device,
        " was written\n");
    std::fputs(text.c_str(), stderr);
    std::abort();
  }
}

// Waits for all work, then frees the range that begins at `pointer`. Works on a lost device too.
cudaError_t Free(Ranges& ranges, void* pointer, const char* what) {
  const cudaError_t usable = Usable();
  if (usable == cudaErrorNotPermitted || pointer == nullptr) return usable;
  Drain();
  State& state = GlobalState();
  std::lock_guard lock(state.mutex);
  auto found = ranges.find(Address(pointer));
  if (found == ranges.end() || found->second.owned == nullptr) {
    return Fail(cudaErrorInvalidValue, absl::StrCat("not ", what, " that is alive"));
  }
  CheckGuards(found->second, what);
  std::free(found->second.owned);
  ranges.erase(found);
  return usable;
}

}  // namespace

bool OnDevice(const void* begin, size_t bytes, cudaStream_t stream, const std::string& what) {
  State& state = GlobalState();
  std::lock_guard lock(state.mutex);
  if (!CheckStream(state, stream)) return false;
  const Range* range = Containing(state.device_ranges, begin, bytes);
  if (range != nullptr && range->device == stream->device) return true;
  SetProblem(absl::StrFormat("%s: %d bytes at %p %s", what, bytes, begin,
                             range == nullptr ? "are not within one live device allocation"
                                              : "are on another device than the stream"));
  return false;
}

}  // namespace evenshard::cuda_stand_in

using namespace evenshard::cuda_stand_in;  // NOLINT: what follows is C

cudaError_t cudaMalloc(void** pointer, size_t bytes) {
  if (cudaError_t error = Usable()) return error;
  *pointer = nullptr;
  if (bytes == 0) return cudaSuccess;
  size_t available, total;
  cudaMemGetInfo(&available, &total);
  if (bytes > available) {
    return Fail(cudaErrorMemoryAllocation,
                absl::StrCat(bytes, " bytes with ", available, " of ", total, " free"));
  }
  State& state = GlobalState();
  std::lock_guard lock(state.mutex);
  uintptr_t begin;
  const Range range = Allocate(bytes, CurrentDevice(), ++state.allocations, &begin);
  state.device_ranges[begin] = range;
  int64_t live = 0;
  for (const auto& [other, range] : state.device_ranges) live += range.bytes;
  state.totals.peak_bytes = std::max(state.totals.peak_bytes, live);
  *pointer = reinterpret_cast<void*>(begin);
  return cudaSuccess;
}

cudaError_t cudaFree(void* pointer) {
  return Free(GlobalState().device_ranges, pointer, "device allocation");
}

cudaError_t cudaMemGetInfo(size_t* available, size_t* total) {
  if (cudaError_t error = Usable()) return error;
  State& state = GlobalState();
  std::lock_guard lock(state.mutex);
  *total = *available = state.options.memory_bytes;
  for (const auto& [begin, range] : state.device_ranges) {
    if (range.device == CurrentDevice()) *available -= range.bytes;
  }
  return cudaSuccess;
}

cudaError_t cudaHostRegister(void* pointer, size_t bytes, unsigned flags) {
  if (cudaError_t error = Usable()) return error;
  if (pointer == nullptr || bytes == 0) return Fail(cudaErrorInvalidValue, "an empty range");
  State& state = GlobalState();
  std::lock_guard lock(state.mutex);
  if (Touches(state.pinned_ranges, pointer, bytes)) {
    return Fail(cudaErrorHostMemoryAlreadyRegistered, "part of the range is registered");
  }
  state.pinned_ranges[Address(pointer)] = {bytes, CurrentDevice(), nullptr, ++state.allocations};
  return cudaSuccess;
}

cudaError_t cudaHostUnregister(void* pointer) {
  const cudaError_t usable = Usable();
  State& state = GlobalState();
  std::lock_guard lock(state.mutex);
  auto found = state.pinned_ranges.find(Address(pointer));
  if (found == state.pinned_ranges.end() || found->second.owned != nullptr) {
    return Fail(cudaErrorHostMemoryNotRegistered, "no registered range begins there");
  }
  state.pinned_ranges.erase(found);
  return usable;
}

cudaError_t cudaMallocHost(void** pointer, size_t bytes) {
  if (cudaError_t error = Usable()) return error;
  *pointer = nullptr;
  if (bytes == 0) return cudaSuccess;
  State& state = GlobalState();
  std::lock_guard lock(state.mutex);
  uintptr_t begin;
  const Range range = Allocate(bytes, CurrentDevice(), ++state.allocations, &begin);
  state.pinned_ranges[begin] = range;
  *pointer = reinterpret_cast<void*>(begin);
  return cudaSuccess;
}

cudaError_t cudaFreeHost(void* pointer) {
  return Free(GlobalState().pinned_ranges, pointer, "pinned allocation");
}

cudaError_t cudaMemsetAsync(void* begin, int value, size_t bytes, cudaStream_t stream) {
  if (cudaError_t error = Usable()) return error;
  if (bytes == 0) return cudaSuccess;
  if (!OnDevice(begin, bytes, stream, "memset")) return Fail(cudaErrorInvalidValue);
  return Enqueue(stream, [=] { std::memset(begin, value, bytes); });
}

cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes, cudaMemcpyKind kind,
                            cudaStream_t stream) {
  if (cudaError_t error = Usable()) return error;
  if (kind != cudaMemcpyHostToDevice && kind != cudaMemcpyDeviceToHost &&
      kind != cudaMemcpyDeviceToDevice) {
    return Fail(cudaErrorInvalidMemcpyDirection, absl::StrCat("a copy of kind ", kind));
  }
  if (bytes == 0) return cudaSuccess;
  const auto copy = [=] { std::memcpy(to, from, bytes); };
  const bool to_device = kind != cudaMemcpyDeviceToHost;
  const bool from_device = kind != cudaMemcpyHostToDevice;
  if ((to_device && !OnDevice(to, bytes, stream, "a copy's destination")) ||
      (from_device && !OnDevice(from, bytes, stream, "a copy's source"))) {
    return Fail(cudaErrorInvalidValue);
  }
  if (to_device && from_device) {
    if (Address(to) < Address(from) + bytes && Address(from) < Address(to) + bytes) {
      return Fail(cudaErrorInvalidValue, "a copy's source and destination overlap");
    }
    return Enqueue(stream, copy);
  }

  const void* host = to_device ? from : to;
  bool pinned;
  {
    State& state = GlobalState();
    std::lock_guard lock(state.mutex);
    if (Touches(state.device_ranges, host, bytes)) {
      return Fail(cudaErrorInvalidValue, "a copy's host side is device memory");
    }
    pinned = Containing(state.pinned_ranges, host, bytes) != nullptr;
    if (!pinned && Touches(state.pinned_ranges, host, bytes)) {
      return Fail(cudaErrorInvalidValue, "a copy's host side is registered in part");
    }
  }
  if (pinned) return Enqueue(stream, copy);
  if (to_device) {
    const char* first = static_cast<const char*>(from);
    return Enqueue(stream, [to, staged = std::vector<char>(first, first + bytes)] {
      std::memcpy(to, staged.data(), staged.size());
    });
  }
  if (cudaError_t error = Enqueue(stream, copy)) return error;
  return cudaStreamSynchronize(stream);
}
