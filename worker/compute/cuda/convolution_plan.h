#ifndef EVENSHARD_WORKER_COMPUTE_CUDA_CONVOLUTION_PLAN_H_
#define EVENSHARD_WORKER_COMPUTE_CUDA_CONVOLUTION_PLAN_H_

#include <cudnn.h>

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "common/placement/model/model.h"
#include "worker/compute/cuda/device.h"

namespace evenshard {

// A descriptor of cuDNN's graph API. It keeps the descriptors that it refers to alive, and is
// released with its last owner.
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

// One pass of a convolution, which is a graph of operations to cuDNN. Activations and weights are
// channels-last; weights are [outputs, kernel, kernel, inputs].
struct ConvolutionProblem {
  // kForwardBiasRelu computes max(convolution + bias, 0) and rounds once.
  enum Pass { kForward, kForwardBiasRelu, kInputGradient, kWeightGradient };

  Pass pass = kForward;
  ElementType type = ElementType::kFloat32;  // of all tensors; sums are computed in float32
  int64_t images = 0;
  Shape3 input;
  Shape3 output;
  int64_t kernel = 0, stride = 0, padding = 0;

  // "forward pass of a convolution, 64 x 3x224x224 to 64x224x224, kernel 3, stride 1, padding 1",
  // and ", bfloat16" for that type.
  std::string ToString() const;
  auto Key() const {
    return std::tuple(pass, type, images, input.channels, input.height, input.width,
                      output.channels, output.height, output.width, kernel, stride, padding);
  }
  friend bool operator<(const ConvolutionProblem& a, const ConvolutionProblem& b) {
    return a.Key() < b.Key();
  }
};

// The tensors of a pass. It writes one of the first three and reads the others.
struct ConvolutionArguments {
  void* input = nullptr;    // or its gradient
  void* weights = nullptr;  // or their gradient
  void* output = nullptr;   // or its gradient
  void* bias = nullptr;     // null if the pass adds none
};

// A pass on fixed arguments, planned with the fastest engine.
class Convolution {
 public:
  // Queues the pass on the device's compute stream. Throws CudaError.
  void Run() const;

  // Returns the measured time, or 0 if none was measured.
  double seconds() const { return seconds_; }

 private:
  friend class ConvolutionPlanner;
  // An engine's plan for a problem.
  struct Plan {
    CudnnDescriptor descriptor;  // empty if no engine supports the problem
    double seconds = 0;
  };
  Convolution(CudaDevice* device, const Plan& plan, const ConvolutionArguments& arguments);

  CudaDevice* device_;
  CudnnDescriptor plan_;
  CudnnDescriptor arguments_;
  double seconds_;
};

// Chooses an engine for each problem. It takes the engines that cuDNN's heuristics recommend and
// that fit the device's workspace, times the first CudaDevice::timed_engines of them once, and
// keeps the fastest. Equal problems are timed once. Not thread-safe. Throws CudaError.
class ConvolutionPlanner {
 public:
  // `device` must outlive the planner and the convolutions that it made.
  explicit ConvolutionPlanner(CudaDevice* device) : device_(device) {}

  // Overwrites the tensor that the pass writes. Errors: kOther if no engine supports the problem.
  Convolution Plan(const ConvolutionProblem& problem, const ConvolutionArguments& arguments);
  // Does the same, but returns nullopt if no engine supports the problem.
  std::optional<Convolution> TryPlan(const ConvolutionProblem& problem,
                                     const ConvolutionArguments& arguments);
  // Returns the seconds that the work which `queue` puts on the compute stream takes: the minimum
  // of a few runs after a warm-up run. If the device's options turn timing off, does the warm-up
  // run only and returns 0.
  double Time(const std::function<void()>& queue) const;

 private:
  Convolution::Plan Fastest(const ConvolutionProblem& problem,
                            const ConvolutionArguments& arguments) const;

  CudaDevice* const device_;
  std::map<ConvolutionProblem, Convolution::Plan> plans_;
};

}  // namespace evenshard

#endif  // EVENSHARD_WORKER_COMPUTE_CUDA_CONVOLUTION_PLAN_H_
