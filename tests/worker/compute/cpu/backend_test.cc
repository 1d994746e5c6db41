#include "worker/compute/cpu/backend.h"

#include <catch2/catch.hpp>
#include <cmath>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "tests/worker/compute/test_net.h"

namespace evenshard {
namespace {

using Catch::Matchers::Contains;

// A net with every type of layer, and channel counts that do not fill whole vectors.
constexpr char kMixedNet[] = R"(
    input { channels: 2 height: 9 width: 8 }
    layer { name: "conv1" conv { out_channels: 5 kernel: 3 padding: 1 } }
    layer { relu {} }
    layer { max_pool { kernel: 3 stride: 2 } }
    layer { name: "conv2" conv { out_channels: 18 kernel: 2 } }
    layer { relu {} }
    layer { dropout { p: 0.3 } }
    layer { name: "fc1" linear { out_features: 7 } }
    layer { relu {} }
    layer { dropout { p: 0.5 } }
    layer { name: "fc2" linear { out_features: 4 } })";

std::string Message(const absl::Status& status) { return std::string(status.message()); }

constexpr char kNormNet[] = R"(
    input { channels: 2 height: 3 width: 3 }
    layer { name: "conv" conv { out_channels: 4 kernel: 3 } }
    layer { name: "norm" batch_norm {} }
    layer { name: "fc" linear { out_features: 3 } })";

TEST_CASE("batch normalisation of one value per channel is refused with the layer's name") {
  const auto created = CpuBackend::Create(ParseModel(kNormNet), {.batch_size = 1});
  CHECK(created.status() ==
        absl::InvalidArgumentError(
            "batch_size is 1, but the batch normalisation norm of the model custom, whose input is "
            "4x1x1, needs several values per channel, allowed: at least 2"));
}

TEST_CASE("a model with batch normalisation is trained on whole batches and evaluated on any") {
  const TestNet net(kNormNet, 4);
  const auto backend = MakeBackend(net.model, {.batch_size = 4});
  std::vector<float> gradients(net.model.buffer_size(), 5.0f);
  LayerHooks hooks;
  const auto trained = backend->ForwardBackward(net.FirstImages(3), net.parameters, 0,
                                                absl::MakeSpan(gradients), hooks);
  CHECK(trained.status() ==
        absl::InvalidArgumentError("a batch of 3 images: the model custom has batch normalisation, "
                                   "and is trained on whole batches of 4"));
  CHECK(gradients == std::vector<float>(net.model.buffer_size(), 5.0f));

  // The images that fill up a batch do not change the other images' scores.
  double sum = 0;
  for (int64_t i = 0; i < 4; ++i) {
    const auto one = backend->Evaluate({1, absl::MakeConstSpan(net.images).subspan(i * 18, 18),
                                        absl::MakeConstSpan(net.labels).subspan(i, 1)},
                                       net.parameters);
    REQUIRE(one.ok());
    sum += one->loss;
  }
  const auto all = backend->Evaluate(net.All(), net.parameters);
  REQUIRE(all.ok());
  CHECK(all->loss == Approx(sum / 4).epsilon(1e-6));
}

TEST_CASE("if memory does not suffice, the error names the layer") {
  const auto created = CpuBackend::Create(ParseModel(R"(
      input { channels: 1 height: 1 width: 1 }
      layer { name: "wide" linear { out_features: 1000000000 } })"),
                                          {.batch_size = 1 << 20});
  CHECK(created.status().code() == absl::StatusCode::kResourceExhausted);
  CHECK_THAT(Message(created.status()), Contains("wide: ") && Contains("oneDNN"));
}

