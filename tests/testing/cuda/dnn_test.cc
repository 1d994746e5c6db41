// Tests the stand-in's cuDNN.

#include <cudnn.h>

#include <array>
#include <catch2/catch.hpp>
#include <cmath>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "common/base/random.h"
#include "common/wire/half_width.h"
#include "tests/testing/cuda/fixture.h"

namespace evenshard::cuda_stand_in {
namespace {

class Dnn {
 public:
  Dnn() {
    REQUIRE(cudnnCreate(&handle_) == CUDNN_STATUS_SUCCESS);
    REQUIRE(cudnnSetStream(handle_, stream_.get()) == CUDNN_STATUS_SUCCESS);
  }
  ~Dnn() { cudnnDestroy(handle_); }
  cudnnHandle_t get() const { return handle_; }
  const Stream& stream() const { return stream_; }

 private:
  Stream stream_;
  cudnnHandle_t handle_ = nullptr;
};

class Descriptor {
 public:
  explicit Descriptor(cudnnBackendDescriptorType_t type) {
    REQUIRE(cudnnBackendCreateDescriptor(type, &descriptor_) == CUDNN_STATUS_SUCCESS);
  }
  ~Descriptor() {
    if (descriptor_ != nullptr) cudnnBackendDestroyDescriptor(descriptor_);
  }
  Descriptor(Descriptor&& other) : descriptor_(std::exchange(other.descriptor_, nullptr)) {}

  cudnnBackendDescriptor_t get() const { return descriptor_; }
  template <typename T>
  cudnnStatus_t Set(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type,
                    std::vector<T> values) {
    return cudnnBackendSetAttribute(descriptor_, name, type, static_cast<int64_t>(values.size()),
                                    values.data());
  }
  cudnnStatus_t Set(cudnnBackendAttributeName_t name, const Descriptor& other) {
    return Set<cudnnBackendDescriptor_t>(name, CUDNN_TYPE_BACKEND_DESCRIPTOR, {other.get()});
  }
  cudnnStatus_t Finalize() { return cudnnBackendFinalize(descriptor_); }

