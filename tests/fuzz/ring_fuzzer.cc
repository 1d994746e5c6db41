// libFuzzer target: what the workers of a ring say to each other. Three real workers train; their
// messages travel when the input says, in any order of the streams, and some of them are wrong in a
// few fields, or no messages at all, or come twice, to another worker, or in a later iteration. A
// ring whose messages were as they should be trains to the bits of one that nobody disturbed; any
// other one may end with a reason.
//
// The input first selects the config, and whether messages may be wrong at all.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/placement/plan/ring_plan.h"
#include "common/placement/planned_config.h"
#include "common/wire/chunk_codec.h"
#include "common/wire/encoding.h"
#include "proto/parameter_server.pb.h"
#include "proto/ring.pb.h"
#include "tests/fuzz/fuzzing.h"
#include "worker/ring/core/ring_notes.h"
#include "worker/ring/core/ring_part.h"
#include "worker/ring/core/ring_predecessor.h"
#include "worker/ring/core/ring_round.h"

namespace evenshard {
namespace {

constexpr int kWorkers = 3;
constexpr int kStreams = 2;  // each way
constexpr int kIterations = 3;

constexpr char kConfig[] = R"(
  model { from_workers {
    tensor { name: "a" shape: [30, 4] layer: "a" }
    tensor { name: "b" shape: 7 layer: "b" }
    tensor { name: "mean" shape: 5 layer: "mean" role: RUNNING_STATISTIC }
    tensor { name: "frozen" shape: 90 layer: "frozen" role: BUFFER }
  } }
  topology: RING workers: 3 update { policy: SYNC }
  limits { chunk_bytes: 256 connections: 2 }
  ring { bucket_bytes: 1024 first_bucket_bytes: 512
         address: "unix:r0" address: "unix:r1" address: "unix:r2" })";
constexpr char kNetwork[] = R"(
  model { input { channels: 9 height: 1 width: 1 }
          layer { name: "fc1" linear { out_features: 8 } } layer { relu {} }
          layer { name: "fc2" linear { out_features: 5 } } }
  topology: RING workers: 3 update { policy: SYNC }
  training { iterations: 3 } compute { backend: EMULATED }
  limits { chunk_bytes: 256 connections: 2 }
  ring { bucket_bytes: 1024 first_bucket_bytes: 512
         address: "unix:r0" address: "unix:r1" address: "unix:r2" })";

struct FuzzedRing {
  PlannedConfig config;
  RingPlan plan;
};

FuzzedRing RingOf(const char* text, const std::vector<std::string>& overrides) {
  auto config = PlannedConfig::Parse(text, "fuzz.textproto", overrides);
  Require(config.ok(), config.status().message());
  auto plan = RingPlan::Create(config->model(), RingPlan::OptionsOf(config->proto()));
  Require(plan.ok(), plan.status().message());
  return {*std::move(config), *std::move(plan)};
}

const std::vector<FuzzedRing>& FuzzedRings() {
  static const auto* const rings = new std::vector<FuzzedRing>{
      RingOf(kNetwork, {"optimizer={kind: SGD learning_rate: 0.5}"}),
      RingOf(kNetwork,
             {"optimizer={kind: ADAM learning_rate: 0.01}", "update.clip_global_norm=0.5"}),
      RingOf(kNetwork, {"exchange={gradient_encoding: BFLOAT16 parameter_encoding: FLOAT16}"}),
      RingOf(kConfig, {"optimizer={kind: SGD learning_rate: 0.5}"}),
      RingOf(kConfig, {"optimizer={kind: MEAN}"}),
  };
  return *rings;
}

// A message on its way from a worker to its successor.
struct Sent {
  int from = 0;
  RingWay way = RingWay::kReduce;
  std::string bytes = {};
};

// The workers of a ring in one thread, without gRPC.
class Ring {
 public:
  explicit Ring(const FuzzedRing* ring) : ring_(*ring) {
    for (int rank = 0; rank < kWorkers; ++rank) workers_.push_back(MakeWorker(rank));
  }
  ~Ring() {
    for (const auto& worker : workers_) worker->round->EndHeld();
  }

  // The worker begins its next iteration, pushes its next layer, or ends an iteration that is over.
  void Work(int rank);
  // Takes a message from a worker's stream, if there is one.
  std::optional<Sent> Take(int rank, RingWay way, int stream);
  // The bytes come to the successor of a worker on one of its streams.
  void Receive(const Sent& sent, int to);
  static int After(int rank) { return (rank + 1) % kWorkers; }

