// One process of a system that the wire benchmark measures, which wire.py starts as
//
//   role shard|worker SYSTEM INDEX LOG_LEVEL SOCKET_BUFFER_BYTES CONFIG [ADDRESS...]
//   role plan CONFIG
//
// SYSTEM is "ps", or "raw" for the baseline; INDEX is the number of the shard or the rank of the
// worker; SOCKET_BUFFER_BYTES is the size of raw sockets' buffers, 0 for the kernel's choice;
// CONFIG is a ClusterConfig in text format; a worker gets the ADDRESS of each shard.
//
// `plan` writes the numbers of the model's elements and of the parameters of each shard. The others
// write a line, then obey commands, one a line, until standard input ends, and answer each with a
// line. A shard's first line is its address. A worker's, when it has connected, is its resident
// memory in bytes just before that, and how many of them are its buffers for gradients and
// parameters.
//
//   usage      answers with the processor time of the process in nanoseconds and its resident
//              memory in bytes.
//   run N      pushes and pulls N times. The answer has start and end in nanoseconds of
//              CLOCK_MONOTONIC. Workers only, as the rest.
//   verify     checks the parameters against what all push-pulls so far must give. The answer is
//              "verified".
//   latency N  makes N push-pulls, in turn with N empty unary calls to the first shard. The answer
//              has the nanoseconds of all push-pulls, then those of all calls. Only for ps.
//
// The process ends with an exit code of 1 after a failure, whose reason it logs.

#include <signal.h>
#include <sys/prctl.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <functional>
#include <iostream>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/time/time.h"
#include "bench/wire/raw_socket_shard.h"
#include "bench/wire/raw_socket_worker.h"
#include "bench/wire/wire_arithmetic.h"
#include "common/base/clock.h"
#include "common/base/status_macros.h"
#include "common/net/channel_options.h"
#include "common/net/status_conversion.h"
#include "common/placement/planned_config.h"
#include "common/process/log.h"
#include "common/process/process_setup.h"
#include "common/process/resident_memory.h"
#include "grpcpp/channel.h"
#include "grpcpp/completion_queue.h"
#include "grpcpp/generic/generic_stub.h"
#include "server/server.h"
#include "spdlog/spdlog.h"
#include "worker/exchange/grpc/exchange.h"

namespace evenshard {
namespace {

struct Role {
  bool raw = false;
  int index = 0;
  int socket_buffer_bytes = 0;
  std::vector<std::string> addresses;
};

int64_t Nanoseconds(clockid_t clock) {
  timespec now;
  clock_gettime(clock, &now);
  return absl::ToInt64Nanoseconds(absl::DurationFromTimespec(now));
}

// Writes `first` and then the answers to all commands. `obey` has the name and the number of a
// command other than `usage`; an answer that is an error ends the process.
absl::Status Serve(
    absl::string_view first,
    const std::function<absl::StatusOr<std::string>(const std::string&, int)>& obey) {
  std::cout << first << std::endl;
  for (std::string line; std::getline(std::cin, line);) {
    const std::vector<std::string> words = absl::StrSplit(line, ' ');
    int count = 0;
    if (words.size() > 1 && !absl::SimpleAtoi(words[1], &count)) {
      return absl::InvalidArgumentError(absl::StrCat("\"", line, "\": no number"));
    }
    if (words[0] == "usage") {
      std::cout << Nanoseconds(CLOCK_PROCESS_CPUTIME_ID) << " " << ResidentBytes() << std::endl;
      continue;
    }
    ASSIGN_OR_RETURN(const std::string answer, obey(words[0], count));
    std::cout << answer << std::endl;
  }
  return absl::OkStatus();
}

absl::Status NoSuchCommand(const std::string& command) {
  return absl::InvalidArgumentError(absl::StrCat("no such command: ", command));
}

absl::Status RunShard(const Role& role, const PlannedConfig& config) {
  const auto obey = [](const std::string& command, int) { return NoSuchCommand(command); };
  if (role.raw) {
    ASSIGN_OR_RETURN(const auto shard,
                     RawShard::Start(&config, role.index, role.socket_buffer_bytes));
    return Serve(shard->address(), obey);
  }
  const RealClock clock;
  ASSIGN_OR_RETURN(const auto server,
                   Server::Start({.config = &config, .shard = role.index, .clock = &clock}));
  return Serve(server->address(), obey);
}

// The least work that gRPC can do for a call: a unary call with an empty request, which gRPC's own
// health service answers (grpc.health.v1 Check). It is waited for as generated blocking stubs do.
// Used by one thread.
class EmptyCall {
 public:
  explicit EmptyCall(const std::shared_ptr<grpc::Channel>& channel) : stub_(channel) {}
  ~EmptyCall() {
    queue_.Shutdown();
    void* tag = nullptr;
    bool ok = false;
    while (queue_.Next(&tag, &ok)) {
    }
  }

  // Makes one call and blocks until it is answered.
  absl::Status Run() {
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(10));
    const grpc::Slice nothing;
    const grpc::ByteBuffer request(&nothing, 1);
    auto call = stub_.PrepareUnaryCall(&context, "/grpc.health.v1.Health/Check", request, &queue_);
    call->StartCall();
    grpc::ByteBuffer response;
    grpc::Status status;
    call->Finish(&response, &status, /*tag=*/this);
    void* tag = nullptr;
    bool ok = false;
    queue_.Next(&tag, &ok);
    return FromGrpc(status);
  }

 private:
  grpc::GenericStub stub_;
  grpc::CompletionQueue queue_;
};

// A worker of either system, with its buffers.
class Worker {
 public:
  Worker(const Role& role, const PlannedConfig& config) : role_(role), config_(config) {}

