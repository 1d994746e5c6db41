// libFuzzer target: what shards answer a worker. The worker is real, from joining and pulling to
// training, without gRPC and by a clock of its own; what it is answered is sensible and then wrong
// in a few fields, or no message at all, or comes twice or late. Nothing outside of the worker's
// buffers is read or written, and a worker whose shards say what they should goes on training. Also
// what slots pass on of another worker's state.
//
// The input first selects the config, and whether what is answered may be wrong at all.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <limits>
#include <memory>
#include <numeric>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "common/net/pulled_chunks.h"
#include "common/net/same_host.h"
#include "common/placement/planned_config.h"
#include "common/wire/chunk_codec.h"
#include "common/wire/encoding.h"
#include "grpcpp/support/byte_buffer.h"
#include "proto/parameter_server.pb.h"
#include "tests/fuzz/fuzzing.h"
#include "tests/testing/fake_clock.h"
#include "worker/exchange/core/exchange_core.h"
#include "worker/exchange/core/gradient_encoder.h"
#include "worker/exchange/core/parameter_bootstrap.h"
#include "worker/exchange/core/worker_state/worker_state_arrival.h"
#include "worker/exchange/grpc/chunk_transfer.h"

namespace evenshard {
namespace {

constexpr int kShards = 2;
constexpr int kRank = 1;
constexpr uint64_t kIncarnation = 7;

constexpr char kConfig[] = R"pb(
  model {
    input { channels: 6 height: 1 width: 1 }
    layer {
      name: "fc1"
      linear { out_features: 4 }
    }
    layer {
      name: "norm"
      batch_norm {}
    }
  }
  partition { scheme: STRIPED }
  shard { address: "a:1" }
  shard { address: "b:2" }
  workers: 2
  update { policy: SYNC }
  training { iterations: 100 }
  compute { backend: EMULATED }
  limits { chunk_bytes: 64 exchange_seconds: 60 startup_seconds: 30 reconnect_seconds: 5 }
)pb";
// Tensors of several types in a worker's memory.
constexpr char kProgram[] = R"pb(
  model {
    from_workers {
      tensor {
        name: "a"
        shape: [ 9, 4 ]
        layer: "a"
        type: BFLOAT16
      }
      tensor { name: "b" shape: 7 layer: "b" }
      tensor { name: "count" shape: 5 layer: "count" role: BUFFER }
    }
  }
  partition { scheme: STRIPED }
  shard { address: "a:1" }
  shard { address: "b:2" }
  workers: 2
  update { policy: SYNC }
  limits { chunk_bytes: 64 exchange_seconds: 60 startup_seconds: 30 reconnect_seconds: 5 }
)pb";

const std::vector<PlannedConfig>& Configs() {
  static const auto* const configs = [] {
    auto* const made = new std::vector<PlannedConfig>;
    const auto add = [&](const char* text, const std::vector<std::string>& overrides) {
      auto config = PlannedConfig::Parse(text, "fuzzed.textproto", overrides);
      Require(config.ok(), config.status().message());
      made->push_back(*std::move(config));
    };
    add(kConfig, {});
    add(kConfig, {"exchange.gradient_encoding=INT8", "exchange.update_encoding=INT4",
                  "exchange.error_feedback=true"});
    add(kConfig, {"exchange.update_encoding=E3M0"});
    add(kConfig, {"exchange.gradient_encoding=FLOAT16", "exchange.parameter_encoding=BFLOAT16"});
    add(kConfig, {"update.policy=ASYNC"});
    add(kConfig, {"update.policy=SSP", "update.staleness=1"});
    add(kConfig, {"update={policy: QUORUM quorum: 1 late: CARRY}"});
    add(kConfig, {"exchange.schedule=SEQUENTIAL"});
    add(kProgram, {});
    add(kProgram, {"exchange.gradient_encoding=INT8", "optimizer.kind=MEAN"});
    return made;
  }();
  return *configs;
}

