// Tests the stand-in's CUDA runtime.

#include <cuda_runtime_api.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <chrono>
#include <cmath>
#include <cstring>
#include <functional>
#include <future>
#include <string>
#include <vector>

#include "tests/testing/cuda/fixture.h"

namespace evenshard::cuda_stand_in {
namespace {

std::vector<char> Read(const Buffer& buffer) {
  Stream stream;
  std::vector<char> bytes(buffer.bytes());
  REQUIRE(cudaMemcpyAsync(bytes.data(), buffer.data(), bytes.size(), cudaMemcpyDeviceToHost,
                          stream.get()) == cudaSuccess);
  return bytes;
}

// Blocks a stream until Open is called or the gate is destroyed. It blocks for 30 seconds at most,
// so that a call which waits when it should not fails its test.
class Gate {
 public:
  explicit Gate(const Stream& stream) : stream_(stream), opened_(open_.get_future()) {
    const auto wait = [](void* opened) {
      static_cast<std::future<void>*>(opened)->wait_for(std::chrono::seconds(30));
    };
    REQUIRE(cudaLaunchHostFunc(stream.get(), wait, &opened_) == cudaSuccess);
  }
  ~Gate() {
    if (!is_open_) Open();
    cudaStreamSynchronize(stream_.get());
  }
  void Open() {
    is_open_ = true;
    open_.set_value();
  }