TEST_CASE("bad input is refused with what was given and what is allowed") {
  TestNet net(kMixedNet, 3);
  const auto backend = MakeBackend(net.model, {.batch_size = 2});
  std::vector<float> gradients(net.model.buffer_size(), 5.0f);
  const std::vector<float> untouched = gradients;
  const auto check = [&](const Batch& batch, absl::Span<const float> parameters,
                         absl::Span<float> gradient, const std::string& part) {
    LayerHooks hooks;
    const auto trained = backend->ForwardBackward(batch, parameters, 0, gradient, hooks);
    CHECK(trained.status().code() == absl::StatusCode::kInvalidArgument);
    CHECK_THAT(Message(trained.status()), Contains(part));
    CHECK(gradients == untouched);
  };
  const auto check_batch = [&](const Batch& batch, const std::string& part) {
    check(batch, net.parameters, absl::MakeSpan(gradients), part);
    const auto evaluated = backend->Evaluate(batch, net.parameters);
    CHECK(evaluated.status().code() == absl::StatusCode::kInvalidArgument);
    CHECK_THAT(Message(evaluated.status()), Contains(part));
  };

  check_batch(net.All(), "a batch of 3 images: the backend was made for 1 to 2");
  check_batch(Batch(), "a batch of 0 images");
  Batch torn = net.FirstImages(2);
  torn.images.remove_suffix(1);
  check_batch(torn, "2 images of 2x9x8 comes with 287 floats and 2 labels");
  torn = net.FirstImages(2);
  torn.labels.remove_suffix(1);
  check_batch(torn, "288 floats and 1 labels");
  net.labels[1] = 4;
  check_batch(net.FirstImages(2), "the label of image 1 in the batch is 4, allowed are 0 to 3");
  net.labels[1] = -1;
  check_batch(net.FirstImages(2), "is -1, allowed are 0 to 3");

  const Batch good = net.FirstImages(1);
  const auto short_parameters = absl::MakeConstSpan(net.parameters).subspan(1);
  check(good, short_parameters, absl::MakeSpan(gradients), "the parameter buffer has");
  check(good, net.parameters, absl::MakeSpan(gradients).subspan(1), "the gradient buffer has");
}

TEST_CASE("a batch smaller than the backend's gives what a backend of its size gives") {
  const TestNet net(kMixedNet, 7);
  const auto large = MakeBackend(net.model, {.batch_size = 7});
  const int64_t size = GENERATE(1, 3, 6);
  const auto fitting = MakeBackend(net.model, {.batch_size = size});
  RunStep(*large, net, net.All(), 11);  // leaves its images in the backend's memory
  const Batch batch = net.FirstImages(size);
  const Step actual = RunStep(*large, net, batch, 12);
  const Step expected = RunStep(*fitting, net, batch, 12);
  CHECK(actual.result.loss == Approx(expected.result.loss).epsilon(1e-6));
  CHECK(actual.result.correct == expected.result.correct);
  CHECK(RelativeError(actual.gradients, expected.gradients) < 1e-5);

  const auto evaluated = large->Evaluate(batch, net.parameters);
  const auto expected_evaluated = fitting->Evaluate(batch, net.parameters);
  REQUIRE(evaluated.ok());
  REQUIRE(expected_evaluated.ok());
  CHECK(evaluated->loss == Approx(expected_evaluated->loss).epsilon(1e-6));
  CHECK(evaluated->correct == expected_evaluated->correct);
}

TEST_CASE("gradients are written whole, and the gaps between tensors are left alone") {
  const TestNet net(kMixedNet, 2);
  const auto backend = MakeBackend(net.model, {.batch_size = 2});
  const Step step = RunStep(*backend, net, net.All());
  std::vector<float> gradients(net.model.buffer_size(), NAN);
  LayerHooks hooks;
  REQUIRE(backend->ForwardBackward(net.All(), net.parameters, 0, absl::MakeSpan(gradients), hooks)
              .ok());
  std::vector<bool> in_tensor(gradients.size());
  for (const Tensor& tensor : net.model.tensors()) {
    for (int64_t i = tensor.offset; i < tensor.offset + tensor.size; ++i) in_tensor[i] = true;
  }
  for (size_t i = 0; i < gradients.size(); ++i) {
    CAPTURE(i);
    if (in_tensor[i]) {
      REQUIRE(gradients[i] == step.gradients[i]);  // and the same bits as before
    } else {
      REQUIRE(std::isnan(gradients[i]));
      REQUIRE(step.gradients[i] == 0);
    }
  }
}

TEST_CASE("hooks hear of the layers with tensors, forward and then backward") {
  const TestNet net(kMixedNet, 2);
  const auto backend = MakeBackend(net.model, {.batch_size = 2});
  std::vector<std::string> expected;
  const int layers = static_cast<int>(net.model.layers().size());
  for (int i = 0; i < layers; ++i) {
    if (net.model.layers()[i].tensor_count > 0) expected.push_back("forward " + std::to_string(i));
  }
  for (int i = layers; i-- > 0;) {
    if (net.model.layers()[i].tensor_count > 0) expected.push_back("backward " + std::to_string(i));
  }
  REQUIRE(expected.size() >= 4);
  std::vector<float> gradients(net.model.buffer_size());
  RecordedHooks hooks;
  REQUIRE(backend->ForwardBackward(net.All(), net.parameters, 0, absl::MakeSpan(gradients), hooks)
              .ok());
  CHECK(hooks.events() == expected);

  // An error from any call ends the pass.
  for (size_t i = 0; i < expected.size(); ++i) {
    RecordedHooks failing(expected[i]);
    const auto result =
        backend->ForwardBackward(net.All(), net.parameters, 0, absl::MakeSpan(gradients), failing);
    CHECK(result.status() == absl::AbortedError(expected[i] + " failed"));
    CHECK(failing.events().size() == i + 1);
  }
}