// Exactly so many bytes, so that whatever is beyond them is noticed.
class Memory {
 public:
  explicit Memory(int64_t floats)
      : size_(static_cast<size_t>(floats)),
        data_(static_cast<float*>(std::aligned_alloc(64, size_ * sizeof(float)))) {
    std::fill(data_.get(), data_.get() + size_, 0.25F);
  }
  absl::Span<float> span() { return {data_.get(), size_}; }

 private:
  struct Free {
    void operator()(float* memory) const { std::free(memory); }
  };
  const size_t size_;
  const std::unique_ptr<float, Free> data_;
};

// A worker, and the shards that answer it.
class FuzzedWorker final : public ExchangeTransport {
 public:
  FuzzedWorker(const PlannedConfig* config, FuzzedDataProvider* input)
      : config_(*config),
        input_(*input),
        gradients_(config->model().buffer_size()),
        parameters_(config->model().parameter_bytes() / static_cast<int64_t>(sizeof(float))),
        core_({.config = config,
               .rank = kRank,
               .incarnation = kIncarnation,
               .clock = &clock_,
               .transport = this,
               .addresses = {"a:1", "b:2"}}),
        transfer_(config, &core_, MakeEncoder(*config),
                  [this](int64_t begin, int64_t count) {
                    Require(begin >= 0 && begin + count <= config_.model().buffer_size(),
                            "parameters are written where they are");
                  }),
        bootstrap_({.config = config,
                    .clock = &clock_,
                    .core = &core_,
                    .rank = kRank,
                    .brings_parameters = config->is_from_workers()}) {
    transfer_.SetBuffers(gradients_.span(), parameters_.span());
    may_alter_ = input->ConsumeBool();
    offers_memory_ = MayShareMemory(config->proto().exchange()) && input->ConsumeBool();
    core_.Start();
  }

  void Connect(const Attempt& attempt) override { attempts_[attempt.slot] = attempt.number; }
  void Disconnect(int slot) override { attempts_[slot].reset(); }
  void Wake(int) override {}

  // Does what the input says next.
  void Step();
  // Shards that say what they should answer the worker, if nothing else has been said before.
  void GoOn();
  void Check() const {
    const absl::Status failure = core_.failure();
    Require(failure.ok() || !failure.message().empty(), "a worker that has failed says why");
  }

 private:
  static std::unique_ptr<GradientEncoder> MakeEncoder(const PlannedConfig& config) {
    auto encoder = GradientEncoder::Create(config, kRank);
    Require(encoder.ok(), encoder.status().message());
    return *std::move(encoder);
  }

  // With `changes`, the most fields of a message that are wrong.
  void Accept(int slot, int changes);
  void Work(int changes);  // the worker's own thread
  void Pull(int changes);
  void TakePushes(int slot);
  void Answer(int slot, int changes);
  void Receive(int slot, const std::string& bytes);
  void End(int slot, const absl::Status& status);
  ParameterChunk AnswerTo(const GradientHeader& push);
  void PassOnState();

  template <typename Message>
  void Change(int changes, Message* message) {
    const std::string before = changes == 0 ? "" : message->SerializeAsString();
    Vary(input_, changes, message);
    is_altered_ |= changes > 0 && message->SerializeAsString() != before;
  }

  const PlannedConfig& config_;
  FuzzedDataProvider& input_;
  FakeClock clock_;
  Memory gradients_;
  Memory parameters_;
  bool may_alter_ = false;  // otherwise answers only come twice, and late
  bool offers_memory_ = false;
  std::optional<uint64_t> attempts_[kShards];    // the latest, unless it has ended
  bool is_connected_[kShards] = {};              // that one
  std::vector<GradientHeader> pushes_[kShards];  // without an answer
  std::vector<std::string> sent_[kShards];       // answers
  std::vector<uint64_t> versions_ = std::vector<uint64_t>(config_.plan().chunks().size());
  bool is_started_ = false;  // the bootstrap is done
  bool is_open_ = false;     // an exchange
  int trained_ = 0;
  bool is_altered_ = false;
  ExchangeCore core_;
  ChunkTransfer transfer_;
  ParameterBootstrap bootstrap_;
};

