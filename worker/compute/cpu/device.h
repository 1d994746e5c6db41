#ifndef PS_WORKER_COMPUTE_CPU_DEVICE_H_
#define PS_WORKER_COMPUTE_CPU_DEVICE_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <unordered_map>
#include <vector>

#include "oneapi/dnnl/dnnl.hpp"

namespace ps {

// Everything in this file throws dnnl::error; CpuBackend turns it into a status.

// The oneDNN engine and stream of one backend, and the scratch memory that all its
// primitives share. Not thread-safe. Must outlive what was made with it.
//
// Scratch memory is passed in by us ("user mode") because oneDNN's own belongs to the
// thread that made a primitive: this way a backend may be made in one thread and used
// in another.
class CpuDevice {
 public:
  CpuDevice();
  CpuDevice(const CpuDevice&) = delete;
  CpuDevice& operator=(const CpuDevice&) = delete;

  const dnnl::engine& engine() const { return engine_; }
  dnnl::stream& stream() { return stream_; }
  // Every primitive is described with these, which ask for user-mode scratch memory.
  const dnnl::primitive_attr& attributes() const { return attributes_; }
  // The same with an operation on the result.
  static dnnl::primitive_attr AttributesWith(const dnnl::post_ops& operations);

  dnnl::memory Allocate(const dnnl::memory::desc& desc) const;
  // Gets its memory later, by set_data_handle.
  dnnl::memory Unallocated(const dnnl::memory::desc& desc) const;

  void ReserveScratch(size_t bytes);
  dnnl::memory Scratch(const dnnl::memory::desc& desc) const;

 private:
  dnnl::engine engine_;
  dnnl::stream stream_;
  dnnl::primitive_attr attributes_;
  std::optional<dnnl::memory> scratch_;
};

// Row-major, not blocked: how workers keep parameters and images. 1, 2 or 4 dimensions.
dnnl::memory::desc PlainFormat(const std::vector<int64_t>& shape);
// The same shape in whatever format oneDNN finds best.
dnnl::memory::desc AnyFormat(const std::vector<int64_t>& shape);
// Bare memory.
dnnl::memory::desc Bytes(size_t bytes);

// The elements of memory in a plain format.
float* Floats(const dnnl::memory& memory);

using CpuArguments = std::unordered_map<int, dnnl::memory>;

// A primitive that runs on the device's stream with the device's scratch memory.
class CpuOperation {
 public:
  // `description`: a primitive_desc made with the device's attributes.
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

// Hands a primitive its source in the format that it chose: the memory itself where
// that has the format, else a converted copy.
class ConvertedSource {
 public:
  ConvertedSource(CpuDevice* device, const dnnl::memory::desc& from, const dnnl::memory::desc& to);
  dnnl::memory Get(const dnnl::memory& from) const;

 private:
  std::optional<CpuOperation> reorder_;
  dnnl::memory copy_;
};

// The reverse: lets a primitive write in the format that it chose, and converts.
class ConvertedDestination {
 public:
  ConvertedDestination(CpuDevice* device, const dnnl::memory::desc& from,
                       const dnnl::memory::desc& to);
  // What the primitive writes to, so that after Finish(to) the values are in `to`.
  dnnl::memory Begin(const dnnl::memory& to) const;
  void Finish(const dnnl::memory& to) const;

 private:
  std::optional<CpuOperation> reorder_;
  dnnl::memory copy_;
};

}  // namespace ps

#endif  // PS_WORKER_COMPUTE_CPU_DEVICE_H_