TEST_CASE("when hooks hear of a layer, its gradient is whole and its parameters are read no more") {
  // Takes the gradients away and overwrites the parameters, as the exchange may do.
  class Exchanging : public LayerHooks {
   public:
    Exchanging(const Model& model, std::vector<float>* parameters, std::vector<float>* gradients)
        : model_(model), parameters_(parameters), gradients_(gradients), taken_(*gradients) {}
    absl::Status GradientReady(int layer) override {
      const Layer& ready = model_.layers()[layer];
      for (int i = 0; i < ready.tensor_count; ++i) {
        const Tensor& tensor = model_.tensors()[ready.first_tensor + i];
        for (int64_t k = tensor.offset; k < tensor.offset + tensor.size; ++k) {
          taken_[k] = std::exchange((*gradients_)[k], NAN);
          (*parameters_)[k] = NAN;
        }
      }
      return absl::OkStatus();
    }
    const std::vector<float>& taken() const { return taken_; }

   private:
    const Model& model_;
    std::vector<float>* const parameters_;
    std::vector<float>* const gradients_;
    std::vector<float> taken_;
  };
  const TestNet net(kMixedNet, 2);
  const auto backend = MakeBackend(net.model, {.batch_size = 2});
  const Step expected = RunStep(*backend, net, net.All());
  std::vector<float> parameters = net.parameters;
  std::vector<float> gradients(net.model.buffer_size());
  Exchanging hooks(net.model, &parameters, &gradients);
  REQUIRE(
      backend->ForwardBackward(net.All(), parameters, 0, absl::MakeSpan(gradients), hooks).ok());
  CHECK(hooks.taken() == expected.gradients);
}

TEST_CASE("a backend may be made in one thread and used in another") {
  const TestNet net(kMixedNet, 2);
  const auto here = MakeBackend(net.model, {.batch_size = 2, .threads = 2});
  const Step expected = RunStep(*here, net, net.All());
  const auto moved = MakeBackend(net.model, {.batch_size = 2, .threads = 2});
  std::vector<float> gradients(net.model.buffer_size());
  absl::StatusOr<BatchResult> result = absl::UnknownError("has not run");
  std::thread([&] {
    LayerHooks hooks;
    result = moved->ForwardBackward(net.All(), net.parameters, 0, absl::MakeSpan(gradients), hooks);
  }).join();
  REQUIRE(result.ok());
  CHECK(result->loss == expected.result.loss);
  CHECK(gradients == expected.gradients);
}

TEST_CASE("the number of threads changes gradients by rounding only") {
  const TestNet net(kMixedNet, 4);
  const auto one = MakeBackend(net.model, {.batch_size = 4, .threads = 1});
  const auto three = MakeBackend(net.model, {.batch_size = 4, .threads = 3});
  const Step expected = RunStep(*one, net, net.All());
  CHECK(RelativeError(RunStep(*three, net, net.All()).gradients, expected.gradients) < 1e-5);
}

TEST_CASE("plain gradient descent fits a small batch") {
  TestNet net(kMixedNet, 6);
  const auto backend = MakeBackend(net.model, {.batch_size = 6});
  const double before = backend->Evaluate(net.All(), net.parameters)->loss;
  for (int iteration = 0; iteration < 1000; ++iteration) {
    const Step step = RunStep(*backend, net, net.All(), iteration);
    for (size_t i = 0; i < net.parameters.size(); ++i) {
      net.parameters[i] -= 0.05f * step.gradients[i];
    }
  }
  const auto after = backend->Evaluate(net.All(), net.parameters);
  REQUIRE(after.ok());
  CHECK(before > 0.5);
  CHECK(after->loss < 0.1);
  CHECK(after->correct == 6);
}

}  // namespace
}  // namespace evenshard