  // All that a worker has to send one way comes to its successor. Returns whether there was any.
  bool Drain(int rank, RingWay way);
  // Everything travels, and all workers work, until nothing moves any more.
  void GoOn();
  // What a program, a watcher and a neighbour ask a worker.
  void Look(int rank, FuzzedDataProvider& input);
  // Another worker's word: whether it has joined, why the run ends, or a note.
  void Say(int rank, FuzzedDataProvider& input);

  bool HasFailed() const {
    return std::any_of(workers_.begin(), workers_.end(),
                       [](const auto& worker) { return !worker->round->failure().ok(); });
  }
  bool HasEnded() const {
    return std::all_of(workers_.begin(), workers_.end(), [](const auto& worker) {
      return worker->round->iteration() == kIterations;
    });
  }
  const std::vector<float>& parameters(int rank) const { return workers_[rank]->parameters; }
  // What must always hold.
  void Check() const;

 private:
  struct Worker {
    std::vector<float> gradients, parameters;
    std::unique_ptr<RingPart> part;
    std::unique_ptr<RingRound> round;
    std::unique_ptr<RingNotes> notes;
    std::unique_ptr<RingPredecessor> predecessor;
    std::deque<int> unpushed;                             // layers
    std::shared_ptr<int> held = std::make_shared<int>();  // a use for each message that is held
  };

  std::unique_ptr<Worker> MakeWorker(int rank);
  const Model& model() const { return ring_.config.model(); }

  const FuzzedRing& ring_;
  std::vector<std::unique_ptr<Worker>> workers_;
};

std::unique_ptr<Ring::Worker> Ring::MakeWorker(int rank) {
  auto worker = std::make_unique<Worker>();
  worker->gradients.resize(model().buffer_size());
  worker->parameters.assign(model().buffer_size(), 0.25F);
  auto part =
      RingPart::Create({.config = &ring_.config, .plan = &ring_.plan, .place = rank, .rank = rank});
  Require(part.ok(), part.status().message());
  worker->part = *std::move(part);
  const absl::Status started = worker->part->Start(absl::MakeSpan(worker->parameters));
  Require(started.ok(), started.message());
  const int before = (rank + kWorkers - 1) % kWorkers;
  worker->round = std::make_unique<RingRound>(
      RingRound::Options{.config = &ring_.config,
                         .plan = &ring_.plan,
                         .part = worker->part.get(),
                         .place = rank,
                         .rank = rank,
                         .predecessor = absl::StrCat("worker ", before),
                         .wake = [](RingWay, int) {},
                         .on_parameters_written =
                             [this](int64_t begin, int64_t count) {
                               Require(begin >= 0 && begin + count <= model().buffer_size(),
                                       "parameters are written where they are");
                             }});
  worker->notes = std::make_unique<RingNotes>(std::vector<int>{0, 1, 2});
  worker->predecessor = std::make_unique<RingPredecessor>(RingPredecessor::Options{
      .config = &ring_.config, .plan = &ring_.plan, .rank = rank, .predecessor = before});
  return worker;
}

void Ring::Work(int rank) {
  Worker& worker = *workers_[rank];
  RingRound& round = *worker.round;
  if (round.HasHeld()) round.ReduceHeld();
  if (!round.failure().ok()) return;
  if (!round.is_begun()) {
    const uint64_t iteration = round.iteration();
    if (iteration >= kIterations) return;
    // Sums of these do not depend on their order.
    for (size_t i = 0; i < worker.gradients.size(); ++i) {
      worker.gradients[i] = static_cast<float>((i * 7 + rank * 5 + iteration * 3) % 17) / 16 - 0.5F;
    }
    // Programs bring the model: worker 0 assigns it before the first iteration.
    ExchangeKind kind = {.skip = rank == 1 && iteration == 1};
    if (ring_.config.is_from_workers() && iteration == 0) {
      kind = {.skip = rank != 0, .assigned = 0};
    }
    const absl::Status begun =
        round.Begin(kind, absl::MakeSpan(worker.gradients), absl::MakeSpan(worker.parameters));
    Require(begun.ok(), begun.message());
    worker.unpushed.clear();
    for (size_t layer = model().layers().size(); layer-- > 0;) {
      if (model().layers()[layer].tensor_count > 0) worker.unpushed.push_back(layer);
    }
    return;
  }
  if (!worker.unpushed.empty()) {
    const int layer = worker.unpushed.front();
    const Tensor& first = model().tensors()[model().layers()[layer].first_tensor];
    const bool is_others = first.role == TensorRole::kBuffer && rank != 0 && round.iteration() > 0;
    const absl::Status pushed =
        round.Push(layer, is_others ? Contribution::kNothing : Contribution::kGradient);
    Require(pushed.ok(), pushed.message());
    worker.unpushed.pop_front();
    return;
  }
  for (size_t layer = 0; layer < model().layers().size(); ++layer) {
    if (!round.HasLayer(static_cast<int>(layer))) return;
  }
  // All parameters are there, so that this does not wait.
  for (size_t layer = 0; layer < model().layers().size(); ++layer) {
    const absl::Status ended = round.AwaitLayer(static_cast<int>(layer));
    Require(ended.ok(), ended.message());
  }
}

