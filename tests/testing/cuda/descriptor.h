#ifndef EVENSHARD_TESTS_TESTING_CUDA_DESCRIPTOR_H_
#define EVENSHARD_TESTS_TESTING_CUDA_DESCRIPTOR_H_

#include <cudnn.h>

#include <cstring>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <type_traits>
#include <vector>

#include "tests/testing/cuda/convolution.h"

// The type behind cudnnBackendDescriptor_t: the descriptors of the backend API for graphs of one
// convolution, or of a forward convolution with bias and ReLU.
//
// There are two engines. Engine 0 needs no workspace. Engine 1 notes
// CUDNN_NUMERICAL_NOTE_TENSOR_CORE and needs 1 MiB. The heuristics recommend 1 and 0, and in mode
// FALLBACK only 0. Like cuDNN's own, they recommend none for a graph whose tensors are of several
// types.

struct cudnnContext {
  cudaStream_t stream = nullptr;
};

namespace evenshard::cuda_stand_in {

// Records what is wrong with the call, and returns `status`.
cudnnStatus_t Fail(cudnnStatus_t status, std::string text);

cudnnStatus_t CheckHandle(cudnnHandle_t handle);

// The rule that an attribute must obey.
struct Rule {
  enum Kind { kRequired, kOptional, kComputed };  // kComputed: cannot be set
  cudnnBackendDescriptorType_t owner;
  cudnnBackendAttributeName_t name;
  const char* text;  // the attribute's name
  cudnnBackendAttributeType_t type;
  int64_t least, most;  // number of elements
  Kind kind = kRequired;
};

// Returns null if descriptors of this type have no such attribute.
const Rule* FindRule(cudnnBackendDescriptorType_t owner, cudnnBackendAttributeName_t name);

// Returns whether the stand-in implements descriptors of this type.
bool IsKnown(cudnnBackendDescriptorType_t type);

size_t ElementBytes(cudnnBackendAttributeType_t type);

struct Descriptor;
using DescriptorPtr = std::shared_ptr<Descriptor>;

struct Attribute {
  cudnnBackendAttributeType_t type;
  int64_t count;
  std::vector<char> bytes;                 // the elements, unless they are descriptors
  std::vector<DescriptorPtr> descriptors;  // the elements, if they are descriptors
};

struct Descriptor {
  explicit Descriptor(cudnnBackendDescriptorType_t type) : type(type) {}

  const cudnnBackendDescriptorType_t type;
  bool finalized = false;
  bool destroyed = false;
  std::map<cudnnBackendAttributeName_t, Attribute> attributes;

  template <typename T>
  std::vector<T> Values(cudnnBackendAttributeName_t name) const {
    std::vector<T> values;
    if (auto found = attributes.find(name); found != attributes.end()) {
      values.resize(found->second.bytes.size() / sizeof(T));
      std::memcpy(values.data(), found->second.bytes.data(), values.size() * sizeof(T));
    }
    return values;
  }
  // REQUIRES: the attribute is set. From finalization on, all required ones are.
  template <typename T>
  T Value(cudnnBackendAttributeName_t name) const {
    return Values<T>(name)[0];
  }
  float Scalar(cudnnBackendAttributeName_t name) const {
    return attributes.at(name).type == CUDNN_TYPE_DOUBLE ? static_cast<float>(Value<double>(name))
                                                         : Value<float>(name);
  }
  const DescriptorPtr& Reference(cudnnBackendAttributeName_t name) const {
    return attributes.at(name).descriptors[0];
  }
  template <typename T>
  void Compute(cudnnBackendAttributeName_t name, const std::vector<T>& values) {
    Attribute& attribute = attributes[name];
    attribute.type = FindRule(type, name)->type;
    attribute.count = static_cast<int64_t>(values.size());
    if constexpr (std::is_same_v<T, DescriptorPtr>) {
      attribute.descriptors = values;
    } else {
      const char* first = reinterpret_cast<const char*>(values.data());
      attribute.bytes.assign(first, first + values.size() * sizeof(T));
    }
  }
};

// Checks that all required attributes are set and fit one another, and computes the computed ones.
// The descriptor does not change afterwards.
cudnnStatus_t Finalize(Descriptor& descriptor);

// Returns success if all descriptors that `descriptor` refers to, directly or not, are alive.
cudnnStatus_t CheckReferences(const Descriptor& descriptor);

// Returns what a graph of finalized operations computes, without the tensors' data. Returns nullopt
// if that is neither a convolution nor one with bias and ReLU.
std::optional<Convolution> ToConvolution(const Descriptor& graph);

}  // namespace evenshard::cuda_stand_in

#endif  // EVENSHARD_TESTS_TESTING_CUDA_DESCRIPTOR_H_
