#include "worker/compute/cpu/device.h"

namespace evenshard {
namespace {

using dnnl::memory;

std::optional<CpuOperation> MakeReorder(CpuDevice* device, const memory::desc& from,
                                        const memory::desc& to) {
  if (from == to) return std::nullopt;
  return CpuOperation(device,
                      dnnl::reorder::primitive_desc(device->engine(), from, device->engine(), to,
                                                    device->attributes()));
}

}  // namespace

CpuDevice::CpuDevice()
    : engine_(dnnl::engine::kind::cpu, 0), stream_(engine_), attributes_(AttributesWith({})) {}

dnnl::primitive_attr CpuDevice::AttributesWith(const dnnl::post_ops& operations) {
  dnnl::primitive_attr attributes;
  attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);
  attributes.set_post_ops(operations);
  return attributes;
}

memory CpuDevice::Allocate(const memory::desc& desc) const { return memory(desc, engine_); }

memory CpuDevice::Unallocated(const memory::desc& desc) const {
  return memory(desc, engine_, DNNL_MEMORY_NONE);
}

void CpuDevice::ReserveScratch(size_t bytes) {
  if (bytes == 0 || (scratch_ && scratch_->get_desc().get_size() >= bytes)) return;
  scratch_.reset();  // first, so that the old and the new memory never exist at once
  scratch_ = Allocate(Bytes(bytes));
}

memory CpuDevice::Scratch(const memory::desc& desc) const {
  return memory(desc, engine_, scratch_->get_data_handle());
}

memory::desc PlainFormat(const std::vector<int64_t>& shape) {
  using Tag = memory::format_tag;
  const Tag tag = shape.size() == 1 ? Tag::a : shape.size() == 2 ? Tag::ab : Tag::abcd;
  return memory::desc(shape, memory::data_type::f32, tag);
}

memory::desc AnyFormat(const std::vector<int64_t>& shape) {
  return memory::desc(shape, memory::data_type::f32, memory::format_tag::any);
}

memory::desc Bytes(size_t bytes) {
  return memory::desc({static_cast<int64_t>(bytes)}, memory::data_type::u8, memory::format_tag::a);
}

float* Floats(const memory& memory) { return static_cast<float*>(memory.get_data_handle()); }

void CpuOperation::Run(CpuArguments arguments) const {
  if (scratch_.get_size() > 0) {
    arguments.emplace(DNNL_ARG_SCRATCHPAD, device_->Scratch(scratch_));
  }
  primitive_.execute(device_->stream(), arguments);
}

ConvertedSource::ConvertedSource(CpuDevice* device, const memory::desc& from,
                                 const memory::desc& to)
    : reorder_(MakeReorder(device, from, to)) {
  if (reorder_) copy_ = device->Allocate(to);
}

memory ConvertedSource::Get(const memory& from) const {
  if (!reorder_) return from;
  reorder_->Run({{DNNL_ARG_FROM, from}, {DNNL_ARG_TO, copy_}});
  return copy_;
}

ConvertedDestination::ConvertedDestination(CpuDevice* device, const memory::desc& from,
                                           const memory::desc& to)
    : reorder_(MakeReorder(device, from, to)) {
  if (reorder_) copy_ = device->Allocate(from);
}

memory ConvertedDestination::Begin(const memory& to) const { return reorder_ ? copy_ : to; }

void ConvertedDestination::Finish(const memory& to) const {
  if (reorder_) reorder_->Run({{DNNL_ARG_FROM, copy_}, {DNNL_ARG_TO, to}});
}

}  // namespace evenshard
