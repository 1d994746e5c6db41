#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "tests/worker/compute/test_net.h"
#include "worker/compute/cpu/layers.h"

namespace evenshard {
namespace {

using dnnl::memory;

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInfinity = std::numeric_limits<float>::infinity();

// A max pooling layer for one image of 20 channels, which all get the same values.
class MaxPool {
 public:
  // `pool` has the fields of a MaxPool2d in protobuf text format. The layer keeps its activations
  // in `format`.
  MaxPool(int64_t height, int64_t width, const std::string& pool, memory::format_tag format)
      : model_(ParseModel("input { channels: 20 height: " + std::to_string(height) +
                          " width: " + std::to_string(width) + " } layer { max_pool { " + pool +
                          " } } layer { name: \"fc\" linear { out_features: 2 } }")),
        input_(Activation(model_.layers()[0].input, format)) {
    layer_ = MakeCpuPooling(&device_, model_.layers()[0], input_);
    gradient_ = device_.Allocate(layer_->output().gradient.get_desc());
    layer_->output().gradient.set_data_handle(gradient_.get_data_handle());
  }

  // Returns one channel's output for an image of such channels.
  std::vector<float> Forward(const std::vector<float>& channel) {
    Fill(input_.value, channel);
    layer_->Forward({});
    return Channel(layer_->output().value);
  }

  // Returns one channel's gradient with respect to the input of the last Forward.
  std::vector<float> Backward(const std::vector<float>& output_gradient) {
    Fill(gradient_, output_gradient);
    layer_->Backward({}, {});
    return Channel(input_.gradient);
  }

 private:
  evenshard::Activation Activation(const Shape3& shape, memory::format_tag format) {
    const memory::desc desc({1, shape.channels, shape.height, shape.width}, memory::data_type::f32,
                            format);
    return {device_.Allocate(desc), device_.Allocate(desc)};
  }

  void Fill(const memory& to, const std::vector<float>& channel) {
    const memory plain = device_.Allocate(PlainFormat(to.get_desc().dims()));
    for (int64_t i = 0; i < to.get_desc().dims()[1]; ++i) {
      std::copy(channel.begin(), channel.end(), Floats(plain) + i * channel.size());
    }
    const ConvertedDestination convert(&device_, plain.get_desc(), to.get_desc());
    const memory source = convert.Begin(to);
    std::copy_n(Floats(plain), plain.get_desc().get_size() / sizeof(float), Floats(source));
    convert.Finish(to);
  }

  std::vector<float> Channel(const memory& from) {
    const memory::dims dims = from.get_desc().dims();
    const memory plain = ConvertedSource(&device_, from.get_desc(), PlainFormat(dims)).Get(from);
    const size_t size = dims[2] * dims[3];
    const std::vector<float> channel(Floats(plain), Floats(plain) + size);
    for (int64_t i = 1; i < dims[1]; ++i) {
      for (size_t k = 0; k < size; ++k) {
        const float value = Floats(plain)[i * size + k];
        CHECK((value == channel[k] || (std::isnan(value) && std::isnan(channel[k]))));
      }
    }
    return channel;
  }

  CpuDevice device_;
  const Model model_;
  const evenshard::Activation input_;
  std::unique_ptr<CpuLayer> layer_;
  memory gradient_;  // with respect to the output
};

memory::format_tag AnyFormatTag() {
  return GENERATE(memory::format_tag::nchw, memory::format_tag::nhwc, memory::format_tag::nChw8c,
                  memory::format_tag::nChw16c);
}

}  // namespace

TEST_CASE("max pooling gives a NaN wherever in the window it is, and its gradient to it") {
  MaxPool pool(3, 3, "kernel: 3", AnyFormatTag());
  std::vector<float> values = {-1, 7, 2, 3, -4, 5, 0, 6, -8};
  CHECK(pool.Forward(values) == std::vector<float>{7});
  for (size_t i = 0; i < values.size(); ++i) {
    CAPTURE(i);
    std::vector<float> broken = values;
    broken[i] = kNan;
    CHECK(std::isnan(pool.Forward(broken)[0]));
    std::vector<float> expected(values.size());
    expected[i] = 2;
    CHECK(pool.Backward({2}) == expected);
  }
  // What was NaN leaves no trace.
  CHECK(pool.Forward(values) == std::vector<float>{7});
  CHECK(pool.Backward({2}) == std::vector<float>{0, 2, 0, 0, 0, 0, 0, 0, 0});
}

TEST_CASE("a NaN changes only the windows that it is in") {
  // The windows overlap, and those at the borders reach beyond them.
  MaxPool pool(2, 6, "kernel: 2 stride: 1 padding: 1", AnyFormatTag());
  const std::vector<float> output = pool.Forward({kNan, 1, -kInfinity, 2, kInfinity, 3,  //
                                                  4, 5, -kInfinity, 6, 7, 8});
  const std::vector<float> expected = {kNan, kNan, 1, 2, kInfinity, kInfinity, 3,  //
                                       kNan, kNan, 5, 6, kInfinity, kInfinity, 8,  //
                                       4,    5,    5, 6, 7,         8,         8};
  REQUIRE(output.size() == expected.size());
  for (size_t i = 0; i < expected.size(); ++i) {
    CAPTURE(i);
    CHECK((output[i] == expected[i] || (std::isnan(output[i]) && std::isnan(expected[i]))));
  }
  std::vector<float> ones(expected.size(), 1);
  const std::vector<float> gradient = pool.Backward(ones);
  CHECK(gradient == std::vector<float>{4, 1, 0, 1, 4, 1, 1, 3, 0, 2, 1, 3});
}

TEST_CASE("a NaN in an image shows in the loss and the gradient behind max pooling") {
  TestNet net(R"(input { channels: 2 height: 4 width: 4 }
                 layer { name: "a" conv { out_channels: 3 kernel: 1 } }
                 layer { max_pool { kernel: 2 } }
                 layer { name: "b" linear { out_features: 3 } })",
              2);
  const auto backend = MakeBackend(net.model, {.batch_size = 2});
  CHECK(std::isfinite(RunStep(*backend, net, net.All()).result.loss));
  net.images[5] = kNan;
  const Step step = RunStep(*backend, net, net.All());
  CHECK(std::isnan(step.result.loss));
  CHECK(std::isnan(step.gradients[net.tensor("a/weight").offset]));
}

}  // namespace evenshard
