#ifndef EVENSHARD_WORKER_COMPUTE_CPU_DEVICE_H_
#define EVENSHARD_WORKER_COMPUTE_CPU_DEVICE_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <unordered_map>
#include <vector>

#include "oneapi/dnnl/dnnl.hpp"

namespace evenshard {

// All functions in this file throw dnnl::error, which CpuBackend converts to a status.

// The oneDNN engine and stream of one backend, and the scratch memory that all its primitives
// share. Not thread-safe. A device must outlive all objects that were made with it.
//
// The device supplies the scratch memory itself ("user mode") because oneDNN's own belongs to the
// thread that made a primitive. A backend may therefore be made in one thread and used in another.
class CpuDevice {
 public:
  CpuDevice();
  CpuDevice(const CpuDevice&) = delete;
  CpuDevice& operator=(const CpuDevice&) = delete;

  const dnnl::engine& engine() const { return engine_; }
  dnnl::stream& stream() { return stream_; }
  // Every primitive must be described with these attributes, which select user-mode scratch memory.
  const dnnl::primitive_attr& attributes() const { return attributes_; }
  // Returns the same attributes, with operations to be applied to the result.
  static dnnl::primitive_attr AttributesWith(const dnnl::post_ops& operations);

  // Describes an operation of the kind `Primitive`, such as dnnl::eltwise_forward. For a backward
  // pass `hint` is the description of the forward pass.
  template <typename Primitive, typename... Hint>
  typename Primitive::primitive_desc Describe(const typename Primitive::desc& operation,
                                              const Hint&... hint) const {
    return {operation, attributes_, engine_, hint...};
  }

  dnnl::memory Allocate(const dnnl::memory::desc& desc) const;
  // The caller supplies the memory later, with set_data_handle.
  dnnl::memory Unallocated(const dnnl::memory::desc& desc) const;

  void ReserveScratch(size_t bytes);
  dnnl::memory Scratch(const dnnl::memory::desc& desc) const;

 private:
  dnnl::engine engine_;
  dnnl::stream stream_;
  dnnl::primitive_attr attributes_;
  std::optional<dnnl::memory> scratch_;
};

// The row-major, unblocked format in which workers keep parameters and images. `shape` has 1, 2 or
// 4 dimensions.
dnnl::memory::desc PlainFormat(const std::vector<int64_t>& shape);
// Lets oneDNN choose the format.
dnnl::memory::desc AnyFormat(const std::vector<int64_t>& shape);
// Describes a block of bytes without a format.
dnnl::memory::desc Bytes(size_t bytes);

// Returns the elements of `memory`, which must be in a plain format.
float* Floats(const dnnl::memory& memory);

using CpuArguments = std::unordered_map<int, dnnl::memory>;

// A primitive that runs on the device's stream and uses the device's scratch memory.
class CpuOperation {
 public:
  // `description` is a primitive_desc that was made with the device's attributes.
  template <typename Description>
  CpuOperation(CpuDevice* device, const Description& description)
      : device_(device), primitive_(description.get()), scratch_(description.scratchpad_desc()) {
    device->ReserveScratch(scratch_.get_size());
  }

  void Run(CpuArguments arguments) const;

 private:
  CpuDevice* device_;
  dnnl::primitive primitive_;
  dnnl::memory::desc scratch_;
};

// Passes a primitive its source in the format that the primitive chose: the memory itself if it has
// that format already, a converted copy otherwise.
class ConvertedSource {
 public:
  ConvertedSource(CpuDevice* device, const dnnl::memory::desc& from, const dnnl::memory::desc& to);
  dnnl::memory Get(const dnnl::memory& from) const;

 private:
  std::optional<CpuOperation> reorder_;
  dnnl::memory copy_;
};

// The reverse: a primitive writes in the format that it chose, and the result is converted.
class ConvertedDestination {
 public:
  ConvertedDestination(CpuDevice* device, const dnnl::memory::desc& from,
                       const dnnl::memory::desc& to);
  // Returns the memory that the primitive must write to. Finish(to) then moves the values to `to`.
  dnnl::memory Begin(const dnnl::memory& to) const;
  void Finish(const dnnl::memory& to) const;

 private:
  std::optional<CpuOperation> reorder_;
  dnnl::memory copy_;
};

}  // namespace evenshard

#endif  // EVENSHARD_WORKER_COMPUTE_CPU_DEVICE_H_
