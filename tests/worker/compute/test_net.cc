#include "tests/worker/compute/test_net.h"

#include <google/protobuf/text_format.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <utility>

#include "common/base/random.h"

namespace evenshard {

Model ParseModel(const std::string& text) {
  ModelSpec spec;
  REQUIRE(google::protobuf::TextFormat::ParseFromString(text, &spec));
  absl::StatusOr<Model> model = Model::Create(spec);
  INFO(model.status());
  REQUIRE(model.ok());
  return *std::move(model);
}

TestNet::TestNet(const std::string& spec, int64_t size, uint64_t seed)
    : model(ParseModel(spec)), parameters(model.buffer_size()) {
  // Uniform numbers are cheap enough for the 138 million parameters of VGG-16.
  for (const Tensor& tensor : model.tensors()) {
    const auto values = absl::MakeSpan(parameters).subspan(tensor.offset, tensor.size);
    CounterRandom(seed, tensor.name).FillUniform(0, values);
    const int64_t fan_in = tensor.size / tensor.shape[0];
    const float bound = tensor.shape.size() > 1 ? std::sqrt(3.0f / fan_in) : 0.5f;
    const bool variance = tensor.name.find("/running_var") != std::string::npos;
    for (float& value : values) value = variance ? 0.5f + value : (2 * value - 1) * bound;
  }
  const CounterRandom image_random(seed, "images");
  for (int64_t i = 0; i < size * model.input().size(); ++i) {
    images.push_back(image_random.Normal(i));
  }
  const CounterRandom label_random(seed, "labels");
  for (int64_t i = 0; i < size; ++i) {
    labels.push_back(static_cast<int32_t>(label_random.Below(i, model.classes())));
  }
}

Batch TestNet::FirstImages(int64_t size) const {
  return {size, absl::MakeConstSpan(images).first(size * model.input().size()),
          absl::MakeConstSpan(labels).first(size)};
}

const Tensor& TestNet::tensor(const std::string& name) const {
  const auto found = std::find_if(model.tensors().begin(), model.tensors().end(),
                                  [&](const Tensor& tensor) { return tensor.name == name; });
  INFO(name);
  REQUIRE(found != model.tensors().end());
  return *found;
}

void TestNet::Set(const std::string& name, const std::function<float(int64_t)>& value) {
  const Tensor& t = tensor(name);
  for (int64_t i = 0; i < t.size; ++i) parameters[t.offset + i] = value(i);
}

std::unique_ptr<CpuBackend> MakeBackend(const Model& model, const CpuBackend::Options& options) {
  absl::StatusOr<std::unique_ptr<CpuBackend>> backend = CpuBackend::Create(model, options);
  INFO(backend.status());
  REQUIRE(backend.ok());
  return *std::move(backend);
}

Step RunStep(ComputeBackend& backend, const TestNet& net, const Batch& batch, int64_t iteration) {
  Step step;
  LayerHooks hooks;
  step.gradients.resize(net.model.buffer_size());
  absl::StatusOr<BatchResult> result = backend.ForwardBackward(
      batch, net.parameters, iteration, absl::MakeSpan(step.gradients), hooks);
  INFO(result.status());
  REQUIRE(result.ok());
  step.result = *result;
  return step;
}

double RelativeError(absl::Span<const float> actual, absl::Span<const float> expected) {
  REQUIRE(actual.size() == expected.size());
  double difference = 0;
  double largest = 0;
  for (size_t i = 0; i < expected.size(); ++i) {
    REQUIRE(std::isfinite(actual[i]));
    difference = std::max<double>(difference, std::abs(actual[i] - expected[i]));
    largest = std::max<double>(largest, std::abs(expected[i]));
  }
  REQUIRE(largest > 0);
  return difference / largest;
}

}  // namespace evenshard
