#include "common/placement/model/model.h"

#include <google/protobuf/text_format.h>

#include <catch2/catch.hpp>
#include <cmath>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace evenshard {
namespace {

ModelSpec Spec(const std::string& text) {
  ModelSpec spec;
  REQUIRE(google::protobuf::TextFormat::ParseFromString(text, &spec));
  return spec;
}

Model Builtin(const std::string& name) {
  absl::StatusOr<Model> model = Model::Create(Spec("builtin: '" + name + "'"));
  REQUIRE(model.status().ToString() == "OK");
  return *std::move(model);
}

const Layer& LayerNamed(const Model& model, const std::string& name) {
  for (const Layer& layer : model.layers()) {
    if (layer.name == name) return layer;
  }
  FAIL("no layer " << name);
  return model.layers()[0];
}

const Tensor& TensorNamed(const Model& model, const std::string& name) {
  for (const Tensor& tensor : model.tensors()) {
    if (tensor.name == name) return tensor;
  }
  FAIL("no tensor " << name);
  return model.tensors()[0];
}

TEST_CASE("the built-in models have their published parameter counts") {
  // Running statistics, as many as the weights and biases of batch norms, are not counted.
  const auto [name, parameters, statistics, tensors] =
      GENERATE(table<std::string, int64_t, int64_t, size_t>({
          {"mnist_mlp", 13'002, 0, 6},
          {"alexnet", 61'100'840, 0, 16},
          {"vgg16", 138'357'544, 0, 32},
          {"resnet18", 11'689'512, 9'600, 20 + 20 * 4 + 2},
          {"resnet34", 21'797'672, 17'024, 36 + 36 * 4 + 2},
          {"resnet50", 25'557'032, 53'120, 53 + 53 * 4 + 2},
          {"resnet101", 44'549'160, 105'344, 104 + 104 * 4 + 2},
          {"resnet152", 60'192'808, 151'424, 155 + 155 * 4 + 2},
      }));
  const Model model = Builtin(name);
  CHECK(model.name() == name);
  CHECK(model.parameter_count() == parameters);
  CHECK(model.element_count() == parameters + statistics);
  CHECK(model.tensors().size() == tensors);
  CHECK(model.classes() == (name == "mnist_mlp" ? 10 : 1000));
  CHECK(model.input() == (name == "mnist_mlp" ? Shape3{1, 28, 28} : Shape3{3, 224, 224}));
}

TEST_CASE("shrink divides every tensor's size alike and leaves the layers' shapes") {
  const Model full = Builtin("vgg16");
  const absl::StatusOr<Model> shrunk = Model::Create(Spec("builtin: 'vgg16' shrink: 60"));
  REQUIRE(shrunk.status().ToString() == "OK");
  REQUIRE(shrunk->tensors().size() == full.tensors().size());
  int64_t parameters = 0, end = 0;
  for (size_t i = 0; i < full.tensors().size(); ++i) {
    const Tensor& tensor = shrunk->tensors()[i];
    CHECK(tensor.name == full.tensors()[i].name);
    CHECK(tensor.size == full.tensors()[i].size / 60);
    CHECK(tensor.shape == std::vector<int64_t>{tensor.size});
    CHECK(tensor.offset % kAlignment == 0);
    CHECK(tensor.offset >= end);
    end = tensor.offset + tensor.size;
    parameters += tensor.size;
  }
  CHECK(shrunk->parameter_count() == parameters);
  CHECK(shrunk->buffer_size() >= end);
  CHECK(LayerNamed(*shrunk, "fc6").elements == 102'760'448 / 60 + 4096 / 60);
  CHECK(LayerNamed(*shrunk, "fc6").input == LayerNamed(full, "fc6").input);
  CHECK(shrunk->classes() == 1000);
}

TEST_CASE("a shrink that leaves a tensor without elements is refused with the tensor's name") {
  const std::string factor = GENERATE("0", "-3", "65");
  CHECK(Model::Create(Spec("builtin: 'vgg16' shrink: " + factor)).status() ==
        absl::InvalidArgumentError("shrink: is " + factor +
                                   ", allowed: 1 to 64, the elements of the smallest tensor, "
                                   "conv1_1/bias"));
}

TEST_CASE("a layer of a built-in model reads what layers before it give") {
  const Model model = Builtin(GENERATE("mnist_mlp", "alexnet", "vgg16", "resnet18", "resnet152"));
  std::set<int> read;
  for (size_t i = 0; i < model.layers().size(); ++i) {
    const Layer& layer = model.layers()[i];
    INFO(layer.name);
    CHECK(layer.inputs.size() == (layer.spec.has_residual() ? 2 : 1));
    for (const int input : layer.inputs) {
      REQUIRE(input >= kImages);
      REQUIRE(input < static_cast<int>(i));
      CHECK(layer.input == (input == kImages ? model.input() : model.layers()[input].output));
      read.insert(input);
    }
  }
  CHECK(read.size() == model.layers().size());  // the images, and all layers but the last
}

TEST_CASE("tensors and layers of a model are laid out one after the other, aligned") {
  const Model model = Builtin(GENERATE("mnist_mlp", "alexnet", "vgg16", "resnet152"));
  std::set<std::string> names;
  int64_t end = 0, elements = 0;
  for (const Tensor& tensor : model.tensors()) {
    INFO(tensor.name);
    CHECK(names.insert(tensor.name).second);
    CHECK(tensor.offset % 16 == 0);
    CHECK(tensor.offset >= end);
    CHECK(tensor.offset < end + 16);
    int64_t size = 1;
    for (const int64_t extent : tensor.shape) size *= extent;
    CHECK(tensor.size == size);
    end = tensor.offset + tensor.size;
    elements += tensor.size;
  }
  CHECK(elements == model.element_count());
  CHECK(model.buffer_size() % 16 == 0);
  CHECK(model.buffer_size() >= end);
  CHECK(model.buffer_size() < end + 16);

  int next_tensor = 0;
  for (const Layer& layer : model.layers()) {
    INFO(layer.name);
    CHECK(names.insert(layer.name).second);
    CHECK(layer.first_tensor == next_tensor);
    int64_t size = 0;
    for (int i = 0; i < layer.tensor_count; ++i, ++next_tensor) {
      CHECK(model.tensors()[next_tensor].name.find(layer.name + "/") == 0);
      size += model.tensors()[next_tensor].size;
    }
    CHECK(layer.elements == size);
  }
  CHECK(next_tensor == static_cast<int>(model.tensors().size()));
}

TEST_CASE("vgg16 has the layers of its paper") {
  const Model model = Builtin("vgg16");
  CHECK(LayerNamed(model, "fc6").elements == 102'764'544);
  CHECK(LayerNamed(model, "conv1_1").elements == 1'792);
  CHECK(LayerNamed(model, "conv5_3").output == Shape3{512, 14, 14});
  CHECK(LayerNamed(model, "fc6").input == Shape3{512, 7, 7});
  CHECK(TensorNamed(model, "fc6/weight").shape == std::vector<int64_t>{4096, 25088});
  CHECK(TensorNamed(model, "fc6/bias").shape == std::vector<int64_t>{4096});
  CHECK(TensorNamed(model, "conv1_2/weight").shape == std::vector<int64_t>{64, 64, 3, 3});
  std::vector<std::string> names;
  for (const Layer& layer : model.layers()) {
    if (layer.tensor_count > 0) names.push_back(layer.name);
  }
  CHECK(names == std::vector<std::string>{"conv1_1", "conv1_2", "conv2_1", "conv2_2", "conv3_1",
                                          "conv3_2", "conv3_3", "conv4_1", "conv4_2", "conv4_3",
                                          "conv5_1", "conv5_2", "conv5_3", "fc6", "fc7", "fc8"});
}

TEST_CASE("alexnet has the activations of torchvision") {
  const Model model = Builtin("alexnet");
  CHECK(LayerNamed(model, "conv1").output == Shape3{64, 55, 55});
  CHECK(LayerNamed(model, "conv2").output == Shape3{192, 27, 27});
  CHECK(LayerNamed(model, "conv5").output == Shape3{256, 13, 13});
  CHECK(LayerNamed(model, "fc6").input == Shape3{256, 6, 6});
}

TEST_CASE("resnet152 halves the image at the start of its stages") {
  const Model model = Builtin("resnet152");
  CHECK(LayerNamed(model, "bn1").output == Shape3{64, 112, 112});
  CHECK(LayerNamed(model, "layer1.2.bn3").output == Shape3{256, 56, 56});
  CHECK(LayerNamed(model, "layer2.0.conv1").output == Shape3{128, 56, 56});
  CHECK(LayerNamed(model, "layer2.7.bn3").output == Shape3{512, 28, 28});
  CHECK(LayerNamed(model, "layer3.35.bn3").output == Shape3{1024, 14, 14});
  CHECK(LayerNamed(model, "layer4.0.downsample.1").output == Shape3{2048, 7, 7});
  CHECK(LayerNamed(model, "layer4.2").output == Shape3{2048, 7, 7});
  CHECK(LayerNamed(model, "fc").input == Shape3{2048, 1, 1});
}

TEST_CASE("resnet18 has basic blocks, and no projection where nothing changes") {
  const Model model = Builtin("resnet18");
  CHECK(LayerNamed(model, "layer1.0.conv1").spec.conv().kernel() == 3);
  CHECK(LayerNamed(model, "layer1.1").output == Shape3{64, 56, 56});
  CHECK(LayerNamed(model, "layer4.1").output == Shape3{512, 7, 7});
  int projections = 0;
  for (const Layer& layer : model.layers()) {
    projections += layer.name.find(".downsample.0") != std::string::npos;
  }
  CHECK(projections == 3);
}

void CheckInitializer(const Tensor& tensor, const Initializer& expected) {
  INFO(tensor.name);
  CHECK(tensor.initializer.kind == expected.kind);
  CHECK(tensor.initializer.scale == Approx(expected.scale).epsilon(1e-12));
}

// Layers whose numbers of inputs and outputs all differ.
constexpr char kConvAndLinear[] = R"(
    input { channels: 3 height: 7 width: 6 }
    layer { name: "conv" conv { out_channels: 5 kernel: 2 } }
    layer { name: "fc" linear { out_features: 4 } }
)";

TEST_CASE("weights and biases of layers begin as in torch.nn unless the spec says otherwise") {
  const std::string spec = GENERATE("", "initial_values: PYTORCH");
  const absl::StatusOr<Model> model = Model::Create(Spec(kConvAndLinear + spec));
  REQUIRE(model.status().ToString() == "OK");
  for (const std::string tensor : {"weight", "bias"}) {
    CheckInitializer(TensorNamed(*model, "conv/" + tensor),
                     {Initializer::kUniform, 1 / std::sqrt(3 * 2 * 2)});
    CheckInitializer(TensorNamed(*model, "fc/" + tensor),
                     {Initializer::kUniform, 1 / std::sqrt(5 * 6 * 5)});
  }
}

TEST_CASE("HE_UNIFORM begins by He's rule, with biases of zero") {
  const absl::StatusOr<Model> model =
      Model::Create(Spec(kConvAndLinear + std::string("initial_values: HE_UNIFORM")));
  REQUIRE(model.status().ToString() == "OK");
  CheckInitializer(TensorNamed(*model, "conv/weight"),
                   {Initializer::kUniform, std::sqrt(6.0 / (3 * 2 * 2))});
  CheckInitializer(TensorNamed(*model, "fc/weight"),
                   {Initializer::kUniform, std::sqrt(6.0 / (5 * 6 * 5))});
  CheckInitializer(TensorNamed(*model, "conv/bias"), {Initializer::kZeros, 0});
  CheckInitializer(TensorNamed(*model, "fc/bias"), {Initializer::kZeros, 0});

  const absl::StatusOr<Model> vgg =
      Model::Create(Spec("builtin: 'vgg16' initial_values: HE_UNIFORM"));
  REQUIRE(vgg.status().ToString() == "OK");
  CheckInitializer(TensorNamed(*vgg, "fc6/weight"),
                   {Initializer::kUniform, std::sqrt(6.0 / 25088)});
  CheckInitializer(TensorNamed(*vgg, "conv1_2/weight"),
                   {Initializer::kUniform, std::sqrt(6.0 / (64 * 3 * 3))});
}

TEST_CASE("the built-in models begin as torchvision's") {
  const Model mlp = Builtin("mnist_mlp");
  CheckInitializer(TensorNamed(mlp, "fc1/weight"), {Initializer::kUniform, 1 / 28.0});
  CheckInitializer(TensorNamed(mlp, "fc3/bias"), {Initializer::kUniform, 1 / 4.0});

  const Model alexnet = Builtin("alexnet");
  CheckInitializer(TensorNamed(alexnet, "conv1/bias"),
                   {Initializer::kUniform, 1 / std::sqrt(3 * 11 * 11)});
  CheckInitializer(TensorNamed(alexnet, "fc6/weight"), {Initializer::kUniform, 1 / 96.0});

  const Model vgg = Builtin("vgg16");
  // kaiming_normal_ with mode="fan_out" and nonlinearity="relu"
  CheckInitializer(TensorNamed(vgg, "conv1_1/weight"),
                   {Initializer::kNormal, std::sqrt(2.0 / (64 * 3 * 3))});
  CheckInitializer(TensorNamed(vgg, "conv1_1/bias"), {Initializer::kZeros, 0});
  CheckInitializer(TensorNamed(vgg, "fc6/weight"), {Initializer::kNormal, 0.01});
  CheckInitializer(TensorNamed(vgg, "fc6/bias"), {Initializer::kZeros, 0});
  const absl::StatusOr<Model> shrunk = Model::Create(Spec("builtin: 'vgg16' shrink: 60"));
  REQUIRE(shrunk.status().ToString() == "OK");
  CheckInitializer(TensorNamed(*shrunk, "conv1_1/weight"),
                   {Initializer::kNormal, std::sqrt(2.0 / (64 * 3 * 3))});

  const Model resnet = Builtin("resnet152");
  for (const Tensor& tensor : resnet.tensors()) {
    const bool norm_ones = tensor.name.find("/weight") != std::string::npos ||
                           tensor.name.find("/running_var") != std::string::npos;
    if (tensor.shape.size() == 4) {
      const double fan_out = tensor.shape[0] * tensor.shape[2] * tensor.shape[3];
      CheckInitializer(tensor, {Initializer::kNormal, std::sqrt(2 / fan_out)});
    } else if (tensor.name.find("fc/") == 0) {
      CheckInitializer(tensor, {Initializer::kUniform, 1 / std::sqrt(2048)});
    } else {
      CheckInitializer(tensor, {norm_ones ? Initializer::kOnes : Initializer::kZeros, 0});
    }
    const bool statistic = tensor.name.find("/running_") != std::string::npos;
    CHECK((tensor.role == TensorRole::kRunningStatistic) == statistic);
  }
}

TEST_CASE("a custom model is built as its layers say") {
  const absl::StatusOr<Model> model = Model::Create(Spec(R"(
    input { channels: 2 height: 9 width: 11 }
    layer { name: "c" conv { out_channels: 4 kernel: 3 stride: 2 padding: 1 } }
    layer { relu {} }
    layer { name: "relu2" relu {} }
    layer { relu {} }
    layer { max_pool { kernel: 2 } }
    layer { max_pool { kernel: 2 stride: 1 padding: 1 } }
    layer { dropout { p: 0 } }
    layer { name: "n" batch_norm {} }
    layer { name: "l" linear { out_features: 6 bias: false } }
  )"));
  REQUIRE(model.status().ToString() == "OK");
  CHECK(model->name() == "custom");
  CHECK(model->classes() == 6);
  // Generated names avoid the given ones.
  std::vector<std::string> layers;
  for (const Layer& layer : model->layers()) layers.push_back(layer.name);
  CHECK(layers == std::vector<std::string>{"c", "relu1", "relu2", "relu3", "max_pool1", "max_pool2",
                                           "dropout1", "n", "l"});
  CHECK(model->layers()[0].output == Shape3{4, 5, 6});
  CHECK(model->layers()[4].output == Shape3{4, 2, 3});
  CHECK(model->layers()[5].output == Shape3{4, 3, 4});
  std::map<std::string, std::vector<int64_t>> shapes;
  for (const Tensor& tensor : model->tensors()) shapes[tensor.name] = tensor.shape;
  CHECK(shapes == std::map<std::string, std::vector<int64_t>>{{"c/weight", {4, 2, 3, 3}},
                                                              {"c/bias", {4}},
                                                              {"n/weight", {4}},
                                                              {"n/bias", {4}},
                                                              {"n/running_mean", {4}},
                                                              {"n/running_var", {4}},
                                                              {"l/weight", {6, 48}}});
  CHECK(model->parameter_count() == 72 + 4 + 4 + 4 + 288);
  CHECK(model->element_count() == model->parameter_count() + 4 + 4);
  CHECK(model->buffer_size() == 80 + 5 * 16 + 288);
}

TEST_CASE("a worker has a declared tensor in its type, and room for it as float32") {
  const absl::StatusOr<Model> model = Model::Create(Spec(R"(from_workers {
    tensor { name: "a" shape: [33] type: BFLOAT16 }
    tensor { name: "b" shape: [33] type: FLOAT16 }
    tensor { name: "c" shape: [33] }
    tensor { name: "d" shape: [1] role: BUFFER }
  })"));
  REQUIRE(model.status().ToString() == "OK");
  std::vector<std::vector<int64_t>> places;
  for (const Tensor& tensor : model->tensors()) {
    places.push_back({tensor.offset, tensor.parameters_begin, tensor.gradient_begin});
  }
  // The gradient of a FLOAT16 parameter is float32.
  CHECK(places == std::vector<std::vector<int64_t>>{
                      {0, 0, 0}, {48, 128, 128}, {96, 256, 320}, {144, 448, 512}});
  CHECK(model->buffer_size() == 160);
  CHECK(model->parameter_bytes() == 512);
  CHECK(model->gradient_bytes() == 576);
}

TEST_CASE("an encoding of gradients is no type of a parameter") {
  const auto model =
      Model::Create(Spec("from_workers { tensor { name: \"a\" shape: [3] type: INT8 } }"));
  CHECK_THAT(model.status().ToString(),
             Catch::Contains("a is INT8, which is for gradients only, allowed: FLOAT32, FLOAT16, "
                             "BFLOAT16"));
}

TEST_CASE("a tensor has a name that a file of safetensors can have") {
  const auto model =
      Model::Create(Spec("from_workers { tensor { name: \"__metadata__\" shape: [3] } }"));
  CHECK_THAT(model.status().ToString(), Catch::Contains("is no tensor's in a file of safetensors"));
}

TEST_CASE("what is no parameter has no type of 16 bits") {
  const absl::StatusOr<Model> model = Model::Create(
      Spec("from_workers { tensor { name: \"a\" shape: [3] role: BUFFER type: BFLOAT16 } }"));
  CHECK_THAT(std::string(model.status().message()),
             Catch::Contains("from_workers.tensor[0]: a is BFLOAT16 and no parameter, allowed: "
                             "FLOAT32"));
}

TEST_CASE("the layers of a residual block stand in line, its end last, and tell what they read") {
  const absl::StatusOr<Model> model = Model::Create(Spec(R"(
    input { channels: 3 height: 8 width: 8 }
    layer { residual {
      body { name: "b" conv { out_channels: 5 kernel: 3 stride: 2 padding: 1 } }
      shortcut { name: "s" conv { out_channels: 5 kernel: 1 stride: 2 } }
    } }
    layer { name: "block" residual { body { relu {} } } }
    layer { global_avg_pool {} }
  )"));
  REQUIRE(model.status().ToString() == "OK");
  std::vector<std::pair<std::string, std::vector<int>>> layers;
  for (const Layer& layer : model->layers()) layers.emplace_back(layer.name, layer.inputs);
  CHECK(layers == std::vector<std::pair<std::string, std::vector<int>>>{{"b", {kImages}},
                                                                        {"s", {kImages}},
                                                                        {"residual1", {0, 1}},
                                                                        {"relu1", {2}},
                                                                        {"block", {3, 2}},
                                                                        {"global_avg_pool1", {4}}});
  CHECK(model->layers()[2].output == Shape3{5, 4, 4});
  CHECK(model->layers()[2].tensor_count == 0);
  CHECK(model->classes() == 5);
}

TEST_CASE("a wrong model is refused with an error that names the place") {
  const std::string input = "input { channels: 3 height: 8 width: 8 } ";
  const std::string end = " layer { name: 'end' linear { out_features: 2 } }";
  const auto [text, message] = GENERATE_COPY(table<std::string, std::string>({
      {"builtin: 'vgg61'",
       "builtin: there is no model \"vgg61\"; known are mnist_mlp, alexnet, vgg16, resnet18, "
       "resnet34, resnet50, resnet101, resnet152"},
      {"builtin: ''", "builtin: there is no model \"\""},
      {"builtin: 'vgg16'" + end, "give either `builtin` or `input` and `layer`"},
      {"builtin: 'vgg16' " + input, "give either `builtin` or `input` and `layer`"},
      {"", "input.channels must be given and positive, it is 0"},
      {"input { channels: 3 height: -8 width: 8 }" + end,
       "input.height must be given and positive, it is -8"},
      {"input { channels: 3 height: 8 }" + end, "input.width must be given and positive, it is 0"},
      {"input { channels: 3 height: 65536 width: 65536 }" + end,
       "an activation of 3x65536x65536 is too large"},
      {input, "layer: the model has no layers"},
      {input + "layer { global_avg_pool {} }", "layer: the model has no parameters"},
      {input + "layer { name: 'x' }" + end,
       "layer[0] \"x\": its kind is missing, allowed are conv, linear, max_pool, relu, dropout, "
       "batch_norm, global_avg_pool, residual"},
      {input + "layer { linear { out_features: 2 } }",
       "layer[0]: a linear layer has parameters and needs a name"},
      {input + "layer { name: 'a/b' relu {} }" + end, "layer[0] \"a/b\": a layer's name must not"},
      {input + "layer { name: 'end' relu {} }" + end,
       "layer[1]: the name \"end\" is taken by an earlier layer"},
      {input + "layer { name: 'x' linear {} }",
       "layer[0] \"x\": linear.out_features must be given and positive, it is 0"},
      {input + "layer { name: 'x' conv { kernel: 3 } }" + end,
       "layer[0] \"x\": conv.out_channels must be given and positive, it is 0"},
      {input + "layer { name: 'x' conv { out_channels: 3 } }" + end,
       "layer[0] \"x\": conv.kernel must be given and positive, it is 0"},
      {input + "layer { name: 'x' conv { out_channels: 3 kernel: 3 stride: 0 } }" + end,
       "layer[0] \"x\": conv.stride must be given and positive, it is 0"},
      {input + "layer { name: 'x' conv { out_channels: 3 kernel: 3 padding: -1 } }" + end,
       "layer[0] \"x\": conv.padding is -1, allowed is 0 to 2"},
      {input + "layer { relu {} } layer { name: 'x' conv { out_channels: 3 kernel: 9 } }" + end,
       "layer[1] \"x\": the kernel 9x9 does not fit its input 3x8x8 with padding 0"},
      {input + "layer { max_pool {} }" + end,
       "layer[0] \"max_pool1\": max_pool.kernel must be given and positive, it is 0"},
      {input + "layer { max_pool { kernel: 2 stride: -1 } }" + end,
       "layer[0] \"max_pool1\": max_pool.stride must be given and positive, it is -1"},
      {input + "layer { max_pool { kernel: 3 padding: 2 } }" + end,
       "layer[0] \"max_pool1\": max_pool.padding is 2, allowed is 0 to 1"},
      {input + "layer { max_pool { kernel: 11 padding: 1 } }" + end,
       "layer[0] \"max_pool1\": the kernel 11x11 does not fit"},
      {input + "layer { dropout { p: 1 } }" + end,
       "layer[0] \"dropout1\": dropout.p is 1, allowed is 0 to below 1"},
      {input + "layer { dropout { p: -0.5 } }" + end, "dropout.p is -0.5"},
      {input + "layer { name: 'x' batch_norm { epsilon: 0 } }" + end,
       "layer[0] \"x\": batch_norm.epsilon is 0, allowed is above 0"},
      {input + "layer { name: 'x' batch_norm { epsilon: nan } }" + end,
       "batch_norm.epsilon is nan"},
      {input + "layer { name: 'x' batch_norm { momentum: 0 } }" + end,
       "layer[0] \"x\": batch_norm.momentum is 0, allowed is above 0, to 1"},
      {input + "layer { name: 'x' batch_norm { momentum: 1.5 } }" + end,
       "batch_norm.momentum is 1.5"},
      {input + "layer { dropout { p: nan } }" + end, "dropout.p is nan"},
      {input + "layer { name: 'x' conv { out_channels: 2 kernel: 7 } }",
       "the last layer, x, gives 2x2x2, but a model must end as {classes}x1x1"},
      {input + "layer { name: 'x' conv { out_channels: 2000000000 kernel: 1 } }" + end,
       "layer[0] \"x\": an activation of 2000000000x8x8 is too large"},
      {input + "layer { name: 'x' linear { out_features: 2147483647 } }" + end,
       "layer[0] \"x\": with x/weight [2147483647, 192] the model has more than 68719476736 "
       "parameters"},
      {input + "layer { residual {} }" + end,
       "layer[0] \"residual1\": residual.body has no layers"},
      {input + "layer { residual { body { name: 'x' conv { out_channels: 3 kernel: 9 } } } }" + end,
       "layer[0].residual.body[0] \"x\": the kernel 9x9 does not fit"},
      {input +
           "layer { name: 'r' residual { body { relu {} } shortcut { max_pool { kernel: 2 } } } }" +
           end,
       "layer[0] \"r\": residual.body gives 3x8x8, but residual.shortcut gives 3x4x4"},
  }));
  INFO(text);
  const absl::StatusOr<Model> model = Model::Create(Spec(text));
  CHECK(model.status().code() == absl::StatusCode::kInvalidArgument);
  CHECK_THAT(std::string(model.status().message()), Catch::Contains(message));
}

TEST_CASE("the limit on parameters counts all layers together") {
  // Each of a and b has 2^20 * 2^15 = 2^35 parameters, half of the limit, so c exceeds it.
  const absl::StatusOr<Model> model = Model::Create(Spec(R"(
    input { channels: 1048576 height: 1 width: 1 }
    layer { name: "a" linear { out_features: 32768 bias: false } }
    layer { name: "b" linear { out_features: 1048576 bias: false } }
    layer { name: "c" linear { out_features: 1 bias: false } }
  )"));
  CHECK_THAT(std::string(model.status().message()),
             Catch::Contains("layer[2] \"c\": with c/weight [1, 1048576] the model has more than"));
}

}  // namespace
}  // namespace evenshard
