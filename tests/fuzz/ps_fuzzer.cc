// libFuzzer target: sequences of calls to a live ps in this process, over gRPC. Every method of
// every service that it offers is called, with sensible messages of which a few fields are wrong,
// or with bytes that are no message. Each call that need not wait for others is answered in time.
// Afterwards sensible workers join and train, or are told why they cannot.
//
// The first byte of the input selects the config. tests/fuzz/ps_core_fuzzer.cc runs a hundred times
// as many sequences in the same time, without gRPC.

#include <unistd.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/clock.h"
#include "common/wire/chunk_codec.h"
#include "grpcpp/generic/generic_stub.h"
#include "grpcpp/grpcpp.h"
#include "proto/admin.pb.h"
#include "proto/agreement.pb.h"
#include "proto/parameter_server.grpc.pb.h"
#include "proto/replication.pb.h"
#include "server/server.h"
#include "tests/fuzz/fuzzing.h"

namespace evenshard {
namespace {

using google::protobuf::Message;
using google::protobuf::MethodDescriptor;

constexpr int kWorkers = 2;
// Longer than anything takes, if it does not hang: what waits for another worker, which may be a
// stranger's, waits for limits.exchange_seconds.
constexpr std::chrono::seconds kPatience(20);

constexpr char kConfig[] = R"pb(
  model {
    input { channels: 6 height: 1 width: 1 }
    layer {
      name: "fc"
      linear { out_features: 4 }
    }
  }
  partition { scheme: MEMORY_BASED }
  workers: 2
  update { policy: SYNC }
  training { iterations: 100 }
  compute { backend: EMULATED }
  limits {
    chunk_bytes: 64
    startup_seconds: 20
    exchange_seconds: 1
    shutdown_seconds: 2
    reconnect_seconds: 1
  }
)pb";

const PlannedConfig& ConfigOf(size_t choice) {
  static const auto* const configs = [] {
    const std::string address = absl::StrCat("unix:/tmp/evenshard-fuzz-", getpid());
    const std::string shard = absl::StrCat("shard=[{address: \"", address, "\"}]");
    const std::vector<std::string> choices[] = {
        {shard},
        {shard, "update.clip_global_norm=1"},
        {shard, "update.policy=ASYNC"},
        {shard, "update.policy=QUORUM", "update.quorum=1"},
    };
    auto* const made = new std::vector<PlannedConfig>;
    for (const std::vector<std::string>& overrides : choices) {
      auto config = PlannedConfig::Parse(kConfig, "fuzzed.textproto", overrides);
      Require(config.ok(), config.status().message());
      made->push_back(*std::move(config));
    }
    return made;
  }();
  return (*configs)[choice % configs->size()];
}

// The methods that a ps offers. Shutdown only asks this program, which goes on.
const std::vector<const MethodDescriptor*>& Methods() {
  static const auto* const methods = [] {
    auto* const all = new std::vector<const MethodDescriptor*>;
    for (const auto* message : {JoinRequest::descriptor(), GetStatsRequest::descriptor(),
                                AgreementReport::descriptor(), ReplicaChunk::descriptor()}) {
      const auto& file = *message->file();
      for (int i = 0; i < file.service_count(); ++i) {
        for (int j = 0; j < file.service(i)->method_count(); ++j) {
          all->push_back(file.service(i)->method(j));
        }
      }
    }
    return all;
  }();
  return *methods;
}

// Sets a field of a message if its type has it.
void Set(Message* message, const char* name, uint64_t value) {
  const auto* const field = message->GetDescriptor()->FindFieldByName(name);
  if (field == nullptr) return;
  if (field->cpp_type() == google::protobuf::FieldDescriptor::CPPTYPE_UINT32) {
    message->GetReflection()->SetUInt32(message, field, static_cast<uint32_t>(value));
  } else if (field->cpp_type() == google::protobuf::FieldDescriptor::CPPTYPE_UINT64) {
    message->GetReflection()->SetUInt64(message, field, value);
  }
}

// A call of any kind, whose messages are bytes.
class Call {
 public:
  Call(grpc::GenericStub* stub, const std::string& method, uint32_t worker, uint64_t incarnation) {
    context_.set_deadline(std::chrono::system_clock::now() + 2 * kPatience);
    context_.AddMetadata("ps-worker", absl::StrCat(worker));
    context_.AddMetadata("ps-incarnation", absl::StrCat(incarnation));
    context_.AddMetadata("ps-ticket", "1");
    context_.AddMetadata("ps-view", "0");
    call_ = stub->PrepareCall(&context_, method, &queue_);
    call_->StartCall(this);
    Await();
  }
  ~Call() {
    context_.TryCancel();
    Finish();
  }