std::optional<Sent> Ring::Take(int rank, RingWay way, int stream) {
  RingRound& round = *workers_[rank]->round;
  const std::optional<RingRound::Outgoing> next = round.Take(way, stream);
  if (!next.has_value()) return std::nullopt;
  Sent sent = {.from = rank, .way = way};
  const auto data_of = [&](Encoding encoding) {
    std::string data;
    if (next->segment == nullptr) {
      data.assign(reinterpret_cast<const char*>(next->norm.data()), sizeof(next->norm));
    } else if (!next->buffer.empty()) {
      data.resize(EncodedBytes(encoding, next->segment->size));
      Encode(encoding, next->buffer.subspan(next->segment->begin, next->segment->size),
             data.data());
    }
    return data;
  };
  const ExchangeConfig& exchange = ring_.config.proto().exchange();
  if (way == RingWay::kReduce) {
    GradientChunks message;
    GradientChunk& chunk = *message.add_chunk();
    chunk.set_worker(rank);
    chunk.set_incarnation(1);
    chunk.set_iteration(next->iteration);
    chunk.set_chunk(next->segment->id);
    chunk.set_base_version(next->actions.agreement);
    chunk.set_encoding(exchange.gradient_encoding());
    chunk.set_data(data_of(exchange.gradient_encoding()));
    chunk.set_skip(chunk.data().empty());
    chunk.set_weight(chunk.skip() ? 1 : next->weight);
    if (next->actions.assigns) chunk.set_assigned(0);
    sent.bytes = message.SerializeAsString();
  } else {
    ParameterChunks message;
    ParameterChunk& chunk = *message.add_chunk();
    chunk.set_iteration(next->iteration);
    chunk.set_chunk(next->segment == nullptr ? next->norm_chunk : next->segment->id);
    if (next->segment != nullptr) chunk.set_encoding(exchange.parameter_encoding());
    chunk.set_data(data_of(exchange.parameter_encoding()));
    chunk.set_unchanged(chunk.data().empty());
    sent.bytes = message.SerializeAsString();
  }
  round.Sent();
  return sent;
}

void Ring::Receive(const Sent& sent, int to) {
  Worker& worker = *workers_[to];
  // As in RingReceiver, in two pieces of which the first ends within an element.
  const auto bytes = std::make_shared<const std::string>(sent.bytes);
  const size_t cut = bytes->size() / 2 + 1;
  Segments pieces = {{bytes->data(), std::min(cut, bytes->size())}};
  if (cut < bytes->size()) pieces.emplace_back(bytes->data() + cut, bytes->size() - cut);
  const auto take = [&](const auto& chunks, const auto& each) {
    if (!chunks.ok()) {
      worker.round->Fail(chunks.status());
      return;
    }
    for (const auto& chunk : *chunks) {
      if (!each(chunk).ok()) return;
    }
  };
  if (sent.way == RingWay::kGather) {
    take(DecodeParameterChunks(pieces),
         [&](const auto& chunk) { return worker.round->TakeGathered(chunk); });
    return;
  }
  const std::shared_ptr<const void> owner(bytes.get(), [bytes, held = worker.held](const void*) {});
  take(DecodeGradientChunks(pieces),
       [&](const auto& chunk) { return worker.round->TakeReduced(chunk, owner); });
}

bool Ring::Drain(int rank, RingWay way) {
  bool any = false;
  for (int stream = 0; stream < kStreams; ++stream) {
    while (const std::optional<Sent> sent = Take(rank, way, stream)) {
      Receive(*sent, After(rank));
      any = true;
    }
  }
  return any;
}

