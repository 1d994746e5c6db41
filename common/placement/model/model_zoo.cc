#include "common/placement/model/model_zoo.h"

#include <string>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace evenshard {
namespace {

using LayerSpecs = google::protobuf::RepeatedPtrField<LayerSpec>;

void SetInput(ModelSpec& spec, int channels, int height, int width) {
  spec.mutable_input()->set_channels(channels);
  spec.mutable_input()->set_height(height);
  spec.mutable_input()->set_width(width);
}

Conv2d* AddConv(LayerSpecs& layers, const std::string& name, int out_channels, int kernel,
                int stride, int padding) {
  LayerSpec* layer = layers.Add();
  layer->set_name(name);
  Conv2d* conv = layer->mutable_conv();
  conv->set_out_channels(out_channels);
  conv->set_kernel(kernel);
  conv->set_stride(stride);
  conv->set_padding(padding);
  return conv;
}

void AddRelu(LayerSpecs& layers) { layers.Add()->mutable_relu(); }

void AddMaxPool(LayerSpecs& layers, int kernel, int stride, int padding) {
  MaxPool2d* pool = layers.Add()->mutable_max_pool();
  pool->set_kernel(kernel);
  pool->set_stride(stride);
  pool->set_padding(padding);
}

void AddLinear(LayerSpecs& layers, const std::string& name, int out_features) {
  LayerSpec* layer = layers.Add();
  layer->set_name(name);
  layer->mutable_linear()->set_out_features(out_features);
}

ModelSpec MnistMlp() {
  ModelSpec spec;
  SetInput(spec, 1, 28, 28);
  LayerSpecs& layers = *spec.mutable_layer();
  AddLinear(layers, "fc1", 16);
  AddRelu(layers);
  AddLinear(layers, "fc2", 16);
  AddRelu(layers);
  AddLinear(layers, "fc3", 10);
  return spec;
}

// Krizhevsky 2014, "One weird trick for parallelizing convolutional neural
// networks", in the single-tower form of torchvision.
ModelSpec AlexNet() {
  ModelSpec spec;
  SetInput(spec, 3, 224, 224);
  LayerSpecs& layers = *spec.mutable_layer();
  struct Row {
    const char* name;
    int out_channels, kernel, stride, padding;
    bool pool;
  };
  for (const Row& row : {Row{"conv1", 64, 11, 4, 2, true}, Row{"conv2", 192, 5, 1, 2, true},
                         Row{"conv3", 384, 3, 1, 1, false}, Row{"conv4", 256, 3, 1, 1, false},
                         Row{"conv5", 256, 3, 1, 1, true}}) {
    AddConv(layers, row.name, row.out_channels, row.kernel, row.stride, row.padding);
    AddRelu(layers);
    if (row.pool) AddMaxPool(layers, 3, 2, 0);
  }
  for (const char* name : {"fc6", "fc7"}) {
    layers.Add()->mutable_dropout();
    AddLinear(layers, name, 4096);
    AddRelu(layers);
  }
  AddLinear(layers, "fc8", 1000);
  return spec;
}

// Simonyan and Zisserman 2015, configuration D.
ModelSpec Vgg16() {
  ModelSpec spec;
  SetInput(spec, 3, 224, 224);
  LayerSpecs& layers = *spec.mutable_layer();
  struct Group {
    int convolutions, channels;
  };
  int group_number = 0;
  for (const Group& group :
       {Group{2, 64}, Group{2, 128}, Group{3, 256}, Group{3, 512}, Group{3, 512}}) {
    ++group_number;
    for (int i = 1; i <= group.convolutions; ++i) {
      AddConv(layers, absl::StrCat("conv", group_number, "_", i), group.channels, 3, 1, 1);
      AddRelu(layers);
    }
    AddMaxPool(layers, 2, 2, 0);
  }
  for (const char* name : {"fc6", "fc7"}) {
    AddLinear(layers, name, 4096);
    AddRelu(layers);
    layers.Add()->mutable_dropout();
  }
  AddLinear(layers, "fc8", 1000);
  return spec;
}

// A convolution without bias and the batch norm that follows it.
void AddConvNorm(LayerSpecs& layers, const std::string& conv, const std::string& norm,
                 int out_channels, int kernel, int stride, int padding) {
  AddConv(layers, conv, out_channels, kernel, stride, padding)->set_bias(false);
  LayerSpec* layer = layers.Add();
  layer->set_name(norm);
  layer->mutable_batch_norm();
}

// He, Zhang, Ren, Sun 2016, table 1. Names are torchvision's, and as in torchvision a bottleneck
// block has its stride in the 3x3 convolution.
struct ResNet {
  int blocks[4];    // in each stage
  bool bottleneck;  // a block has 1x1, 3x3 and 1x1 convolutions instead of two 3x3
};

constexpr int kStageChannels[4] = {64, 128, 256, 512};

// Adds a residual block. `stride` 2 halves its output's height and width. If `projects`, the
// shortcut is a 1x1 convolution that brings the block's input to the shape of its output.
void AddBlock(LayerSpecs& layers, const std::string& name, bool bottleneck, int channels,
              int stride, bool projects) {
  constexpr int kExpansion = 4;  // output channels over inner channels of a bottleneck block
  LayerSpec* const layer = layers.Add();
  layer->set_name(name);
  LayerSpecs& body = *layer->mutable_residual()->mutable_body();
  int out_channels = channels;
  if (bottleneck) {
    out_channels *= kExpansion;
    AddConvNorm(body, name + ".conv1", name + ".bn1", channels, 1, 1, 0);
    AddRelu(body);
    AddConvNorm(body, name + ".conv2", name + ".bn2", channels, 3, stride, 1);
    AddRelu(body);
    AddConvNorm(body, name + ".conv3", name + ".bn3", out_channels, 1, 1, 0);
  } else {
    AddConvNorm(body, name + ".conv1", name + ".bn1", channels, 3, stride, 1);
    AddRelu(body);
    AddConvNorm(body, name + ".conv2", name + ".bn2", channels, 3, 1, 1);
  }
  if (projects) {
    AddConvNorm(*layer->mutable_residual()->mutable_shortcut(), name + ".downsample.0",
                name + ".downsample.1", out_channels, 1, stride, 0);
  }
}

ModelSpec MakeResNet(const ResNet& net) {
  ModelSpec spec;
  SetInput(spec, 3, 224, 224);
  LayerSpecs& layers = *spec.mutable_layer();
  AddConvNorm(layers, "conv1", "bn1", 64, 7, 2, 3);
  AddRelu(layers);
  AddMaxPool(layers, 3, 2, 1);
  for (int stage = 0; stage < 4; ++stage) {
    for (int block = 0; block < net.blocks[stage]; ++block) {
      const int stride = stage > 0 && block == 0 ? 2 : 1;
      AddBlock(layers, absl::StrCat("layer", stage + 1, ".", block), net.bottleneck,
               kStageChannels[stage], stride,
               /*projects=*/block == 0 && (net.bottleneck || stage > 0));
    }
  }
  layers.Add()->mutable_global_avg_pool();
  AddLinear(layers, "fc", 1000);
  return spec;
}

ModelSpec ResNet18() { return MakeResNet({{2, 2, 2, 2}, /*bottleneck=*/false}); }
ModelSpec ResNet34() { return MakeResNet({{3, 4, 6, 3}, /*bottleneck=*/false}); }
ModelSpec ResNet50() { return MakeResNet({{3, 4, 6, 3}, /*bottleneck=*/true}); }
ModelSpec ResNet101() { return MakeResNet({{3, 4, 23, 3}, /*bottleneck=*/true}); }
ModelSpec ResNet152() { return MakeResNet({{3, 8, 36, 3}, /*bottleneck=*/true}); }

constexpr LayerInitializers kTorch = {};
constexpr LayerInitializers kTorchVgg = {LayerInitializer::kHeNormal,
                                         LayerInitializer::kSmallNormal};
constexpr LayerInitializers kTorchResNet = {.conv = LayerInitializer::kHeNormal};

struct Builtin {
  absl::string_view name;
  ModelSpec (*spec)();
  LayerInitializers initializers;
};
constexpr Builtin kBuiltins[] = {
    {"mnist_mlp", MnistMlp, kTorch},
    {"alexnet", AlexNet, kTorch},
    {"vgg16", Vgg16, kTorchVgg},
    {"resnet18", ResNet18, kTorchResNet},
    {"resnet34", ResNet34, kTorchResNet},
    {"resnet50", ResNet50, kTorchResNet},
    {"resnet101", ResNet101, kTorchResNet},
    {"resnet152", ResNet152, kTorchResNet},
};

}  // namespace

absl::StatusOr<BuiltinSpec> BuiltinModel(absl::string_view name) {
  for (const Builtin& builtin : kBuiltins) {
    if (builtin.name == name) return BuiltinSpec{builtin.spec(), builtin.initializers};
  }
  return absl::InvalidArgumentError(
      absl::StrCat("builtin: there is no model \"", name, "\"; known are ",
                   absl::StrJoin(kBuiltins, ", ", [](std::string* out, const Builtin& builtin) {
                     absl::StrAppend(out, builtin.name);
                   })));
}

}  // namespace evenshard