void FuzzedWorker::Step() {
  constexpr int kChanges = 3;
  const int slot = input_.ConsumeIntegralInRange(0, kShards - 1);
  // Most answers are as they should be, so that the worker comes far.
  const int changes = may_alter_ && input_.ConsumeIntegralInRange(0, 3) == 0 ? kChanges : 0;
  switch (input_.ConsumeIntegralInRange(0, 13)) {
    case 0:
    case 1:
      return Accept(slot, changes);
    case 2:
      if (may_alter_ && attempts_[slot].has_value()) {
        const auto code = static_cast<absl::StatusCode>(input_.ConsumeIntegralInRange(0, 16));
        is_altered_ = true;
        End(slot, absl::Status(code, code == absl::StatusCode::kOk ? "" : "it ends"));
      }
      return;
    case 3:
    case 4:
    case 5:
      return Work(changes);
    case 6:
      return TakePushes(slot);
    case 7:
      if (!sent_[slot].empty() && is_connected_[slot]) {  // once more
        const size_t last = sent_[slot].size() - 1;
        const std::string again = sent_[slot][input_.ConsumeIntegralInRange<size_t>(0, last)];
        Receive(slot, again);
      }
      return;
    case 8:
      if (may_alter_ && !sent_[slot].empty() && is_connected_[slot]) {
        std::string bytes = sent_[slot].back();
        if (bytes.empty()) return;
        bytes[input_.ConsumeIntegralInRange<size_t>(0, bytes.size() - 1)] =
            static_cast<char>(input_.ConsumeIntegral<uint8_t>());
        is_altered_ = true;
        Receive(slot, bytes);
      }
      return;
    case 9:
      clock_.Advance(absl::Milliseconds(input_.ConsumeIntegralInRange(0, 3000)));
      core_.Tick();
      return;
    case 10:
      return PassOnState();
    default:
      return Answer(slot, changes);
  }
}

void FuzzedWorker::End(int slot, const absl::Status& status) {
  const uint64_t attempt = *std::exchange(attempts_[slot], std::nullopt);
  is_connected_[slot] = false;
  pushes_[slot].clear();
  transfer_.Ended(slot, attempt, status);
}

void FuzzedWorker::Accept(int slot, int changes) {
  if (!attempts_[slot].has_value()) return;
  if (is_connected_[slot] && !may_alter_) return;
  if (std::exchange(is_connected_[slot], true)) is_altered_ = true;  // it joins once more
  JoinResponse response;
  response.set_shard(slot);
  response.set_incarnation(3);
  response.set_history(1);
  response.set_start_iteration(core_.round().next_iteration());
  response.set_shared_buffers(offers_memory_);
  Change(changes, &response);
  // ShardControl refuses what was not offered.
  response.set_shared_buffers(response.shared_buffers() && offers_memory_);
  transfer_.Joined(slot, *attempts_[slot], response);
}

void FuzzedWorker::Work(int changes) {
  ExchangeRound& round = core_.round();
  if (!core_.ready() || !core_.failure().ok()) return;
  if (is_open_) {
    round.Flush();
    if (!round.Settled()) return;
    round.End();
    is_open_ = false;
    ++trained_;
    return;
  }
  uint64_t iteration = round.next_iteration();
  ExchangeKind kind;
  Contribution contribution = Contribution::kGradient;
  if (!is_started_ || round.is_behind()) {
    const auto step = bootstrap_.Next();
    if (!step.ok()) return core_.Fail(step.status());
    using Kind = ParameterBootstrap::Step::Kind;
    if (step->kind == Kind::kPull) return Pull(changes);
    is_started_ = step->kind == Kind::kDone;
    if (is_started_) return;
    iteration = step->iteration;
    kind = step->exchange;
    contribution = step->contribution;
  }
  if (const absl::Status begun = round.Begin(iteration, kind); !begun.ok()) {
    return core_.Fail(begun);
  }
  is_open_ = true;
  std::vector<int> tensors(config_.model().tensors().size());
  std::iota(tensors.rbegin(), tensors.rend(), 0);
  const absl::Status pushed = round.Push(tensors, contribution);
  Require(pushed.ok(), pushed.message());
}

