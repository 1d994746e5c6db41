// One worker of a ring, which bench/ring/all_reduce.py starts beside others as
//
//   ring_role RANK CONFIG
//
// CONFIG is a ClusterConfig in text format. It writes "ready" when the ring is closed, then obeys
// commands, one a line, until standard input ends, and answers each with a line:
//
//   run N   exchanges a gradient of zeros N times. The answer has start and end in nanoseconds of
//           CLOCK_MONOTONIC.
//   verify  exchanges a gradient that differs by rank and element, and checks the parameters that
//           come of it. The answer is "verified".
//
// The process ends with an exit code of 1 after a failure, whose reason it logs.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <iostream>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/time/time.h"
#include "common/base/clock.h"
#include "common/base/float_buffer.h"
#include "common/base/status_macros.h"
#include "common/placement/planned_config.h"
#include "common/process/log.h"
#include "common/process/process_setup.h"
#include "spdlog/spdlog.h"
#include "worker/ring/grpc/ring_exchange.h"

namespace evenshard {
namespace {

int64_t Nanoseconds() {
  timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return absl::ToInt64Nanoseconds(absl::DurationFromTimespec(now));
}

// An element of rank 0's gradient; rank r has r + 1 times as much.
float GradientOf(int64_t element) { return static_cast<float>(element % 251 - 125); }

class Worker {
 public:
  Worker(int rank, const PlannedConfig* config) : rank_(rank), config_(*config) {}

  absl::Status Run() {
    const int64_t floats = config_.model().buffer_size();
    ASSIGN_OR_RETURN(gradients_, FloatBuffer::Allocate(floats));
    ASSIGN_OR_RETURN(parameters_, FloatBuffer::Allocate(floats));
    // Has the kernel give all pages now.
    std::fill(gradients_.span().begin(), gradients_.span().end(), 0.0f);
    std::fill(parameters_.span().begin(), parameters_.span().end(), 0.0f);
    ASSIGN_OR_RETURN(exchange_, RingExchange::Connect({.config = &config_,
                                                       .rank = rank_,
                                                       .clock = &clock_,
                                                       .gradients = gradients_.span(),
                                                       .parameters = parameters_.span()}));
    std::cout << "ready" << std::endl;
    for (std::string line; std::getline(std::cin, line);) {
      ASSIGN_OR_RETURN(const std::string answer, Obey(line));
      std::cout << answer << std::endl;
    }
    return exchange_->Leave(absl::OkStatus());
  }

 private:
  absl::StatusOr<std::string> Obey(const std::string& line) {
    const std::vector<std::string> words = absl::StrSplit(line, ' ');
    if (words[0] == "verify") return Verify();
    int count = 0;
    if (words.size() != 2 || words[0] != "run" || !absl::SimpleAtoi(words[1], &count)) {
      return absl::InvalidArgumentError(absl::StrCat("no such command: ", line));
    }
    const int64_t start = Nanoseconds();
    for (int i = 0; i < count; ++i) RETURN_IF_ERROR(Exchange());
    return absl::StrCat(start, " ", Nanoseconds());
  }

  absl::Status Exchange() {
    return exchange_->PushPull(exchange_->next_iteration(), gradients_.span(), parameters_.span());
  }

  absl::StatusOr<std::string> Verify() {
    for (const Tensor& tensor : config_.model().tensors()) {
      for (int64_t i = tensor.offset; i < tensor.offset + tensor.size; ++i) {
        gradients_.data()[i] = static_cast<float>(rank_ + 1) * GradientOf(i);
        parameters_.data()[i] = 1;
      }
    }
    RETURN_IF_ERROR(Exchange());
    const float mean = static_cast<float>(config_.workers() + 1) / 2;
    const float rate = config_.proto().optimizer().learning_rate();
    for (const Tensor& tensor : config_.model().tensors()) {
      // Running statistics are added as they are.
      const float factor = tensor.role == TensorRole::kParameter ? rate : 1;
      for (int64_t i = tensor.offset; i < tensor.offset + tensor.size; ++i) {
        const float expected = 1 - factor * mean * GradientOf(i);
        if (std::abs(parameters_.data()[i] - expected) <= 1e-5f * std::abs(expected) + 1e-6f) {
          continue;
        }
        return absl::InternalError(
            absl::StrCat("element ", i, " is ", parameters_.data()[i], " instead of ", expected));
      }
    }
    std::fill(gradients_.span().begin(), gradients_.span().end(), 0.0f);
    return std::string("verified");
  }

  const int rank_;
  const PlannedConfig& config_;
  const RealClock clock_;
  FloatBuffer gradients_;
  FloatBuffer parameters_;
  std::unique_ptr<RingExchange> exchange_;  // uses the clock and the buffers to its end
};

int Main(int argc, char** argv) {
  int rank = 0;
  if (argc != 3 || !absl::SimpleAtoi(argv[1], &rank)) {
    std::cerr << "ring_role: a wrong command line; bench/ring/all_reduce.py starts this program\n";
    return 2;
  }
  SetUpLog("ring_role", "warning");
  SetUpProcess();
  const absl::StatusOr<PlannedConfig> config = PlannedConfig::Parse(argv[2], "bench");
  if (!config.ok()) {
    std::cerr << config.status().message() << "\n";
    return 2;
  }
  const absl::Status status = Worker(rank, &*config).Run();
  if (!status.ok()) spdlog::error("{}", std::string(status.message()));
  return status.ok() ? 0 : 1;
}

}  // namespace
}  // namespace evenshard

int main(int argc, char** argv) { return evenshard::Main(argc, argv); }
