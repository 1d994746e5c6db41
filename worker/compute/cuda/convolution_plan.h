#ifndef PS_WORKER_COMPUTE_CUDA_CONVOLUTION_PLAN_H_
#define PS_WORKER_COMPUTE_CUDA_CONVOLUTION_PLAN_H_

#include <cudnn.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "common/model.h"
#include "worker/compute/cuda/device.h"

namespace ps {

// A descriptor of cuDNN's graph API, with those that it refers to; released with its last owner.
class CudnnDescriptor {
 public:
  CudnnDescriptor() = default;
  // Throws CudaError.
  explicit CudnnDescriptor(cudnnBackendDescriptorType_t type);

  cudnnBackendDescriptor_t get() const { return held_->descriptor; }
  void Keep(const CudnnDescriptor& other) const { held_->others.push_back(other); }
  explicit operator bool() const { return held_ != nullptr; }

 private:
  struct Held {
    ~Held() { cudnnBackendDestroyDescriptor(descriptor); }

    cudnnBackendDescriptor_t descriptor = nullptr;
    std::vector<CudnnDescriptor> others;
  };
  std::shared_ptr<Held> held_;
};

// One pass of a convolution, a graph of operations to cuDNN. Activations and weights are
// channels-last; weights are [outputs, kernel, kernel, inputs].
struct ConvolutionProblem {
  // kForwardBiasRelu: max(convolution + bias, 0), rounded once.
  enum Pass { kForward, kForwardBiasRelu, kInputGradient, kWeightGradient };

  Pass pass = kForward;
  ElementType type = ElementType::kFloat32;  // of all tensors; sums are float32
  int64_t images = 0;
  Shape3 input;
  Shape3 output;
  int64_t kernel = 0, stride = 0, padding = 0;

  std::string ToString() const;  // "forward pass, 64 x 3x224x224 to 64x224x224, kernel 3"
  auto Key() const {
    return std::tuple(pass, type, images, input.channels, input.height, input.width,
                      output.channels, output.height, output.width, kernel, stride, padding);
  }
  friend bool operator<(const ConvolutionProblem& a, const ConvolutionProblem& b) {
    return a.Key() < b.Key();
  }
};

// The tensors of a pass: one of the first three is written, the others are read.
struct ConvolutionArguments {
  void* input = nullptr;    // or its gradient
  void* weights = nullptr;  // or their gradient
  void* output = nullptr;   // or its gradient
  void* bias = nullptr;     // where the pass adds one
};

// A pass by the engine that was fastest, on fixed arguments.
class Convolution {
 public:
  // Queues it on the device's compute stream. Throws CudaError.
  void Run() const;

  // As it was timed; 0 where it was not.
  double seconds() const { return seconds_; }

 private:
  friend class ConvolutionPlanner;
  // An engine made for a problem.
  struct Plan {
    CudnnDescriptor descriptor;  // empty where no engine takes the problem
    double seconds = 0;
  };
  Convolution(CudaDevice* device, const Plan& plan, const ConvolutionArguments& arguments);

  CudaDevice* device_;
  CudnnDescriptor plan_;
  CudnnDescriptor arguments_;
  double seconds_;
};

// Chooses engines: tries the ones that cuDNN's heuristics put first and that fit the device's
// workspace, times CudaDevice::timed_engines of them once, and keeps the fastest; equal problems
// are timed once. Not thread-safe. Throws CudaError.
class ConvolutionPlanner {
 public:
  // `device` must outlive the planner and what it made.
  explicit ConvolutionPlanner(CudaDevice* device) : device_(device) {}

  // Overwrites what the pass writes. Errors: kOther where no engine takes the problem.
  Convolution Plan(const ConvolutionProblem& problem, const ConvolutionArguments& arguments);
  // The same, empty where none does.
  std::optional<Convolution> TryPlan(const ConvolutionProblem& problem,
                                     const ConvolutionArguments& arguments);
  // Seconds that the work takes which `queue` puts on the compute stream: the fastest of a few runs
  // after a first one. 0, after that one, where the device's options say that nothing is timed.
  double Time(const std::function<void()>& queue) const;

 private:
  Convolution::Plan Fastest(const ConvolutionProblem& problem,
                            const ConvolutionArguments& arguments) const;

  CudaDevice* const device_;
  std::map<ConvolutionProblem, Convolution::Plan> plans_;
};

}  // namespace ps

#endif  // PS_WORKER_COMPUTE_CUDA_CONVOLUTION_PLAN_H_