void FuzzedWorker::Pull(int changes) {
  for (int slot = 0; slot < kShards; ++slot) {
    PulledChunks pulled(&config_.plan(), slot, {});
    absl::Status status;
    for (const uint32_t id : config_.plan().chunks_of_shard(slot)) {
      const Chunk& chunk = config_.plan().chunks()[id];
      ParameterChunk message;
      message.set_chunk(id);
      message.set_version(versions_[id]);
      message.set_iteration(core_.round().next_iteration());
      message.set_data(std::string(chunk.size * sizeof(float), '\0'));
      Change(changes, &message);
      status = pulled.Add(message);
      if (status.ok()) {
        status = transfer_.TakePulled(config_.plan().chunks()[message.chunk()], message,
                                      parameters_.span());
      }
      if (!status.ok()) break;
      versions_[message.chunk()] = message.version();
    }
    if (status.ok()) status = pulled.CheckEnd();
    if (!status.ok()) return core_.Fail(status);
  }
}

void FuzzedWorker::TakePushes(int slot) {
  if (!is_connected_[slot]) return;
  const int streams = config_.proto().limits().connections();
  for (int stream = 0; stream < streams; ++stream) {
    while (true) {
      grpc::ByteBuffer message;
      const auto headers = transfer_.NextGradients(slot, stream, &message);
      if (headers.empty()) break;
      transfer_.GradientsSent(headers);
      pushes_[slot].insert(pushes_[slot].end(), headers.begin(), headers.end());
    }
  }
}

ParameterChunk FuzzedWorker::AnswerTo(const GradientHeader& push) {
  const Chunk& chunk = config_.plan().chunks()[push.chunk];
  const bool may_differ =
      config_.proto().exchange().has_update_encoding() && !push.assigned.has_value();
  const Encoding encoding =
      may_differ ? config_.AnswerEncoding(chunk) : config_.ParameterEncoding(chunk);
  ParameterChunk answer;
  answer.set_iteration(push.iteration);
  answer.set_chunk(push.chunk);
  answer.set_version(push.base_version + 1);
  answer.set_encoding(encoding);
  answer.set_view(push.view);
  answer.set_is_difference(may_differ);
  answer.set_next_iteration(push.iteration + 1);
  answer.set_assignments(push.assigned.has_value() ? 1 : 0);
  if (!offers_memory_) {
    const std::vector<float> values(chunk.size, 0.5F);
    std::string data(EncodedBytes(encoding, chunk.size), '\0');
    Encode(encoding, values, data.data());
    answer.set_data(std::move(data));
  }
  return answer;
}

void FuzzedWorker::Answer(int slot, int changes) {
  TakePushes(slot);
  if (pushes_[slot].empty()) return;
  ParameterChunks message;
  for (int count = input_.ConsumeIntegralInRange(1, 3); count > 0 && !pushes_[slot].empty();
       --count) {
    ParameterChunk& answer = *message.add_chunk();
    answer = AnswerTo(pushes_[slot].back());
    pushes_[slot].pop_back();
    Change(changes, &answer);
  }
  sent_[slot].push_back(message.SerializeAsString());
  const std::string bytes = sent_[slot].back();
  Receive(slot, bytes);
}

void FuzzedWorker::Receive(int slot, const std::string& bytes) {
  // In pieces, of which one ends within an element.
  const size_t cut = std::min(bytes.size(), bytes.size() / 2 + 1);
  const std::string first = bytes.substr(0, cut);
  const std::string second = bytes.substr(cut);
  const Segments pieces = {{first.data(), first.size()}, {second.data(), second.size()}};
  const absl::Status taken = transfer_.TakeParameters(slot, pieces);
  if (taken.ok()) return;
  Require(!taken.message().empty(), "a refusal has a reason");
  End(slot, taken);
}