void Ring::GoOn() {
  for (bool moved = true; moved;) {
    moved = false;
    for (int rank = 0; rank < kWorkers; ++rank) {
      const RingRound& round = *workers_[rank]->round;
      const uint64_t iteration = round.iteration();
      const bool is_begun = round.is_begun();
      const size_t unpushed = workers_[rank]->unpushed.size();
      const bool has_held = round.HasHeld() && round.failure().ok();
      Work(rank);
      moved |= has_held || iteration != round.iteration() || is_begun != round.is_begun() ||
               unpushed != workers_[rank]->unpushed.size();
      for (const RingWay way : {RingWay::kReduce, RingWay::kGather}) moved |= Drain(rank, way);
    }
  }
}

void Ring::Look(int rank, FuzzedDataProvider& input) {
  RingRound& round = *workers_[rank]->round;
  if (input.ConsumeBool()) round.PredecessorFinished();
  const absl::Status forsaken = round.Forsaken();
  Require(forsaken.ok() || !forsaken.message().empty(), "a worker says why it is left alone");
  (void)round.CheckProgress(absl::FromUnixSeconds(input.ConsumeIntegralInRange(0, 1000)));
  (void)round.traffic();
}

void Ring::Say(int rank, FuzzedDataProvider& input) {
  Worker& worker = *workers_[rank];
  const uint32_t before = (rank + kWorkers - 1) % kWorkers;
  switch (input.ConsumeIntegralInRange(0, 3)) {
    case 0: {
      RingJoinRequest join;
      join.set_worker(before);
      join.set_successor(rank);
      join.set_incarnation(1);
      join.set_protocol_version(kProtocolVersion);
      join.set_plan_version(kRingPlanVersion);
      join.set_config_fingerprint(ring_.config.fingerprint());
      join.set_plan_fingerprint(ring_.plan.fingerprint());
      if (ring_.config.is_from_workers()) {
        *join.mutable_declaration() = ring_.config.declaration();
      }
      Vary(input, 3, &join);
      absl::Status joined = worker.predecessor->CheckJoin(join);
      if (joined.ok()) joined = worker.predecessor->TakeUp(join.incarnation());
      Require(joined.ok() || !joined.message().empty(), "a refusal has a reason");
      Require(!joined.ok() || worker.predecessor->Check(join.worker(), join.incarnation()).ok(),
              "one that has joined may speak");
      break;
    }
    case 1: {
      const uint32_t caller = input.ConsumeBool() ? before : input.ConsumeIntegral<uint32_t>();
      if (!worker.predecessor->Check(caller, input.ConsumeIntegralInRange(0, 2)).ok()) break;
      Require(caller == before, "only the predecessor may speak");
      const bool opened_all = worker.predecessor->has_opened_all();
      Require(worker.predecessor->Open().ok() != opened_all, "so many streams and no more");
      if (opened_all) (void)worker.predecessor->Close();
      break;
    }
    case 2: {
      RingFailure failure;
      failure.set_worker(before);
      failure.set_code(static_cast<int>(absl::StatusCode::kAborted));
      failure.set_reason("it has given up");
      Vary(input, 3, &failure);
      const absl::Status news = NewsOf(failure);
      Require(!news.ok() && !news.message().empty(), "news of a failure say what it is");
      Require(news.message().size() < 2000, "a reason is short");
      break;
    }
    default: {
      RingNote note;
      note.set_worker(before);
      note.set_origin(input.ConsumeIntegralInRange(0, kWorkers - 1));
      note.set_iteration(worker.round->iteration());
      note.set_place(input.ConsumeBool() ? "train.py:40" : "");
      if (input.ConsumeBool()) note.add_value(1);
      if (input.ConsumeBool()) note.add_state()->set_name("scheduler");
      Vary(input, 3, &note);
      if (const absl::Status taken = worker.notes->Take(note); !taken.ok()) {
        Require(!taken.message().empty(), "a refusal has a reason");
        worker.notes = std::make_unique<RingNotes>(std::vector<int>{0, 1, 2});  // the run ends
        break;
      }
      if (!worker.notes->Missing(note.iteration(), note.number()).empty()) return;
      const auto notes = worker.notes->Await(note.iteration(), note.number(),
                                             [] { return absl::CancelledError("waits"); });
      Require(notes.ok() && notes->size() == kWorkers, "what is there is not waited for");
      (void)MeanOf(*notes);
      (void)CheckSameStates(*notes);
    }
  }
}