  // False once the call has ended. It is cancelled if the message waits, as one that another
  // client's call is to take.
  bool Write(const std::string& bytes) {
    const grpc::Slice slice(bytes);
    call_->Write(grpc::ByteBuffer(&slice, 1), this);
    constexpr std::chrono::milliseconds kShort(200);
    if (const auto written = Next(kShort); written.has_value()) return *written;
    context_.TryCancel();
    return Await();
  }
  void WritesDone() {
    call_->WritesDone(this);
    Await();
  }
  bool Read(grpc::ByteBuffer* message) {
    call_->Read(message, this);
    return Await();
  }
  grpc::Status Finish() {
    if (!std::exchange(is_finished_, true)) {
      call_->Finish(&status_, this);
      Await();
    }
    return status_;
  }

 private:
  // How the operation under way has ended, or nothing if it takes longer.
  std::optional<bool> Next(std::chrono::milliseconds patience) {
    void* tag = nullptr;
    bool ok = false;
    const auto deadline = std::chrono::system_clock::now() + patience;
    const bool has_ended =
        queue_.AsyncNext(&tag, &ok, deadline) == grpc::CompletionQueue::GOT_EVENT;
    return has_ended ? std::optional(ok) : std::nullopt;
  }
  bool Await() {
    const std::optional<bool> ok = Next(kPatience);
    Require(ok.has_value(), "a call goes on in time");
    return *ok;
  }

  grpc::CompletionQueue queue_;
  grpc::ClientContext context_;
  std::unique_ptr<grpc::GenericClientAsyncReaderWriter> call_;
  grpc::Status status_;
  bool is_finished_ = false;
};

class Fuzzed {
 public:
  explicit Fuzzed(FuzzedDataProvider* input)
      : input_(*input), config_(ConfigOf(input->ConsumeIntegral<uint8_t>())) {
    auto server = Server::Start({.config = &config_, .clock = &clock_});
    Require(server.ok(), server.status().message());
    server_ = *std::move(server);
    // Otherwise it would share connections with those of servers before.
    grpc::ChannelArguments arguments;
    arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
    channel_ = grpc::CreateCustomChannel(server_->address(), grpc::InsecureChannelCredentials(),
                                         arguments);
    stub_ = std::make_unique<grpc::GenericStub>(channel_);
  }

  void Step() {
    const MethodDescriptor& method =
        *Methods()[input_.ConsumeIntegralInRange<size_t>(0, Methods().size() - 1)];
    const uint32_t worker = input_.ConsumeIntegralInRange<uint32_t>(0, kWorkers - 1);
    const std::string name = absl::StrCat("/", method.service()->full_name(), "/", method.name());
    if (method.client_streaming()) {
      // Streams stay open, so that what comes later finds them.
      if (streams_.size() >= kMostStreams) streams_.erase(streams_.begin());
      streams_.push_back(
          {&method, std::make_unique<Call>(stub_.get(), name, worker, IncarnationOf(worker))});
      for (int count = input_.ConsumeIntegralInRange(0, 3); count > 0; --count) {
        streams_.back().call->Write(MessageFor(method, worker));
      }
      return;
    }
    Call call(stub_.get(), name, worker, IncarnationOf(worker));
    call.Write(MessageFor(method, worker));
    call.WritesDone();
    if (MayWait(method)) return;  // the call is cancelled
    grpc::ByteBuffer answer;
    while (call.Read(&answer)) {
    }
    const grpc::Status status = call.Finish();
    Require(status.error_code() != grpc::StatusCode::UNKNOWN &&
                status.error_code() != grpc::StatusCode::DEADLINE_EXCEEDED,
            "a call is answered, or refused with a reason");
  }

