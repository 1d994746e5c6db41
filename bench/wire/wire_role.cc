#include "bench/wire/wire_role.h"

#include <unistd.h>

#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "bench/quantile.h"
#include "bench/wire/empty_call.h"
#include "bench/wire/raw_socket_shard.h"
#include "bench/wire/raw_socket_worker.h"
#include "bench/wire/wire_arithmetic.h"
#include "bench/wire/wire_cluster.h"
#include "bench/wire/wire_process.h"
#include "common/base/clock.h"
#include "common/base/status_macros.h"
#include "common/net/channel_options.h"
#include "common/placement/planned_config.h"
#include "common/process/log.h"
#include "common/process/process_setup.h"
#include "server/server.h"
#include "spdlog/spdlog.h"
#include "worker/exchange/grpc/exchange.h"

namespace evenshard {
namespace {

// Keeps a shard that listens on `address` running until the control socket ends.
absl::Status Serve(const std::string& address) {
  WireControl control;
  control.Answer(absl::StrCat("listening ", address));
  while (!control.NextCommand().empty()) {
  }
  return absl::OkStatus();
}

absl::Status RunShard(const WireRole& role, const PlannedConfig& config) {
  if (role.system == kRawSystem) {
    ASSIGN_OR_RETURN(const auto shard,
                     RawShard::Start(&config, role.index, role.socket_buffer_bytes));
    return Serve(shard->address());
  }
  const RealClock clock;
  ASSIGN_OR_RETURN(const auto server,
                   Server::Start({.config = &config, .shard = role.index, .clock = &clock}));
  return Serve(server->address());
}

// A worker of either system, with its buffers.
class Worker {
 public:
  Worker(const WireRole& role, const PlannedConfig& config)
      : role_(role), config_(config), addresses_(absl::StrSplit(role.addresses, ',')) {}

  absl::Status Run() {
    RETURN_IF_ERROR(Start());
    while (true) {
      const std::vector<std::string> command = control_.NextCommand();
      if (command.empty()) return Leave();
      ASSIGN_OR_RETURN(const std::string answer, Obey(command));
      control_.Answer(answer);
    }
  }

 private:
  absl::Status Start() {
    ASSIGN_OR_RETURN(buffers_, Exchange::AllocateBuffers(config_, addresses_));
    FillWireGradient(role_.index, buffers_.gradients.span());
    const absl::Span<float> parameters = buffers_.parameters.span();
    std::fill(parameters.begin(), parameters.end(), 0.0f);
    ASSIGN_OR_RETURN(const int64_t resident, ResidentBytes(getpid()));
    RETURN_IF_ERROR(Connect());
    control_.Answer(absl::StrCat("ready ", resident));
    return absl::OkStatus();
  }

  absl::Status Connect() {
    if (role_.system == kRawSystem) {
      ASSIGN_OR_RETURN(raw_, RawWorker::Connect(&config_, addresses_, role_.socket_buffer_bytes));
    } else {
      ASSIGN_OR_RETURN(exchange_, Exchange::Connect({.config = &config_,
                                                     .rank = role_.index,
                                                     .addresses = addresses_,
                                                     .buffers = &buffers_}));
    }
    return absl::OkStatus();
  }

  absl::Status Leave() {
    return exchange_ == nullptr ? absl::OkStatus() : exchange_->Leave(absl::OkStatus());
  }

  absl::StatusOr<std::string> Obey(const std::vector<std::string>& command) {
    if (command[0] == "verify") {
      RETURN_IF_ERROR(VerifyParameters(config_, iteration_, buffers_.parameters.span()));
      return std::string("verified");
    }
    int count = 0;
    if (command.size() == 2 && absl::SimpleAtoi(command[1], &count)) {
      if (command[0] == "run") return RunIterations(count);
      if (command[0] == "latency") return MeasureLatency(count);
    }
    return absl::InvalidArgumentError(absl::StrCat("no such command: ", command[0]));
  }

  absl::Status PushPull() {
    const int64_t iteration = iteration_++;
    const absl::Span<const float> gradients = buffers_.gradients.span();
    const absl::Span<float> parameters = buffers_.parameters.span();
    if (raw_ != nullptr) return raw_->PushPull(gradients, parameters);
    return exchange_->PushPull(iteration, gradients, parameters);
  }

  absl::StatusOr<std::string> RunIterations(int count) {
    const int64_t start = MonotonicNanoseconds();
    for (int i = 0; i < count; ++i) {
      RETURN_IF_ERROR(PushPull());
    }
    return absl::StrCat("ran ", start, " ", MonotonicNanoseconds());
  }

  absl::StatusOr<std::string> MeasureLatency(int count) {
    EmptyCall call(CreateChannel(addresses_[0], config_.proto().limits()));
    std::vector<double> push_pulls;
    std::vector<double> calls;
    constexpr int kWarmUp = 20;
    for (int i = -kWarmUp; i < count; ++i) {
      const int64_t start = MonotonicNanoseconds();
      RETURN_IF_ERROR(PushPull());
      const int64_t between = MonotonicNanoseconds();
      RETURN_IF_ERROR(call.Run());
      const int64_t end = MonotonicNanoseconds();
      if (i < 0) continue;
      push_pulls.push_back(static_cast<double>(between - start));
      calls.push_back(static_cast<double>(end - between));
    }
    return absl::StrCat("latency ", Quantile(push_pulls, 0.5), " ", Quantile(push_pulls, 0.99), " ",
                        Quantile(calls, 0.5), " ", Quantile(calls, 0.99));
  }

  static int64_t MonotonicNanoseconds() {
    timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return absl::ToInt64Nanoseconds(absl::DurationFromTimespec(now));
  }

  const WireRole& role_;
  const PlannedConfig& config_;
  const std::vector<std::string> addresses_;
  WireControl control_;
  Exchange::Buffers buffers_;
  int64_t iteration_ = 0;
  // One of these is set. They are declared after the buffers, which they use to their end.
  std::unique_ptr<RawWorker> raw_;
  std::unique_ptr<Exchange> exchange_;
};

}  // namespace

int RunWireRole(const WireRole& role) {
  SetUpLog(absl::StrCat(role.role, " ", role.index, " of ", role.system), role.log_level);
  SetUpProcess();
  absl::StatusOr<PlannedConfig> config = PlannedConfig::Parse(role.config, "bench");
  absl::Status status = config.status();
  if (status.ok()) {
    status = role.role == "shard" ? RunShard(role, *config) : Worker(role, *config).Run();
  }
  if (!status.ok()) spdlog::error("{}", status.ToString());
  return status.ok() ? 0 : 1;
}

}  // namespace evenshard