  absl::Status Run() {
    ASSIGN_OR_RETURN(buffers_, Exchange::AllocateBuffers(config_, role_.addresses));
    FillWireGradient(role_.index, buffers_.gradients.span());
    const absl::Span<float> parameters = buffers_.parameters.span();
    std::fill(parameters.begin(), parameters.end(), 0.0f);
    const uint64_t resident = ResidentBytes();
    RETURN_IF_ERROR(Connect());
    const size_t buffers = (parameters.size() + buffers_.gradients.span().size()) * sizeof(float);
    RETURN_IF_ERROR(
        Serve(absl::StrCat(resident, " ", buffers),
              [this](const std::string& command, int count) { return Obey(command, count); }));
    return exchange_ == nullptr ? absl::OkStatus() : exchange_->Leave(absl::OkStatus());
  }

 private:
  absl::Status Connect() {
    if (role_.raw) {
      ASSIGN_OR_RETURN(raw_,
                       RawWorker::Connect(&config_, role_.addresses, role_.socket_buffer_bytes));
    } else {
      ASSIGN_OR_RETURN(exchange_, Exchange::Connect({.config = &config_,
                                                     .rank = role_.index,
                                                     .addresses = role_.addresses,
                                                     .buffers = &buffers_}));
    }
    return absl::OkStatus();
  }

  absl::StatusOr<std::string> Obey(const std::string& command, int count) {
    if (command == "run") return RunIterations(count);
    if (command == "latency") return MeasureLatency(count);
    if (command != "verify") return NoSuchCommand(command);
    RETURN_IF_ERROR(VerifyParameters(config_, iteration_, buffers_.parameters.span()));
    return std::string("verified");
  }

  absl::Status PushPull() {
    const int64_t iteration = iteration_++;
    const absl::Span<const float> gradients = buffers_.gradients.span();
    const absl::Span<float> parameters = buffers_.parameters.span();
    if (raw_ != nullptr) return raw_->PushPull(gradients, parameters);
    return exchange_->PushPull(iteration, gradients, parameters);
  }

  absl::StatusOr<std::string> RunIterations(int count) {
    const int64_t start = Nanoseconds(CLOCK_MONOTONIC);
    for (int i = 0; i < count; ++i) {
      RETURN_IF_ERROR(PushPull());
    }
    return absl::StrCat(start, " ", Nanoseconds(CLOCK_MONOTONIC));
  }

  absl::StatusOr<std::string> MeasureLatency(int count) {
    EmptyCall call(
        CreateChannel(role_.addresses[0], config_.proto(), {.role = evenshard::Role::kShard}));
    std::vector<int64_t> push_pulls;
    std::vector<int64_t> calls;
    constexpr int kWarmUp = 20;
    for (int i = -kWarmUp; i < count; ++i) {
      const int64_t start = Nanoseconds(CLOCK_MONOTONIC);
      RETURN_IF_ERROR(PushPull());
      const int64_t between = Nanoseconds(CLOCK_MONOTONIC);
      RETURN_IF_ERROR(call.Run());
      const int64_t end = Nanoseconds(CLOCK_MONOTONIC);
      if (i < 0) continue;
      push_pulls.push_back(between - start);
      calls.push_back(end - between);
    }
    return absl::StrCat(absl::StrJoin(push_pulls, " "), " ", absl::StrJoin(calls, " "));
  }

  const Role& role_;
  const PlannedConfig& config_;
  Exchange::Buffers buffers_;
  int64_t iteration_ = 0;
  // One of these is set. They are declared after the buffers, which they use to their end.
  std::unique_ptr<RawWorker> raw_;
  std::unique_ptr<Exchange> exchange_;
};

int WritePlan(const PlannedConfig& config) {
  std::cout << config.model().element_count();
  for (int shard = 0; shard < config.plan().shards(); ++shard) {
    std::cout << " " << config.plan().shard_parameters(shard);
  }
  std::cout << std::endl;
  return 0;
}

int Main(const std::vector<std::string>& arguments) {
  constexpr size_t kConfig = 5;
  const bool plan = arguments.size() == 2 && arguments[0] == "plan";
  Role role;
  if (!plan && (arguments.size() <= kConfig || !absl::SimpleAtoi(arguments[2], &role.index) ||
                !absl::SimpleAtoi(arguments[4], &role.socket_buffer_bytes))) {
    std::cerr << "role: a wrong command line; bench/wire/wire.py starts this program\n";
    return 2;
  }
  std::vector<std::string> overrides;
  if (!plan) overrides.push_back(absl::StrCat("security.name=", arguments[0], "-", role.index));
  absl::StatusOr<PlannedConfig> config =
      PlannedConfig::Parse(plan ? arguments[1] : arguments[kConfig], "bench", overrides);
  if (!config.ok()) {
    std::cerr << config.status().message() << "\n";
    return 1;
  }
  if (plan) return WritePlan(*config);
  role.raw = arguments[1] == "raw";
  role.addresses.assign(arguments.begin() + kConfig + 1, arguments.end());
  SetUpLog(absl::StrCat(arguments[0], " ", role.index, " of ", arguments[1]), arguments[3]);
  SetUpProcess();
  const absl::Status status =
      arguments[0] == "shard" ? RunShard(role, *config) : Worker(role, *config).Run();
  if (!status.ok()) spdlog::error("{}", status.ToString());
  return status.ok() ? 0 : 1;
}

}  // namespace
}  // namespace evenshard

int main(int argc, char** argv) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);  // the benchmark may be killed
  return evenshard::Main({argv + 1, argv + argc});
}