 private:
  cudnnBackendDescriptor_t descriptor_ = nullptr;
};

using Four = std::array<int64_t, 4>;

Four Dense(const Four& sizes, bool channels_last) {
  const auto [n, c, h, w] = sizes;
  return channels_last ? Four{h * w * c, 1, w * c, c} : Four{c * h * w, h * w, w, 1};
}

Descriptor MakeTensor(int64_t id, const Four& sizes, const Four& strides,
                      cudnnDataType_t type = CUDNN_DATA_FLOAT, bool is_virtual = false) {
  Descriptor tensor(CUDNN_BACKEND_TENSOR_DESCRIPTOR);
  tensor.Set<cudnnDataType_t>(CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE, {type});
  tensor.Set<int64_t>(CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, {sizes.begin(), sizes.end()});
  tensor.Set<int64_t>(CUDNN_ATTR_TENSOR_STRIDES, CUDNN_TYPE_INT64,
                      {strides.begin(), strides.end()});
  tensor.Set<int64_t>(CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64, {id});
  tensor.Set<int64_t>(CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, CUDNN_TYPE_INT64, {16});
  if (is_virtual) tensor.Set<char>(CUDNN_ATTR_TENSOR_IS_VIRTUAL, CUDNN_TYPE_BOOLEAN, {true});
  REQUIRE(tensor.Finalize() == CUDNN_STATUS_SUCCESS);
  return tensor;
}

// The geometry of a convolution. It is the same for rows and columns, except for the paddings.
struct Geometry {
  int64_t pad_top = 1, pad_left = 2, pad_bottom = 0, pad_right = 1, stride = 1, dilation = 1;
};

Descriptor MakeConvolution(const Geometry& g) {
  Descriptor result(CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR);
  result.Set<cudnnDataType_t>(CUDNN_ATTR_CONVOLUTION_COMP_TYPE, CUDNN_TYPE_DATA_TYPE,
                              {CUDNN_DATA_FLOAT});
  result.Set<cudnnConvolutionMode_t>(CUDNN_ATTR_CONVOLUTION_CONV_MODE, CUDNN_TYPE_CONVOLUTION_MODE,
                                     {CUDNN_CROSS_CORRELATION});
  const auto set = [&](cudnnBackendAttributeName_t name, std::vector<int64_t> values) {
    REQUIRE(result.Set(name, CUDNN_TYPE_INT64, values) == CUDNN_STATUS_SUCCESS);
  };
  set(CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, {2});
  set(CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, {g.pad_top, g.pad_left});
  set(CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, {g.pad_bottom, g.pad_right});
  set(CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, {g.stride, g.stride});
  set(CUDNN_ATTR_CONVOLUTION_DILATIONS, {g.dilation, g.dilation});
  REQUIRE(result.Finalize() == CUDNN_STATUS_SUCCESS);
  return result;
}

// The attributes of an operation: alpha, beta, the convolution, and x, w and y or their gradients.
struct Operation {
  cudnnBackendDescriptorType_t type;
  cudnnBackendAttributeName_t alpha, beta, convolution, x, w, y;
  int output;  // 0: x, 1: w, 2: y
};
const Operation kOperations[] = {
    {CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR,
     CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA,
     CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X,
     CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y, 2},
    {CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR,
     CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_ALPHA,
     CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_BETA,
     CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_CONV_DESC,
     CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DX, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_W,
     CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DY, 0},
    {CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR,
     CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_ALPHA,
     CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_BETA,
     CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_CONV_DESC,
     CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_X, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DW,
     CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DY, 1},
};

constexpr int64_t kIds[] = {10, 20, 30};  // for x, w, y

Descriptor MakeOperation(const Operation& names, const Descriptor& convolution, const Descriptor& x,
                         const Descriptor& w, const Descriptor& y, float alpha, float beta) {
  Descriptor operation(names.type);
  operation.Set<float>(names.alpha, CUDNN_TYPE_FLOAT, {alpha});
  operation.Set<double>(names.beta, CUDNN_TYPE_DOUBLE, {beta});
  operation.Set(names.convolution, convolution);
  operation.Set(names.x, x);
  operation.Set(names.w, w);
  operation.Set(names.y, y);
  REQUIRE(operation.Finalize() == CUDNN_STATUS_SUCCESS);
  return operation;
}

// Sets `operations` in order. The graph is not finalized.
Descriptor MakeGraph(const Dnn& dnn, const std::vector<const Descriptor*>& operations) {
  Descriptor graph(CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR);
  std::vector<cudnnBackendDescriptor_t> pointers;
  for (const Descriptor* operation : operations) pointers.push_back(operation->get());
  graph.Set<cudnnHandle_t>(CUDNN_ATTR_OPERATIONGRAPH_HANDLE, CUDNN_TYPE_HANDLE, {dnn.get()});
  graph.Set(CUDNN_ATTR_OPERATIONGRAPH_OPS, CUDNN_TYPE_BACKEND_DESCRIPTOR, pointers);
  return graph;
}

// Returns the number of engines that `heuristics` recommends for a graph, and fills `config` with
// the first one, if there is any.
int64_t AskForEngines(const Descriptor& graph, cudnnBackendHeurMode_t mode, Descriptor* heuristics,
                      Descriptor* config) {
  heuristics->Set(CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, graph);
  heuristics->Set<cudnnBackendHeurMode_t>(CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, {mode});
  REQUIRE(heuristics->Finalize() == CUDNN_STATUS_SUCCESS);
  int64_t count = 0;
  cudnnBackendDescriptor_t first = config->get();
  REQUIRE(cudnnBackendGetAttribute(heuristics->get(), CUDNN_ATTR_ENGINEHEUR_RESULTS,
                                   CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &count,
                                   &first) == CUDNN_STATUS_SUCCESS);
  return count;
}

// All descriptors of a graph, from the tensors to the first engine configuration that `mode`
// recommends.
struct Graph {
  Descriptor x, w, y, convolution, operation, graph, heuristics, config;

  Graph(const Dnn& dnn, const Operation& names, Descriptor x_tensor, Descriptor w_tensor,
        Descriptor y_tensor, const Geometry& geometry, float alpha = 1, float beta = 0,
        cudnnBackendHeurMode_t mode = CUDNN_HEUR_MODE_A)
      : x(std::move(x_tensor)),
        w(std::move(w_tensor)),
        y(std::move(y_tensor)),
        convolution(MakeConvolution(geometry)),
        operation(MakeOperation(names, convolution, x, w, y, alpha, beta)),
        graph(MakeGraph(dnn, {&operation})),
        heuristics(CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR),
        config(CUDNN_BACKEND_ENGINECFG_DESCRIPTOR) {
    REQUIRE(graph.Finalize() == CUDNN_STATUS_SUCCESS);
    CHECK(AskForEngines(graph, mode, &heuristics, &config) ==
          (mode == CUDNN_HEUR_MODE_FALLBACK ? 1 : 2));
  }
};

constexpr Geometry kNoPadding = {.pad_top = 0, .pad_left = 0, .pad_bottom = 0, .pad_right = 0};

struct PointwiseOperation {
  Descriptor function, operation;