void FuzzedWorker::PassOnState() {
  const auto most = std::numeric_limits<int64_t>::max();
  const int64_t piece_bytes =
      input_.PickValueInArray<int64_t>({10, 33, kMostStatePieceBytes, most});
  Memory parameters(16);
  std::vector<char> own(input_.ConsumeIntegralInRange<size_t>(0, 40));
  bool is_placed = false;
  const WorkerState::Place place =
      [&](const std::string& text) -> absl::StatusOr<WorkerState::Memory> {
    Require(text.size() <= static_cast<size_t>(kMostStateTextBytes), "a text has a bound");
    is_placed = true;
    if (text == "no") return absl::InvalidArgumentError("no room");
    char* const floats = reinterpret_cast<char*>(parameters.span().data());
    return WorkerState::Memory{{floats, 64}, {own.data(), 0}, {own.data(), own.size()}};
  };
  WorkerStateArrival arrival(kShards, place);
  WorkerStateArrival::Slot slots[kShards] = {{&arrival, 0}, {&arrival, 1}};
  bool has_begun[kShards] = {};
  std::stop_source stop;
  stop.request_stop();
  const int64_t total = 64 + static_cast<int64_t>(own.size());
  int64_t next[kShards] = {0, piece_bytes};
  bool has_text = false;
  for (int step = 0; step < 30 && input_.remaining_bytes() > 0; ++step) {
    const int slot = input_.ConsumeIntegralInRange(0, kShards - 1);
    WorkerStatePiece piece;
    if (!std::exchange(has_begun[slot], true)) {
      piece.set_total_bytes(total);
      piece.set_piece_bytes(piece_bytes);
      piece.set_text_bytes(5);
    } else if (slot == 0 && !std::exchange(has_text, true)) {
      piece.set_text("state");
    } else if (next[slot] < total) {
      if (slot != 0 && !is_placed) continue;  // it would wait
      piece.set_data(std::string(std::min(piece_bytes, total - next[slot]), 'x'));
      next[slot] = piece_bytes < total ? next[slot] + piece_bytes * kShards : total;
    }
    if (input_.ConsumeIntegralInRange(0, 3) == 0) Vary(input_, 3, &piece);
    if (const absl::Status taken = slots[slot].Take(piece, stop.get_token()); !taken.ok()) {
      Require(!taken.message().empty(), "a refusal has a reason");
      return;
    }
  }
  for (const auto& slot : slots) (void)slot.CheckEnd();
}

void FuzzedWorker::GoOn() {
  if (is_altered_) return;
  const absl::Status so_far = core_.failure();
  Require(so_far.ok() || absl::IsDeadlineExceeded(so_far), so_far.message());
  if (!so_far.ok()) return;
  const int before = trained_;
  for (int turn = 0; turn < 1000 && trained_ < before + 3; ++turn) {
    for (int slot = 0; slot < kShards; ++slot) {
      if (attempts_[slot].has_value() && !is_connected_[slot]) Accept(slot, 0);
      Answer(slot, 0);
    }
    Work(0);
  }
  const absl::Status failure = core_.failure();
  Require(failure.ok(), failure.message());
  Require(trained_ == before + 3, "a worker whose shards say what they should goes on");
}

}  // namespace
}  // namespace evenshard

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* bytes, size_t size) {
  constexpr int kMostSteps = 100;
  FuzzedDataProvider input(bytes, size);
  const auto& configs = evenshard::Configs();
  evenshard::FuzzedWorker worker(
      &configs[input.ConsumeIntegralInRange<size_t>(0, configs.size() - 1)], &input);
  for (int step = 0; step < kMostSteps && input.remaining_bytes() > 0; ++step) {
    worker.Step();
    worker.Check();
  }
  worker.GoOn();
  worker.Check();
  return 0;
}