void Ring::Check() const {
  for (const auto& worker : workers_) {
    const absl::Status failure = worker->round->failure();
    Require(failure.ok() || !failure.message().empty(), "a ring that has failed says why");
    // A predecessor may be ahead by one iteration, so that a worker may hold the sums of two.
    Require(static_cast<size_t>(worker->held.use_count()) <= 1 + 2 * ring_.plan.segments().size(),
            "a worker holds each sum once");
  }
}

// The parameters after all iterations of a ring that nobody disturbs.
const std::vector<float>& Undisturbed(const FuzzedRing* ring) {
  static auto* const all = new std::vector<std::vector<float>>(FuzzedRings().size());
  std::vector<float>& parameters = (*all)[ring - FuzzedRings().data()];
  if (parameters.empty()) {
    Ring calm(ring);
    calm.GoOn();
    Require(calm.HasEnded(), "a ring that nobody disturbs trains to the end");
    parameters = calm.parameters(0);
  }
  return parameters;
}

// Returns a message that is wrong in a few fields.
template <typename Message>
std::string Varied(FuzzedDataProvider& input, const std::string& bytes) {
  Message message;
  message.ParseFromString(bytes);
  Vary(input, 3, &message);
  return message.SerializeAsString();
}

void Run(FuzzedDataProvider& input) {
  constexpr int kMostSteps = 500;
  constexpr size_t kMostKept = 24;
  const FuzzedRing& config =
      FuzzedRings()[input.ConsumeIntegralInRange<size_t>(0, FuzzedRings().size() - 1)];
  const std::vector<float>& expected = Undisturbed(&config);
  // Otherwise they only come twice, and in any order of the streams.
  const bool may_alter = input.ConsumeBool();
  Ring ring(&config);
  std::deque<Sent> kept;  // that have travelled
  bool is_altered = false;
  bool is_repeated = false;
  for (int step = 0; step < kMostSteps && input.remaining_bytes() > 0; ++step) {
    const int rank = input.ConsumeIntegralInRange(0, kWorkers - 1);
    const int what = input.ConsumeIntegralInRange(0, 15);
    if (what < 4) {
      for (int i = 0; i <= what; ++i) ring.Work(rank);
    } else if (what == 4) {
      ring.Look(rank, input);
    } else if (what == 5) {
      ring.Say(rank, input);
    } else if (what == 6) {
      ring.Drain(rank, input.ConsumeBool() ? RingWay::kReduce : RingWay::kGather);
    } else if (what == 7) {  // once more, to the same worker or to another one
      if (kept.empty()) continue;
      const Sent& again = kept[input.ConsumeIntegralInRange<size_t>(0, kept.size() - 1)];
      const int to = may_alter && input.ConsumeBool() ? rank : Ring::After(again.from);
      is_altered |= to != Ring::After(again.from);
      is_repeated = true;
      ring.Receive(again, to);
    } else {
      std::optional<Sent> sent;
      for (int i = 0; i < 2 * kStreams && !sent.has_value(); ++i) {
        const int stream = (i + what) % (2 * kStreams);
        sent = ring.Take(rank, static_cast<RingWay>(stream % 2), stream / 2);
      }
      if (!sent.has_value()) continue;
      kept.push_back(*sent);
      if (kept.size() > kMostKept) kept.pop_front();
      if (what >= 14 && may_alter) {
        is_altered = true;
        if (what == 15 && !sent->bytes.empty()) {
          sent->bytes[input.ConsumeIntegralInRange<size_t>(0, sent->bytes.size() - 1)] =
              static_cast<char>(input.ConsumeIntegral<uint8_t>());
        } else {
          sent->bytes = sent->way == RingWay::kReduce ? Varied<GradientChunks>(input, sent->bytes)
                                                      : Varied<ParameterChunks>(input, sent->bytes);
        }
      }
      ring.Receive(*sent, Ring::After(rank));
    }
    ring.Check();
  }
  ring.GoOn();
  ring.Check();
  if (is_altered) return;
  Require(is_repeated || !ring.HasFailed(),
          "messages that come once, and as they were, fail no ring");
  if (ring.HasFailed()) return;
  Require(ring.HasEnded(), "a ring without faults trains to the end");
  for (int rank = 0; rank < kWorkers; ++rank) {
    const std::vector<float>& parameters = ring.parameters(rank);
    Require(std::memcmp(parameters.data(), expected.data(), expected.size() * sizeof(float)) == 0,
            "its sums are right");
  }
}

}  // namespace
}  // namespace evenshard

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* bytes, size_t size) {
  FuzzedDataProvider input(bytes, size);
  evenshard::Run(input);
  return 0;
}
