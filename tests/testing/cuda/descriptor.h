#ifndef PS_TESTS_TESTING_CUDA_DESCRIPTOR_H_
#define PS_TESTS_TESTING_CUDA_DESCRIPTOR_H_

#include <cudnn.h>

#include <cstring>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <type_traits>
#include <vector>

#include "tests/testing/cuda/convolution.h"

// What cudnnBackendDescriptor_t points to: the descriptors of the backend API for graphs of one
// convolution, or of a forward one with bias and ReLU.
//
// There are two engines: 0 needs no workspace; 1 notes CUDNN_NUMERICAL_NOTE_TENSOR_CORE and needs
// 1 MiB. Heuristics give 1 and 0, in mode FALLBACK 0 alone, and none where a graph's tensors are of
// several types, as cuDNN's own do.

struct cudnnContext {
  cudaStream_t stream = nullptr;
};

namespace ps::cuda_stand_in {

// Notes what is wrong with the call, and returns `status`.
cudnnStatus_t Fail(cudnnStatus_t status, std::string text);

cudnnStatus_t CheckHandle(cudnnHandle_t handle);

// What an attribute must be.
struct Rule {
  enum Kind { kRequired, kOptional, kComputed };  // computed: cannot be set
  cudnnBackendDescriptorType_t owner;
  cudnnBackendAttributeName_t name;
  const char* text;  // the name
  cudnnBackendAttributeType_t type;
  int64_t least, most;  // elements
  Kind kind = kRequired;
};

// Null where descriptors of this type have no such attribute.
const Rule* FindRule(cudnnBackendDescriptorType_t owner, cudnnBackendAttributeName_t name);

// Whether the stand-in has such descriptors.
bool IsKnown(cudnnBackendDescriptorType_t type);

size_t ElementBytes(cudnnBackendAttributeType_t type);

struct Descriptor;
using DescriptorPtr = std::shared_ptr<Descriptor>;

struct Attribute {
  cudnnBackendAttributeType_t type;
  int64_t count;
  std::vector<char> bytes;                 // the elements, or
  std::vector<DescriptorPtr> descriptors;  // these, where they are descriptors
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
  // REQUIRES: the attribute is set, as are all required ones once finalization begins.
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

// Checks that everything required is set and fits, computes what is computed, and from then on
// the descriptor does not change.
cudnnStatus_t Finalize(Descriptor& descriptor);

// Whether all that `descriptor` refers to, however far, is alive.
cudnnStatus_t CheckReferences(const Descriptor& descriptor);

// What a graph whose operations are finalized computes; its tensors' data is not set. Empty where
// that is neither a convolution nor one with bias and ReLU.
std::optional<Convolution> ToConvolution(const Descriptor& graph);

}  // namespace ps::cuda_stand_in

#endif  // PS_TESTS_TESTING_CUDA_DESCRIPTOR_H_