  PointwiseOperation(cudnnPointwiseMode_t mode, const Descriptor& x, const Descriptor* b,
                     const Descriptor& y, bool keeps_nan = false)
      : function(CUDNN_BACKEND_POINTWISE_DESCRIPTOR),
        operation(CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR) {
    function.Set<cudnnPointwiseMode_t>(CUDNN_ATTR_POINTWISE_MODE, CUDNN_TYPE_POINTWISE_MODE,
                                       {mode});
    function.Set<cudnnDataType_t>(CUDNN_ATTR_POINTWISE_MATH_PREC, CUDNN_TYPE_DATA_TYPE,
                                  {CUDNN_DATA_FLOAT});
    if (keeps_nan) {
      function.Set<cudnnNanPropagation_t>(CUDNN_ATTR_POINTWISE_NAN_PROPAGATION,
                                          CUDNN_TYPE_NAN_PROPOGATION, {CUDNN_PROPAGATE_NAN});
    }
    REQUIRE(function.Finalize() == CUDNN_STATUS_SUCCESS);
    operation.Set(CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, function);
    operation.Set(CUDNN_ATTR_OPERATION_POINTWISE_XDESC, x);
    if (b != nullptr) operation.Set(CUDNN_ATTR_OPERATION_POINTWISE_BDESC, *b);
    operation.Set(CUDNN_ATTR_OPERATION_POINTWISE_YDESC, y);
  }
};

Descriptor MakePlan(const Dnn& dnn, const Descriptor& config) {
  Descriptor plan(CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR);
  plan.Set<cudnnHandle_t>(CUDNN_ATTR_EXECUTION_PLAN_HANDLE, CUDNN_TYPE_HANDLE, {dnn.get()});
  plan.Set(CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, config);
  REQUIRE(plan.Finalize() == CUDNN_STATUS_SUCCESS);
  return plan;
}

int64_t WorkspaceBytes(const Descriptor& plan) {
  int64_t bytes = -1, count = 0;
  REQUIRE(cudnnBackendGetAttribute(plan.get(), CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE,
                                   CUDNN_TYPE_INT64, 1, &count, &bytes) == CUDNN_STATUS_SUCCESS);
  return bytes;
}

Descriptor MakePack(std::vector<int64_t> ids, std::vector<void*> pointers, void* workspace) {
  Descriptor pack(CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR);
  pack.Set(CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, CUDNN_TYPE_INT64, ids);
  pack.Set(CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR, pointers);
  pack.Set<void*>(CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR, {workspace});
  REQUIRE(pack.Finalize() == CUDNN_STATUS_SUCCESS);
  return pack;
}

std::vector<float> RandomFloats(int64_t n, uint64_t stream) {
  std::vector<float> values(n);
  for (int64_t i = 0; i < n; ++i) values[i] = CounterRandom(1, stream).Normal(i);
  return values;
}

std::string LastErrorString() {
  char message[200];
  cudnnGetLastErrorString(message, sizeof(message));
  return message;
}

// The sizes of x, w and y for a geometry.
struct Case {
  Four x = {2, 5, 7, 6}, w = {4, 5, 3, 2}, y;

