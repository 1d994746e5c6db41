#ifndef EVENSHARD_TESTS_TESTING_CUDA_FIXTURE_H_
#define EVENSHARD_TESTS_TESTING_CUDA_FIXTURE_H_

#include <cuda_runtime_api.h>

#include <catch2/catch.hpp>
#include <vector>

#include "tests/testing/cuda/device.h"

// Objects that the stand-in's tests use. Each owns a resource, and frees it even if the device is
// lost.

namespace evenshard::cuda_stand_in {

// Gives a test case a fresh device, and checks that nothing is left on it. Must be declared first.
struct FreshDevice {
  explicit FreshDevice(const Options& options = {}) { Reset(options); }
  ~FreshDevice() { CHECK(GetLive() == Live{}); }
};

class Stream {
 public:
  Stream() { REQUIRE(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking) == cudaSuccess); }
  ~Stream() { cudaStreamDestroy(stream_); }
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;
  cudaStream_t get() const { return stream_; }

 private:
  cudaStream_t stream_ = nullptr;
};

class Event {
 public:
  explicit Event(unsigned flags = 0) {
    REQUIRE(cudaEventCreateWithFlags(&event_, flags) == cudaSuccess);
  }
  ~Event() { cudaEventDestroy(event_); }
  Event(const Event&) = delete;
  Event& operator=(const Event&) = delete;
  cudaEvent_t get() const { return event_; }

 private:
  cudaEvent_t event_ = nullptr;
};

// Device memory.
class Buffer {
 public:
  explicit Buffer(size_t bytes) : bytes_(bytes) {
    REQUIRE(cudaMalloc(&data_, bytes) == cudaSuccess);
  }
  // Allocates memory that holds `values`.
  template <typename T>
  explicit Buffer(const std::vector<T>& values) : Buffer(values.size() * sizeof(T)) {
    Stream stream;
    REQUIRE(cudaMemcpyAsync(data_, values.data(), bytes_, cudaMemcpyHostToDevice, stream.get()) ==
            cudaSuccess);
    REQUIRE(cudaStreamSynchronize(stream.get()) == cudaSuccess);
  }
  ~Buffer() { cudaFree(data_); }
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;

  void* data() const { return data_; }
  void* at(size_t byte) const { return static_cast<char*>(data_) + byte; }
  size_t bytes() const { return bytes_; }

  // Returns the contents when `stream` has done its work so far.
  template <typename T>
  std::vector<T> Values(const Stream& stream) const {
    std::vector<T> values(bytes_ / sizeof(T));
    REQUIRE(cudaMemcpyAsync(values.data(), data_, bytes_, cudaMemcpyDeviceToHost, stream.get()) ==
            cudaSuccess);
    return values;
  }

 private:
  const size_t bytes_;
  void* data_ = nullptr;
};

}  // namespace evenshard::cuda_stand_in

#endif  // EVENSHARD_TESTS_TESTING_CUDA_FIXTURE_H_