  // Sensible workers train for one iteration.
  void TrainOnceMore() {
    std::vector<std::unique_ptr<Call>> streams;
    const auto stub = ParameterServer::NewStub(channel_);
    for (uint32_t worker = 0; worker < kWorkers; ++worker) {
      grpc::ClientContext context;
      context.set_deadline(std::chrono::system_clock::now() + kPatience);
      JoinRequest request;
      FillIn(worker, &request);
      JoinResponse response;
      const grpc::Status joined = stub->Join(&context, request, &response);
      if (!joined.ok()) {
        Require(joined.error_code() != grpc::StatusCode::DEADLINE_EXCEEDED &&
                    !joined.error_message().empty(),
                "a worker joins, or is told why not");
        return;
      }
      streams.push_back(std::make_unique<Call>(
          stub_.get(), "/evenshard.v1.ParameterServer/Exchange", worker, IncarnationOf(worker)));
      GradientChunks message;
      for (StoredChunk& chunk : server_->shard().store().chunks()) {
        absl::ReaderMutexLock lock(&chunk.mutex);
        const ChunkClock& clock = chunk.clock();
        GradientChunk& gradient = *message.add_chunk();
        FillIn(worker, &gradient);
        gradient.set_chunk(chunk.info().id);
        gradient.set_iteration(clock.next_iteration.empty() ? clock.iteration
                                                            : clock.next_iteration[worker]);
        gradient.set_base_version(clock.version);
        gradient.set_data(std::string(chunk.info().size * sizeof(float), '\0'));
      }
      streams.back()->Write(message.SerializeAsString());
    }
    // An answer, or the end of the stream with a reason.
    grpc::ByteBuffer answer;
    for (const auto& stream : streams) {
      if (!stream->Read(&answer)) Require(!stream->Finish().ok(), "a stream ends for a reason");
    }
  }

 private:
  static constexpr size_t kMostStreams = 6;
  struct Stream {
    const MethodDescriptor* method;
    std::unique_ptr<Call> call;
  };

  static uint64_t IncarnationOf(uint32_t worker) { return 100 + worker; }
  // Whether an answer may be due to somebody else's call.
  static bool MayWait(const MethodDescriptor& method) {
    return method.name() == "Agree" || method.name() == "Snapshot" ||
           method.name() == "ReceiveWorkerState";
  }

  void FillIn(uint32_t worker, Message* message) const {
    Set(message, "worker", worker);
    Set(message, "incarnation", IncarnationOf(worker));
    Set(message, "config_fingerprint", config_.fingerprint());
    Set(message, "plan_fingerprint", config_.plan().fingerprint());
    Set(message, "plan_version", kPlanVersion);
    Set(message, "protocol_version", kProtocolVersion);
  }

  std::string MessageFor(const MethodDescriptor& method, uint32_t worker) {
    if (input_.ConsumeIntegralInRange(0, 15) == 0) return input_.ConsumeRandomLengthString();
    const std::unique_ptr<Message> message(google::protobuf::MessageFactory::generated_factory()
                                               ->GetPrototype(method.input_type())
                                               ->New());
    FillIn(worker, message.get());
    if (auto* const chunks = dynamic_cast<GradientChunks*>(message.get()); chunks != nullptr) {
      GradientChunk& chunk = *chunks->add_chunk();
      FillIn(worker, &chunk);
      const auto& owned = config_.plan().chunks_of_shard(0);
      chunk.set_chunk(owned[input_.ConsumeIntegralInRange<size_t>(0, owned.size() - 1)]);
      const size_t elements = config_.plan().chunks()[chunk.chunk()].size;
      chunk.set_data(std::string(elements * sizeof(float), '\0'));
      Vary(input_, 2, &chunk);
      return message->SerializeAsString();
    }
    Vary(input_, 4, message.get());
    return message->SerializeAsString();
  }

  FuzzedDataProvider& input_;
  const PlannedConfig& config_;
  const RealClock clock_;
  std::unique_ptr<Server> server_;
  std::shared_ptr<grpc::Channel> channel_;
  std::unique_ptr<grpc::GenericStub> stub_;
  std::vector<Stream> streams_;
};

}  // namespace
}  // namespace evenshard

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* bytes, size_t size) {
  constexpr int kMostSteps = 20;
  // gRPC would end its threads with the last object, and begin others with the next input.
  [[gnu::used]] static const auto* const keeps_threads = new grpc::CompletionQueue;
  FuzzedDataProvider input(bytes, size);
  evenshard::Fuzzed fuzzed(&input);
  for (int step = 0; step < kMostSteps && input.remaining_bytes() > 0; ++step) fuzzed.Step();
  fuzzed.TrainOnceMore();
  return 0;
}