  explicit Case(const Geometry& g) {
    y = {x[0], w[0], (x[2] + g.pad_top + g.pad_bottom - (w[2] - 1) * g.dilation - 1) / g.stride + 1,
         (x[3] + g.pad_left + g.pad_right - (w[3] - 1) * g.dilation - 1) / g.stride + 1};
  }
};

TEST_CASE("A convolution and its gradients follow the definition") {
  const FreshDevice device;
  const Operation& names = GENERATE(kOperations[0], kOperations[1], kOperations[2]);
  const bool channels_last = GENERATE(true, false);
  const bool halves = GENERATE(false, true);
  const Geometry geometry =
      GENERATE(Geometry{}, Geometry{.stride = 2}, Geometry{.stride = 3, .dilation = 2});
  const float alpha = 0.5f;
  const float beta = GENERATE(0.0f, 2.0f);
  CAPTURE(names.output, channels_last, halves, geometry.stride, geometry.dilation, beta);
  const Case sizes(geometry);
  const Four all_sizes[] = {sizes.x, sizes.w, sizes.y};

  const Dnn dnn;
  const cudnnDataType_t type = halves ? CUDNN_DATA_BFLOAT16 : CUDNN_DATA_FLOAT;
  std::vector<float> values[3];
  Four strides[3];
  std::vector<std::unique_ptr<Buffer>> buffers;
  std::vector<void*> pointers;
  std::vector<Descriptor> tensors;
  for (int t = 0; t < 3; ++t) {
    const auto [n, c, h, w] = all_sizes[t];
    strides[t] = Dense(all_sizes[t], channels_last);
    values[t] = RandomFloats(n * c * h * w, t);
    std::vector<uint16_t> encoded(values[t].size());
    Bfloat16().encode(values[t].data(), encoded.size(), encoded.data());
    if (halves) Bfloat16().decode(encoded.data(), encoded.size(), values[t].data());
    if (t == names.output && beta == 0) {  // filled with NaNs
      buffers.push_back(std::make_unique<Buffer>(values[t].size() * (halves ? 2 : 4)));
    } else if (halves) {
      buffers.push_back(std::make_unique<Buffer>(encoded));
    } else {
      buffers.push_back(std::make_unique<Buffer>(values[t]));
    }
    pointers.push_back(buffers.back()->data());
    tensors.push_back(MakeTensor(kIds[t], all_sizes[t], strides[t], type));
  }
  const Graph graph(dnn, names, std::move(tensors[0]), std::move(tensors[1]), std::move(tensors[2]),
                    geometry, alpha, beta);
  const Descriptor plan = MakePlan(dnn, graph.config);
  const Buffer workspace(WorkspaceBytes(plan));
  const Descriptor pack = MakePack({kIds[0], kIds[1], kIds[2]}, pointers, workspace.data());
  REQUIRE(cudnnBackendExecute(dnn.get(), plan.get(), pack.get()) == CUDNN_STATUS_SUCCESS);

  const int output = names.output;
  std::vector<float> result(values[output].size());
  if (halves) {
    const auto encoded = buffers[output]->Values<uint16_t>(dnn.stream());
    Bfloat16().decode(encoded.data(), encoded.size(), result.data());
  } else {
    result = buffers[output]->Values<float>(dnn.stream());
  }

  std::vector<double> expected(result.size());
  for (size_t i = 0; i < expected.size(); ++i) {
    expected[i] = beta == 0 ? 0 : beta * values[output][i];
  }
  const auto at = [&](int t, int64_t a, int64_t b, int64_t c, int64_t d) {
    return a * strides[t][0] + b * strides[t][1] + c * strides[t][2] + d * strides[t][3];
  };
  for (int64_t n = 0; n < sizes.y[0]; ++n) {
    for (int64_t k = 0; k < sizes.y[1]; ++k) {
      for (int64_t p = 0; p < sizes.y[2]; ++p) {
        for (int64_t q = 0; q < sizes.y[3]; ++q) {
          for (int64_t c = 0; c < sizes.w[1]; ++c) {
            for (int64_t r = 0; r < sizes.w[2]; ++r) {
              for (int64_t s = 0; s < sizes.w[3]; ++s) {
                const int64_t h = p * geometry.stride + r * geometry.dilation - geometry.pad_top;
                const int64_t w = q * geometry.stride + s * geometry.dilation - geometry.pad_left;
                if (h < 0 || h >= sizes.x[2] || w < 0 || w >= sizes.x[3]) continue;
                const int64_t places[] = {at(0, n, c, h, w), at(1, k, c, r, s), at(2, n, k, p, q)};
                double product = alpha;
                for (int t = 0; t < 3; ++t) product *= t == output ? 1 : values[t][places[t]];
                expected[places[output]] += product;
              }
            }
          }
        }
      }
    }
  }
  const double tolerance = halves ? Bfloat16().relative_error : 1e-5;
  for (size_t i = 0; i < result.size(); ++i) {
    REQUIRE(std::abs(result[i] - expected[i]) <= tolerance * std::abs(expected[i]) + 1e-4);
  }
}

TEST_CASE("Heuristics give two engines, with tensor cores and without") {
  const FreshDevice device;
  const Dnn dnn;
  const Geometry geometry;
  const Case sizes(geometry);
  const auto mode = GENERATE(CUDNN_HEUR_MODE_A, CUDNN_HEUR_MODE_B, CUDNN_HEUR_MODE_FALLBACK);
  const Graph graph(dnn, kOperations[0], MakeTensor(1, sizes.x, Dense(sizes.x, true)),
                    MakeTensor(2, sizes.w, Dense(sizes.w, true)),
                    MakeTensor(3, sizes.y, Dense(sizes.y, true)), geometry, 1, 0, mode);
  const bool tensor_cores = mode != CUDNN_HEUR_MODE_FALLBACK;

  const Descriptor engine(CUDNN_BACKEND_ENGINE_DESCRIPTOR);
  cudnnBackendDescriptor_t to = engine.get();
  int64_t count = 0;
  REQUIRE(cudnnBackendGetAttribute(graph.config.get(), CUDNN_ATTR_ENGINECFG_ENGINE,
                                   CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &count,
                                   &to) == CUDNN_STATUS_SUCCESS);
  std::vector<cudnnBackendNumericalNote_t> notes(CUDNN_NUMERICAL_NOTE_TYPE_COUNT);
  REQUIRE(cudnnBackendGetAttribute(engine.get(), CUDNN_ATTR_ENGINE_NUMERICAL_NOTE,
                                   CUDNN_TYPE_NUMERICAL_NOTE, notes.size(), &count,
                                   notes.data()) == CUDNN_STATUS_SUCCESS);
  CHECK(count == (tensor_cores ? 1 : 0));
  if (tensor_cores) CHECK(notes[0] == CUDNN_NUMERICAL_NOTE_TENSOR_CORE);
  CHECK(WorkspaceBytes(MakePlan(dnn, graph.config)) == (tensor_cores ? 1 << 20 : 0));
}

// x and w are ones, so each of the two pixels of y is 4 in all three filters. The second filter's
// bias makes that negative, and the third's is NaN.
TEST_CASE("A forward convolution takes bias and ReLU into its pass") {
  const FreshDevice device;
  const Dnn dnn;
  const bool halves = GENERATE(false, true);
  const bool keeps_nan = GENERATE(false, true);
  const cudnnDataType_t type = halves ? CUDNN_DATA_BFLOAT16 : CUDNN_DATA_FLOAT;
  const Four x_sizes = {1, 4, 2, 1}, w_sizes = {3, 4, 1, 1}, y_sizes = {1, 3, 2, 1};
  const Four b_sizes = {1, 3, 1, 1}, y_strides = Dense(y_sizes, true);
  const Descriptor x = MakeTensor(1, x_sizes, Dense(x_sizes, true), type);
  const Descriptor w = MakeTensor(2, w_sizes, Dense(w_sizes, true), type);
  const Descriptor y = MakeTensor(3, y_sizes, y_strides, type);
  const Descriptor b = MakeTensor(4, b_sizes, Dense(b_sizes, true), type);
  const Descriptor sums = MakeTensor(5, y_sizes, y_strides, CUDNN_DATA_FLOAT, true);
  const Descriptor biased = MakeTensor(6, y_sizes, y_strides, CUDNN_DATA_FLOAT, true);
  const Descriptor convolution = MakeConvolution(kNoPadding);
  const Descriptor convolve = MakeOperation(kOperations[0], convolution, x, w, sums, 1, 0);
  PointwiseOperation add(CUDNN_POINTWISE_ADD, sums, &b, biased);
  PointwiseOperation relu(CUDNN_POINTWISE_RELU_FWD, biased, nullptr, y, keeps_nan);
  REQUIRE(add.operation.Finalize() == CUDNN_STATUS_SUCCESS);
  REQUIRE(relu.operation.Finalize() == CUDNN_STATUS_SUCCESS);
  Descriptor graph = MakeGraph(dnn, {&convolve, &add.operation, &relu.operation});
  REQUIRE(graph.Finalize() == CUDNN_STATUS_SUCCESS);
  Descriptor heuristics(CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR);
  Descriptor config(CUDNN_BACKEND_ENGINECFG_DESCRIPTOR);
  REQUIRE(AskForEngines(graph, CUDNN_HEUR_MODE_A, &heuristics, &config) == 2);
  const Descriptor plan = MakePlan(dnn, config);

  const auto buffer_of = [&](const std::vector<float>& values) {
    std::vector<uint16_t> encoded(values.size());
    Bfloat16().encode(values.data(), values.size(), encoded.data());
    return halves ? std::make_unique<Buffer>(encoded) : std::make_unique<Buffer>(values);
  };
  const auto x_data = buffer_of(std::vector<float>(8, 1));
  const auto w_data = buffer_of(std::vector<float>(12, 1));
  const auto b_data = buffer_of({0.5f, -5, NAN});
  const auto y_data = buffer_of(std::vector<float>(6, 9));
  const Buffer workspace(WorkspaceBytes(plan));
  const Descriptor pack =
      MakePack({1, 2, 3, 4}, {x_data->data(), w_data->data(), y_data->data(), b_data->data()},
               workspace.data());
  REQUIRE(cudnnBackendExecute(dnn.get(), plan.get(), pack.get()) == CUDNN_STATUS_SUCCESS);
  std::vector<float> result(6);
  if (halves) {
    Bfloat16().decode(y_data->Values<uint16_t>(dnn.stream()).data(), 6, result.data());
  } else {
    result = y_data->Values<float>(dnn.stream());
  }
  for (int pixel = 0; pixel < 2; ++pixel) {
    CHECK(result[3 * pixel] == 4.5f);
    CHECK(result[3 * pixel + 1] == 0);
    CHECK((keeps_nan ? std::isnan(result[3 * pixel + 2]) : result[3 * pixel + 2] == 0));
  }
  const Descriptor without_bias =
      MakePack({1, 2, 3}, {x_data->data(), w_data->data(), y_data->data()}, workspace.data());
  CHECK(cudnnBackendExecute(dnn.get(), plan.get(), without_bias.get()) ==
        CUDNN_STATUS_BAD_PARAM_NULL_POINTER);
}

TEST_CASE("Graphs of anything else are refused") {
  const FreshDevice device;
  const Dnn dnn;
  const Four sizes = {1, 4, 1, 1}, filter = {4, 4, 1, 1};
  const bool is_virtual = GENERATE(true, false);
  const Descriptor x = MakeTensor(1, sizes, Dense(sizes, true));
  const Descriptor w = MakeTensor(2, filter, Dense(filter, true));
  const Descriptor y = MakeTensor(3, sizes, Dense(sizes, true));
  const Descriptor b = MakeTensor(4, sizes, Dense(sizes, true));
  const Descriptor sums = MakeTensor(5, sizes, Dense(sizes, true), CUDNN_DATA_FLOAT, is_virtual);
  const Descriptor biased = MakeTensor(6, sizes, Dense(sizes, true), CUDNN_DATA_FLOAT, true);
  const Descriptor convolution = MakeConvolution(kNoPadding);
  const Descriptor convolve = MakeOperation(kOperations[0], convolution, x, w, sums, 1, 0);
  PointwiseOperation add(CUDNN_POINTWISE_ADD, sums, &b, biased);
  PointwiseOperation relu(CUDNN_POINTWISE_RELU_FWD, biased, nullptr, y);
  PointwiseOperation relu_of_sums(CUDNN_POINTWISE_RELU_FWD, sums, nullptr, y);
  PointwiseOperation add_nothing(CUDNN_POINTWISE_ADD, sums, nullptr, biased);
  for (PointwiseOperation* made : {&add, &relu, &relu_of_sums}) {
    REQUIRE(made->operation.Finalize() == CUDNN_STATUS_SUCCESS);
  }
  CHECK(add_nothing.operation.Finalize() == CUDNN_STATUS_BAD_PARAM);
  const auto finalize = [&](const std::vector<const Descriptor*>& operations) {
    return MakeGraph(dnn, operations).Finalize();
  };
  CHECK(finalize({&convolve, &relu_of_sums.operation}) == CUDNN_STATUS_NOT_SUPPORTED);
  CHECK(finalize({&convolve, &add.operation, &relu_of_sums.operation}) ==
        CUDNN_STATUS_NOT_SUPPORTED);
  CHECK(finalize({&add.operation}) == CUDNN_STATUS_NOT_SUPPORTED);
  // The sums stay inside the graph with bias and ReLU, but are the output of the graph without.
  CHECK(finalize({&convolve, &add.operation, &relu.operation}) ==
        (is_virtual ? CUDNN_STATUS_SUCCESS : CUDNN_STATUS_NOT_SUPPORTED));
  CHECK(finalize({&convolve}) == (is_virtual ? CUDNN_STATUS_NOT_SUPPORTED : CUDNN_STATUS_SUCCESS));
}

TEST_CASE("No engine takes tensors of several types") {
  const FreshDevice device;
  const Dnn dnn;
  const Four sizes = {1, 4, 1, 1}, filter = {4, 4, 1, 1};
  const Descriptor x = MakeTensor(1, sizes, Dense(sizes, true), CUDNN_DATA_BFLOAT16);
  const Descriptor w = MakeTensor(2, filter, Dense(filter, true), CUDNN_DATA_FLOAT);
  const Descriptor y = MakeTensor(3, sizes, Dense(sizes, true), CUDNN_DATA_BFLOAT16);
  const Descriptor convolution = MakeConvolution(kNoPadding);
  const Descriptor operation = MakeOperation(kOperations[2], convolution, x, w, y, 1, 0);
  Descriptor graph = MakeGraph(dnn, {&operation});
  REQUIRE(graph.Finalize() == CUDNN_STATUS_SUCCESS);
  const auto mode = GENERATE(CUDNN_HEUR_MODE_A, CUDNN_HEUR_MODE_FALLBACK);
  Descriptor heuristics(CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR);
  Descriptor config(CUDNN_BACKEND_ENGINECFG_DESCRIPTOR);
  CHECK(AskForEngines(graph, mode, &heuristics, &config) == 0);
}

TEST_CASE("An execution with missing or wrong memory is refused") {
  const FreshDevice device;
  const Dnn dnn;
  const Four sizes = {1, 4, 1, 1}, filter = {4, 4, 1, 1};
  const Graph graph(dnn, kOperations[0], MakeTensor(1, sizes, Dense(sizes, true)),
                    MakeTensor(2, filter, Dense(filter, true)),
                    MakeTensor(3, sizes, Dense(sizes, true)), kNoPadding);
  const Descriptor plan = MakePlan(dnn, graph.config);
  const Buffer x(32), w(64), y(16), workspace(WorkspaceBytes(plan));
  float on_host[4];
  const auto execute = [&](void* x, void* y, void* workspace) {
    const Descriptor pack = MakePack({1, 2, 3}, {x, w.data(), y}, workspace);
    return cudnnBackendExecute(dnn.get(), plan.get(), pack.get());
  };
  CHECK(execute(x.data(), y.data(), workspace.data()) == CUDNN_STATUS_SUCCESS);
  CHECK(GetTotals().convolutions == 1);
  CHECK(GetTotals().tf32_calls == 1);
  CHECK(execute(x.at(4), y.data(), workspace.data()) == CUDNN_STATUS_BAD_PARAM_MISALIGNED_POINTER);
  CHECK(LastErrorString() == "tensor 1: not aligned to 16 bytes");
  CHECK(execute(x.at(32), y.data(), workspace.data()) == CUDNN_STATUS_BAD_PARAM);
  CHECK(LastErrorString().find("tensor 1: 16 bytes at ") == 0);
  CHECK(execute(nullptr, y.data(), workspace.data()) == CUDNN_STATUS_BAD_PARAM_NULL_POINTER);
  CHECK(execute(x.data(), y.data(), nullptr) == CUDNN_STATUS_BAD_PARAM);
  CHECK(execute(x.data(), y.data(), on_host) == CUDNN_STATUS_BAD_PARAM);
  const Descriptor pack = MakePack({1, 2}, {x.data(), w.data()}, workspace.data());
  CHECK(cudnnBackendExecute(dnn.get(), plan.get(), pack.get()) ==
        CUDNN_STATUS_BAD_PARAM_NULL_POINTER);
  CHECK(LastErrorString() == "tensor 3: no pointer");
  LoseDevice(1);
  CHECK(execute(x.data(), y.data(), workspace.data()) == CUDNN_STATUS_EXECUTION_FAILED);
}

TEST_CASE("A workspace that something else uses meanwhile spoils the result") {
  const FreshDevice device;
  const Dnn dnn;
  const Four sizes = {1, 4, 1, 1}, filter = {4, 4, 1, 1};
  const Graph graph(dnn, kOperations[0], MakeTensor(1, sizes, Dense(sizes, true)),
                    MakeTensor(2, filter, Dense(filter, true)),
                    MakeTensor(3, sizes, Dense(sizes, true)), kNoPadding);
  const Descriptor plan = MakePlan(dnn, graph.config);
  const Buffer x(std::vector<float>(4, 1)), w(std::vector<float>(16, 1)), y(16);
  const Buffer workspace(WorkspaceBytes(plan));
  const bool shared = GENERATE(false, true);
  void* output = shared ? workspace.data() : y.data();
  const Descriptor pack = MakePack({1, 2, 3}, {x.data(), w.data(), output}, workspace.data());
  REQUIRE(cudnnBackendExecute(dnn.get(), plan.get(), pack.get()) == CUDNN_STATUS_SUCCESS);
  const float result = (shared ? workspace : y).Values<float>(dnn.stream())[0];
  CHECK((shared ? std::isnan(result) : result == 4));
}

TEST_CASE("A plan whose tensors are gone is refused") {
  const FreshDevice device;
  const Dnn dnn;
  const Four sizes = {1, 4, 1, 1}, filter = {4, 4, 1, 1};
  Graph graph(dnn, kOperations[0], MakeTensor(1, sizes, Dense(sizes, true)),
              MakeTensor(2, filter, Dense(filter, true)), MakeTensor(3, sizes, Dense(sizes, true)),
              kNoPadding);
  const Descriptor plan = MakePlan(dnn, graph.config);
  const Buffer buffer(64), workspace(WorkspaceBytes(plan));
  const Descriptor pack =
      MakePack({1, 2, 3}, {buffer.data(), buffer.data(), buffer.data()}, workspace.data());
  { const Descriptor gone = std::move(graph.w); }
  CHECK(cudnnBackendExecute(dnn.get(), plan.get(), pack.get()) == CUDNN_STATUS_BAD_PARAM);
  CHECK(LastErrorString().find("CONVOLUTION_FORWARD_W was destroyed") != std::string::npos);
}

TEST_CASE("Wrong attributes are refused") {
  const FreshDevice device;
  Descriptor tensor(CUDNN_BACKEND_TENSOR_DESCRIPTOR);
  CHECK(tensor.Finalize() == CUDNN_STATUS_BAD_PARAM);
  CHECK(LastErrorString() == "TENSOR_DATA_TYPE is not set");
  CHECK(tensor.Set<int64_t>(CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, {1, 2, 3}) ==
        CUDNN_STATUS_BAD_PARAM);
  CHECK(LastErrorString() == "TENSOR_DIMENSIONS has 4 to 4 elements, not 3");
  CHECK(tensor.Set<float>(CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_FLOAT, {1}) ==
        CUDNN_STATUS_BAD_PARAM_ATTRIBUTE_TYPE);
  CHECK(tensor.Set<int64_t>(CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, CUDNN_TYPE_INT64, {1}) ==
        CUDNN_STATUS_NOT_SUPPORTED);
  Descriptor operation(CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR);
  CHECK(operation.Set(CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X, tensor) ==
        CUDNN_STATUS_BAD_PARAM_NOT_FINALIZED);

  Descriptor finalized = MakeTensor(1, {1, 1, 1, 1}, {1, 1, 1, 1});
  CHECK(finalized.Set<int64_t>(CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64, {1}) ==
        CUDNN_STATUS_BAD_PARAM);
  CHECK(finalized.Finalize() == CUDNN_STATUS_BAD_PARAM);
  int64_t id = 0;
  CHECK(cudnnBackendGetAttribute(finalized.get(), CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_FLOAT, 1,
                                 nullptr, &id) == CUDNN_STATUS_BAD_PARAM);
  CHECK(std::string(cudnnGetErrorString(CUDNN_STATUS_BAD_PARAM)) == "CUDNN_STATUS_BAD_PARAM");
  CHECK(GetLive().dnn_descriptors == 3);
}

TEST_CASE("Sizes that do not fit one another are refused") {
  const FreshDevice device;
  const Descriptor x = MakeTensor(1, {1, 4, 8, 8}, Dense({1, 4, 8, 8}, true));
  const Descriptor w = MakeTensor(2, {6, 4, 3, 3}, Dense({6, 4, 3, 3}, true));
  const Four y_sizes = GENERATE(Four{1, 6, 8, 8}, Four{1, 5, 6, 6}, Four{2, 6, 6, 6});
  const Descriptor y = MakeTensor(3, y_sizes, Dense(y_sizes, true));
  const Descriptor convolution = MakeConvolution(kNoPadding);
  const Operation& names = kOperations[0];
  Descriptor operation(names.type);
  operation.Set<float>(names.alpha, CUDNN_TYPE_FLOAT, {1});
  operation.Set<float>(names.beta, CUDNN_TYPE_FLOAT, {0});
  operation.Set(names.convolution, convolution);
  operation.Set(names.x, x);
  operation.Set(names.w, w);
  operation.Set(names.y, y);
  CHECK(operation.Finalize() == CUDNN_STATUS_BAD_PARAM_SHAPE_MISMATCH);
}

}  // namespace
}  // namespace evenshard::cuda_stand_in