 private:
  const Stream& stream_;
  std::promise<void> open_;
  std::future<void> opened_;
  bool is_open_ = false;
};

// Returns what `body` prints before it aborts, in a process of its own.
std::string AbortMessage(const std::function<void()>& body) {
  int ends[2];
  REQUIRE(pipe(ends) == 0);
  const pid_t child = fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    dup2(ends[1], STDERR_FILENO);
    signal(SIGABRT, SIG_DFL);  // replaces Catch2's handler
    body();
    _exit(0);
  }
  close(ends[1]);
  std::string message;
  char part[256];
  for (ssize_t n; (n = read(ends[0], part, sizeof(part))) > 0;) message.append(part, n);
  close(ends[0]);
  int status = 0;
  REQUIRE(waitpid(child, &status, 0) == child);
  REQUIRE(WIFSIGNALED(status));
  return message;
}

TEST_CASE("A stream runs what is enqueued in order, while the host goes on") {
  const FreshDevice device;
  Stream stream;
  Event event;
  std::string done;
  Gate gate(stream);
  for (int i = 0; i < 3; ++i) {
    const auto append = [](void* text) {
      auto* s = static_cast<std::string*>(text);
      s->push_back(static_cast<char>('a' + s->size()));
    };
    REQUIRE(cudaLaunchHostFunc(stream.get(), append, &done) == cudaSuccess);
  }
  REQUIRE(cudaEventRecord(event.get(), stream.get()) == cudaSuccess);
  CHECK(cudaEventQuery(event.get()) == cudaErrorNotReady);
  CHECK(cudaGetLastError() == cudaErrorNotReady);
  gate.Open();
  CHECK(cudaEventSynchronize(event.get()) == cudaSuccess);
  CHECK(done == "abc");
  CHECK(cudaEventQuery(event.get()) == cudaSuccess);
}

TEST_CASE("Streams are ordered by events alone") {
  const FreshDevice device;
  Stream writer, reader;
  Buffer from(4), to(4);
  Event event;
  Gate gate(writer);
  REQUIRE(cudaMemsetAsync(from.data(), 1, 4, writer.get()) == cudaSuccess);
  const auto copy = [&] {
    return cudaMemcpyAsync(to.data(), from.data(), 4, cudaMemcpyDeviceToDevice, reader.get());
  };

  SECTION("without an event the reader comes first") {
    REQUIRE(cudaStreamWaitEvent(reader.get(), event.get(), 0) == cudaSuccess);  // never recorded
    REQUIRE(copy() == cudaSuccess);
    REQUIRE(cudaStreamSynchronize(reader.get()) == cudaSuccess);
    CHECK(Read(to) == std::vector<char>(4, '\xff'));
  }
  SECTION("with it the writer does") {
    REQUIRE(cudaEventRecord(event.get(), writer.get()) == cudaSuccess);
    REQUIRE(cudaStreamWaitEvent(reader.get(), event.get(), 0) == cudaSuccess);
    REQUIRE(copy() == cudaSuccess);
    gate.Open();
    REQUIRE(cudaStreamSynchronize(reader.get()) == cudaSuccess);
    CHECK(Read(to) == std::vector<char>(4, 1));
  }
  SECTION("a wait is for the record before it, not for one after it") {
    Stream other;
    REQUIRE(cudaEventRecord(event.get(), other.get()) == cudaSuccess);
    REQUIRE(cudaStreamWaitEvent(reader.get(), event.get(), 0) == cudaSuccess);
    REQUIRE(cudaEventRecord(event.get(), writer.get()) == cudaSuccess);
    REQUIRE(copy() == cudaSuccess);
    REQUIRE(cudaStreamSynchronize(reader.get()) == cudaSuccess);
    CHECK(cudaEventQuery(event.get()) == cudaErrorNotReady);
    CHECK(Read(to) == std::vector<char>(4, '\xff'));
  }
}

TEST_CASE("What a destroyed stream and event were to do is done") {
  const FreshDevice device;
  Buffer buffer(4);
  Stream reader;
  {
    Stream writer;
    Event event;
    REQUIRE(cudaMemsetAsync(buffer.data(), 7, 4, writer.get()) == cudaSuccess);
    REQUIRE(cudaEventRecord(event.get(), writer.get()) == cudaSuccess);
    REQUIRE(cudaStreamWaitEvent(reader.get(), event.get(), 0) == cudaSuccess);
  }
  REQUIRE(cudaStreamSynchronize(reader.get()) == cudaSuccess);
  CHECK(Read(buffer) == std::vector<char>(4, 7));
}

TEST_CASE("With random delays, what is ordered stays so") {
  const FreshDevice device({.longest_delay = std::chrono::microseconds(200), .seed = 3});
  Stream streams[2];
  Event event;
  Buffer buffer(64);
  for (int i = 0; i < 50; ++i) {
    REQUIRE(cudaMemsetAsync(buffer.data(), i, 64, streams[i % 2].get()) == cudaSuccess);
    REQUIRE(cudaEventRecord(event.get(), streams[i % 2].get()) == cudaSuccess);
    REQUIRE(cudaStreamWaitEvent(streams[(i + 1) % 2].get(), event.get(), 0) == cudaSuccess);
  }
  REQUIRE(cudaDeviceSynchronize() == cudaSuccess);
  CHECK(Read(buffer) == std::vector<char>(64, 49));
}

TEST_CASE("Pinned memory is read when the copy runs, pageable memory at the call") {
  const FreshDevice device;
  Stream stream;
  Buffer buffer(4);
  std::vector<char> host(4, 1);
  const bool pinned = GENERATE(true, false);
  CAPTURE(pinned);
  if (pinned) REQUIRE(cudaHostRegister(host.data(), 4, 0) == cudaSuccess);
  {
    Gate gate(stream);
    REQUIRE(cudaMemcpyAsync(buffer.data(), host.data(), 4, cudaMemcpyHostToDevice, stream.get()) ==
            cudaSuccess);
    host.assign(4, 2);
  }
  CHECK(Read(buffer) == std::vector<char>(4, pinned ? 2 : 1));
  if (pinned) REQUIRE(cudaHostUnregister(host.data()) == cudaSuccess);
}

TEST_CASE("A copy to pinned memory returns at once") {
  const FreshDevice device;
  Stream stream;
  Buffer buffer(4);
  char* host = nullptr;
  REQUIRE(cudaMallocHost(reinterpret_cast<void**>(&host), 4) == cudaSuccess);
  std::memset(host, 0, 4);
  Event event;
  {
    Gate gate(stream);
    REQUIRE(cudaMemcpyAsync(host, buffer.data(), 4, cudaMemcpyDeviceToHost, stream.get()) ==
            cudaSuccess);
    REQUIRE(cudaEventRecord(event.get(), stream.get()) == cudaSuccess);
    CHECK(cudaEventQuery(event.get()) == cudaErrorNotReady);
  }
  CHECK(std::string(host, 4) == "\xff\xff\xff\xff");
  CHECK(GetLive().registrations == 1);
  REQUIRE(cudaFreeHost(host) == cudaSuccess);
}

TEST_CASE("Copies out of bounds and in the wrong direction are refused") {
  const FreshDevice device;
  Stream stream;
  Buffer buffer(8), other(8);
  char host[16] = {};
  const auto copy = [&](void* to, const void* from, size_t bytes, cudaMemcpyKind kind) {
    return cudaMemcpyAsync(to, from, bytes, kind, stream.get());
  };
  CHECK(copy(buffer.data(), host, 9, cudaMemcpyHostToDevice) == cudaErrorInvalidValue);
  CHECK(LastProblem().find("a copy's destination: 9 bytes") == 0);
  CHECK(copy(host, buffer.at(1), 8, cudaMemcpyDeviceToHost) == cudaErrorInvalidValue);
  CHECK(copy(host, host + 8, 8, cudaMemcpyDeviceToHost) == cudaErrorInvalidValue);
  CHECK(copy(buffer.data(), other.data(), 8, cudaMemcpyHostToDevice) == cudaErrorInvalidValue);
  CHECK(copy(buffer.at(2), buffer.data(), 4, cudaMemcpyDeviceToDevice) == cudaErrorInvalidValue);
  CHECK(copy(host, host + 8, 8, cudaMemcpyHostToHost) == cudaErrorInvalidMemcpyDirection);
  CHECK(cudaMemsetAsync(buffer.at(8), 0, 1, stream.get()) == cudaErrorInvalidValue);
  CHECK(cudaMemsetAsync(buffer.data(), 0, 8, nullptr) == cudaErrorInvalidValue);

  REQUIRE(cudaHostRegister(host, 8, 0) == cudaSuccess);
  CHECK(cudaHostRegister(host + 4, 8, 0) == cudaErrorHostMemoryAlreadyRegistered);
  CHECK(copy(buffer.data(), host + 4, 8, cudaMemcpyHostToDevice) == cudaErrorInvalidValue);
  CHECK(cudaHostUnregister(host + 4) == cudaErrorHostMemoryNotRegistered);
  REQUIRE(cudaHostUnregister(host) == cudaSuccess);

  CHECK(cudaGetLastError() == cudaErrorHostMemoryNotRegistered);
  CHECK(cudaGetLastError() == cudaSuccess);
}

TEST_CASE("Device memory is NaNs at first, and limited") {
  const FreshDevice device({.memory_bytes = 1000});
  size_t available = 0, total = 0;
  void* pointer = nullptr;
  {
    Buffer buffer(600);
    float value;
    std::memcpy(&value, Read(buffer).data(), sizeof(value));
    CHECK(std::isnan(value));
    REQUIRE(cudaMemGetInfo(&available, &total) == cudaSuccess);
    CHECK(available == 400);
    CHECK(total == 1000);
    CHECK(cudaMalloc(&pointer, 401) == cudaErrorMemoryAllocation);
    CHECK(GetLive().bytes == 600);
  }
  CHECK(cudaMalloc(&pointer, 401) == cudaSuccess);
  CHECK(cudaFree(pointer) == cudaSuccess);
  CHECK(cudaFree(pointer) == cudaErrorInvalidValue);
  CHECK(cudaFree(nullptr) == cudaSuccess);
  CHECK(GetTotals().peak_bytes == 600);
}

TEST_CASE("Devices have memory of their own") {
  const FreshDevice device({.devices = 2, .memory_bytes = 1000});
  Stream stream;
  Buffer buffer(1000);
  CHECK(cudaSetDevice(2) == cudaErrorInvalidDevice);
  REQUIRE(cudaSetDevice(1) == cudaSuccess);
  Buffer other(1000);
  CHECK(cudaMemsetAsync(buffer.data(), 0, 1000, stream.get()) == cudaSuccess);
  CHECK(cudaMemsetAsync(other.data(), 0, 1000, stream.get()) == cudaErrorInvalidValue);
  char id[16];
  REQUIRE(cudaDeviceGetPCIBusId(id, sizeof(id), 1) == cudaSuccess);
  CHECK(std::string(id) == "FFFF:01:00.0");
  REQUIRE(cudaSetDevice(0) == cudaSuccess);
}

TEST_CASE("A write past an allocation is found when it is freed") {
  const FreshDevice device;
  const int64_t at = GENERATE(-1, 10);
  const std::string message = AbortMessage([at] {
    void* pointer = nullptr;
    cudaMalloc(&pointer, 10);
    static_cast<char*>(pointer)[at] = 0;
    cudaFree(pointer);
  });
  CHECK(message == "CUDA stand-in: byte " + std::to_string(at) +
                       " of device allocation number 1 of 10 bytes on device 0 was written\n");
}

TEST_CASE("What is left alive is counted and named") {
  const FreshDevice device;
  {
    Buffer buffer(10);
    Stream stream;
    Event event;
    const Live live = GetLive();
    CHECK(live.allocations == 1);
    CHECK(live.bytes == 10);
    CHECK(live.streams == 1);
    CHECK(live.events == 1);
  }
  CHECK(GetLive() == Live{});
  const std::string message = AbortMessage([] {
    void* pointer = nullptr;
    cudaMalloc(&pointer, 10);
    Reset();
  });
  CHECK(message.find("still alive at Reset: 1 allocations (10 bytes)") != std::string::npos);
}

TEST_CASE("Events tell the time between them") {
  const FreshDevice device;
  Stream stream;
  Event start, end, untimed(cudaEventDisableTiming);
  float milliseconds = -1;
  CHECK(cudaEventElapsedTime(&milliseconds, start.get(), end.get()) ==
        cudaErrorInvalidResourceHandle);
  for (const Event* event : {&start, &end, &untimed}) {
    REQUIRE(cudaEventRecord(event->get(), stream.get()) == cudaSuccess);
  }
  REQUIRE(cudaStreamSynchronize(stream.get()) == cudaSuccess);
  CHECK(cudaEventElapsedTime(&milliseconds, start.get(), end.get()) == cudaSuccess);
  CHECK(milliseconds >= 0);
  CHECK(cudaEventElapsedTime(&milliseconds, start.get(), untimed.get()) ==
        cudaErrorInvalidResourceHandle);
}

TEST_CASE("A lost device fails every call, drops work, and lets go of what is freed") {
  const FreshDevice device;
  bool ran = false;
  {
    Stream stream;
    Event event;
    Buffer buffer(4);
    const auto run = [](void* ran) { *static_cast<bool*>(ran) = true; };
    {
      Gate gate(stream);
      REQUIRE(cudaLaunchHostFunc(stream.get(), run, &ran) == cudaSuccess);
      LoseDevice(2, cudaErrorDevicesUnavailable);
      REQUIRE(cudaEventRecord(event.get(), stream.get()) == cudaSuccess);
      CHECK(cudaMemsetAsync(buffer.data(), 0, 4, stream.get()) == cudaErrorDevicesUnavailable);
      CHECK(cudaEventRecord(event.get(), stream.get()) == cudaErrorDevicesUnavailable);
    }
    CHECK(cudaStreamSynchronize(stream.get()) == cudaErrorDevicesUnavailable);
    CHECK(cudaEventSynchronize(event.get()) == cudaErrorDevicesUnavailable);
    CHECK(cudaDeviceSynchronize() == cudaErrorDevicesUnavailable);
    CHECK(cudaGetLastError() == cudaErrorDevicesUnavailable);
    CHECK(cudaGetLastError() == cudaErrorDevicesUnavailable);
    void* pointer = nullptr;
    CHECK(cudaMalloc(&pointer, 1) == cudaErrorDevicesUnavailable);
  }
  CHECK_FALSE(ran);
  CHECK(GetLive() == Live{});
  CHECK(GetTotals().enqueues == 4);
}

TEST_CASE("A host function may not call CUDA") {
  const FreshDevice device;
  Stream stream;
  cudaError_t error = cudaSuccess;
  const auto call = [](void* error) {
    *static_cast<cudaError_t*>(error) = cudaDeviceSynchronize();
  };
  REQUIRE(cudaLaunchHostFunc(stream.get(), call, &error) == cudaSuccess);
  REQUIRE(cudaStreamSynchronize(stream.get()) == cudaSuccess);
  CHECK(error == cudaErrorNotPermitted);
}

TEST_CASE("No device, and a driver that is too old") {
  int count = -1, version = 0;
  void* pointer = nullptr;
  SECTION("no device") {
    const FreshDevice device({.devices = 0});
    CHECK(cudaGetDeviceCount(&count) == cudaErrorNoDevice);
    CHECK(count == 0);
    CHECK(cudaMalloc(&pointer, 1) == cudaErrorNoDevice);
  }
  SECTION("driver too old") {
    const FreshDevice device({.driver_too_old = true, .driver_version = 11020});
    CHECK(cudaGetDeviceCount(&count) == cudaErrorInsufficientDriver);
    CHECK(cudaMalloc(&pointer, 1) == cudaErrorInsufficientDriver);
    CHECK(cudaDriverGetVersion(&version) == cudaSuccess);
    CHECK(version == 11020);
    CHECK(std::string(cudaGetErrorName(cudaErrorInsufficientDriver)) ==
          "cudaErrorInsufficientDriver");
    CHECK(std::string(cudaGetErrorString(cudaErrorInsufficientDriver)) ==
          "CUDA driver version is insufficient for CUDA runtime version");
  }
}

TEST_CASE("A device tells its properties") {
  const FreshDevice device({.memory_bytes = 12345, .compute_major = 8, .compute_minor = 6});
  cudaDeviceProp properties;
  REQUIRE(cudaGetDeviceProperties(&properties, 0) == cudaSuccess);
  CHECK(properties.totalGlobalMem == 12345);
  int minor = 0;
  REQUIRE(cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, 0) == cudaSuccess);
  CHECK(minor == 6);
  CHECK(cudaDeviceGetAttribute(&minor, cudaDevAttrMaxPitch, 0) == cudaErrorInvalidValue);
}

}  // namespace
}  // namespace evenshard::cuda_stand_in
