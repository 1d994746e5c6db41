#ifndef EVENSHARD_TESTS_SERVER_RECOVERY_SLOT_FIXTURE_H_
#define EVENSHARD_TESTS_SERVER_RECOVERY_SLOT_FIXTURE_H_

#include <catch2/catch.hpp>
#include <deque>
#include <map>
#include <memory>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "common/wire/chunk_codec.h"
#include "common/wire/encoding.h"
#include "server/recovery/slot_host.h"
#include "tests/server/shard/shard_fixture.h"
#include "tests/testing/fake_clock.h"

namespace evenshard {

// Streams between hosts of one process. Nothing moves but by Step, in the test's thread.
class Loopback final : public ReplicaTransport {
 public:
  // `hosts` by incarnation. One that is not there cannot be reached.
  std::map<uint64_t, SlotHost*> hosts;

  std::unique_ptr<ReplicaStream> Open(int slot, int lane, uint64_t view, const ProcessId& primary,
                                      const ProcessId& copy,
                                      ReplicaStream::Receiver* receiver) override {
    ++opened;
    return std::make_unique<Stream>(this, slot, view, primary.incarnation(), copy.incarnation(),
                                    receiver);
  }
  void Disconnect(int slot) override {}

  // Delivers one message. Returns false if there was none.
  bool Step() {
    for (Stream* stream : streams_) {
      if (stream->ended || stream->queue.empty()) continue;
      const ReplicaMessage message = std::move(stream->queue.front());
      stream->queue.pop_front();
      ++delivered;
      const auto host = hosts.find(stream->copy);
      const auto copy = host == hosts.end() ? nullptr : host->second->Copy(stream->slot);
      absl::StatusOr<ReplicaReceipt> receipt = absl::UnavailableError("no such copy");
      if (copy != nullptr) receipt = copy->Take(stream->view, stream->primary, message);
      if (receipt.ok()) {
        stream->receiver->Confirmed(*receipt);
      } else {
        last_refusal = receipt.status();
        stream->ended = true;
        stream->receiver->Ended(receipt.status());
      }
      return true;
    }
    return false;
  }
  void Run() {
    while (Step()) {
    }
  }
  // Ends all streams; what was on the way is lost.
  void Break() {
    for (Stream* stream : std::set<Stream*>(streams_)) {
      if (std::exchange(stream->ended, true)) continue;
      stream->queue.clear();
      stream->receiver->Ended(absl::UnavailableError("broken by the test"));
    }
  }

  int opened = 0;
  int delivered = 0;
  absl::Status last_refusal;

 private:
  struct Stream final : ReplicaStream {
    Stream(Loopback* net, int slot, uint64_t view, uint64_t primary, uint64_t copy,
           Receiver* receiver)
        : net(net), slot(slot), view(view), primary(primary), copy(copy), receiver(receiver) {
      net->streams_.insert(this);
    }
    ~Stream() override { net->streams_.erase(this); }
    void Send(ReplicaMessage message) override {
      if (!ended) queue.push_back(std::move(message));
    }

    Loopback* const net;
    const int slot;
    const uint64_t view, primary, copy;
    Receiver* const receiver;
    std::deque<ReplicaMessage> queue;
    bool ended = false;
  };

  std::set<Stream*> streams_;
};

// All that a slot's state consists of.
struct SlotState {
  std::vector<std::vector<float>> arrays;
  std::vector<ChunkClock> clocks;
  // What is kept of what workers were sent (SentParameters).
  std::vector<std::vector<uint64_t>> sent_versions;
  std::vector<std::vector<float>> sent;
  friend bool operator==(const SlotState&, const SlotState&) = default;
};

inline SlotState StateOf(ParameterStore& store) {
  SlotState state;
  for (StoredChunk& chunk : store.chunks()) {
    absl::MutexLock lock(&chunk.mutex);
    for (int i = 0; i < chunk.arrays(); ++i) {
      state.arrays.emplace_back(chunk.array(i).begin(), chunk.array(i).end());
    }
    const SentParameters& sent = chunk.sent();
    for (size_t rank = 0; rank < sent.workers(); ++rank) {
      state.sent.emplace_back(sent.copy(rank).begin(), sent.copy(rank).end());
    }
    state.sent_versions.push_back(sent.versions());
    state.clocks.push_back(chunk.clock());
  }
  return state;
}

inline PlannedConfig SlotConfig(const std::vector<std::string>& overrides = {}) {
  absl::StatusOr<PlannedConfig> config =
      PlannedConfig::Parse(R"pb(
                             model {
                               input { channels: 6 height: 1 width: 1 }
                               layer {
                                 name: "fc1"
                                 linear { out_features: 10 }
                               }
                               layer {
                                 name: "norm"
                                 batch_norm {}
                               }
                               layer {
                                 name: "fc2"
                                 linear { out_features: 5 }
                               }
                             }
                             partition { scheme: STRIPED }
                             shard { address: "127.0.0.1:7001" }
                             shard { address: "127.0.0.1:7002" }
                             workers: 2
                             update { policy: SYNC }
                             optimizer { kind: SGD learning_rate: 0.125 }
                             training { iterations: 100 }
                             compute { backend: EMULATED }
                             limits { chunk_bytes: 64 exchange_seconds: 60 }
                             recovery { replicas: 1 }
                           )pb",
                           "test.textproto", overrides);
  INFO(config.status().ToString());
  REQUIRE(config.ok());
  return *std::move(config);
}

// The processes of a run, in one thread, with a test as their workers and their coordinator.
class SlotFixture {
 public:
  void Start(const std::vector<std::string>& overrides = {}, int processes = 2,
             Storage* disk = nullptr) {
    StartWith(SlotConfig(overrides), processes, disk);
  }
  void StartWith(PlannedConfig given, int processes = 2, Storage* disk = nullptr) {
    config = std::make_unique<PlannedConfig>(std::move(given));
    storage = disk;
    for (int process = 0; process < processes; ++process) StartHost(process, 10 + process);
    view.set_generation(1);
    view.set_run(77);
    WorkerSet* worker_set = view.add_worker_set();
    for (int rank = 0; rank < config->workers(); ++rank) {
      worker_set->add_rank(rank);
      WorkerView* worker = view.add_worker();
      worker->set_state(WorkerView::MEMBER);
      worker->set_incarnation(100 + rank);
      sinks.push_back(std::make_shared<RecordingSink>());
    }
    for (int slot = 0; slot < config->shards(); ++slot) view.add_slot();
  }

  void StartHost(int process, uint64_t incarnation) {
    SlotHost::Options options;
    options.config = config.get();
    options.self = Process(process, incarnation);
    options.clock = &clock;
    options.has_views = true;
    options.transport = &net;
    options.agreements = norms;
    options.storage = storage;
    options.has_threads = has_threads;
    options.holds_roles = [this] { return holds_roles(); };
    auto host = SlotHost::Start(options);
    REQUIRE(host.ok());
    hosts[process] = *std::move(host);
    net.hosts[incarnation] = hosts[process].get();
  }
  void Kill(int process) {
    for (auto it = net.hosts.begin(); it != net.hosts.end();) {
      it = it->second == hosts[process].get() ? net.hosts.erase(it) : std::next(it);
    }
    hosts[process].reset();
  }

  static ProcessId Process(int process, uint64_t incarnation) {
    ProcessId id;
    id.set_process(process);
    id.set_incarnation(incarnation);
    id.set_address(absl::StrCat("127.0.0.1:", 7001 + process));
    return id;
  }
  // Sets the roles of a slot in `view`. Incarnation 0 stands for nobody.
  void Roles(int slot, ProcessId primary, ProcessId copy, bool complete) {
    SlotView* roles = view.mutable_slot(slot);
    roles->Clear();
    *roles->mutable_primary() = primary;
    if (copy.incarnation() != 0) *roles->mutable_replica() = copy;
    roles->set_replica_is_complete(complete);
  }
  // Makes `view` the next one, at all hosts or those listed.
  void Publish(std::vector<int> processes = {}) {
    view.set_number(view.number() + 1);
    for (const auto& [process, host] : hosts) {
      const bool listed = processes.empty() || absl::c_linear_search(processes, process);
      if (host != nullptr && listed) host->Adopt(view);
    }
  }

  // Pushes a random gradient of an iteration for every chunk of a slot, from every worker.
  void Train(int slot, uint64_t iteration) {
    const std::shared_ptr<Shard> shard = Primary(slot);
    for (int rank = 0; rank < config->workers(); ++rank) {
      for (StoredChunk& chunk : shard->store().chunks()) {
        const absl::Status pushed = Push(*shard, rank, iteration, chunk.info());
        INFO(pushed.ToString());
        REQUIRE(pushed.ok());
      }
    }
  }
  absl::Status Push(Shard& shard, int rank, uint64_t iteration, const Chunk& chunk) {
    std::mt19937 random(rank * 100003 + iteration * 101 + chunk.id);
    std::normal_distribution<float> normal;
    std::vector<float> values(chunk.size);
    for (float& value : values) value = normal(random);
    const Encoding encoding = config->proto().exchange().gradient_encoding();
    auto owner = std::make_shared<std::string>(EncodedBytes(encoding, chunk.size), '\0');
    Encode(encoding, values, owner->data());
    Segments data;
    data.emplace_back(*owner);
    const GradientHeader header{.worker = static_cast<uint32_t>(rank),
                                .incarnation = view.worker(rank).incarnation(),
                                .iteration = iteration,
                                .chunk = chunk.id,
                                .base_version = held[{rank, chunk.id}],
                                .encoding = encoding,
                                .view = shard.view()};
    return shard.Push(*SessionOf(shard, rank), Gradient{header, std::move(data), owner},
                      sinks[rank]);
  }
  // Sends a worker every chunk of a slot as it is, from which its next pushes are computed.
  void Send(int slot, int rank) {
    for (StoredChunk& chunk : Primary(slot)->store().chunks()) {
      absl::ReaderMutexLock lock(&chunk.mutex);
      chunk.sent().Note(rank);
      held[{rank, chunk.info().id}] = chunk.version();
    }
  }
  std::shared_ptr<WorkerSession> SessionOf(Shard& shard, int rank) {
    auto& session = sessions[{shard.incarnation(), rank}];
    if (session != nullptr && session->holds_rank()) return session;
    JoinRequest request;
    request.set_worker(rank);
    request.set_incarnation(view.worker(rank).incarnation());
    request.set_config_fingerprint(config->fingerprint());
    request.set_plan_fingerprint(config->plan().fingerprint());
    request.set_plan_version(kPlanVersion);
    request.set_protocol_version(kProtocolVersion);
    request.add_encodings(FLOAT16);
    request.add_encodings(BFLOAT16);
    request.set_view(shard.view());
    const auto joined = shard.Join(request, "test");
    INFO(joined.status().ToString());
    REQUIRE(joined.ok());
    const auto opened = shard.OpenStream(rank, request.incarnation());
    REQUIRE(opened.ok());
    return session = *opened;
  }

  std::shared_ptr<Shard> Primary(int slot) {
    for (const auto& [process, host] : hosts) {
      if (host == nullptr) continue;
      if (auto shard = host->Primary(slot); shard != nullptr) return shard;
    }
    FAIL("nobody is primary of slot " << slot);
    return nullptr;
  }
  SlotState PrimaryState(int slot) { return StateOf(Primary(slot)->store()); }
  // Ends the copy of a slot, and returns what it has.
  SlotState CopyState(int process, int slot) {
    const auto copy = hosts[process]->Copy(slot);
    REQUIRE(copy != nullptr);
    return StateOf(*copy->Retire());
  }
  // The replies that all workers have got.
  size_t Replies() const {
    size_t replies = 0;
    for (const auto& sink : sinks) replies += sink->replies.size();
    return replies;
  }
  size_t Chunks(int slot) const { return config->plan().chunks_of_shard(slot).size(); }

  FakeClock clock;
  std::unique_ptr<PlannedConfig> config;
  Storage* storage = nullptr;
  AgreementTransport* norms = nullptr;  // of the hosts that are started from now on
  bool has_threads = false;             // see SlotHost::Options
  std::function<bool()> holds_roles = [] { return true; };
  Loopback net;
  std::vector<std::shared_ptr<RecordingSink>> sinks;
  std::map<int, std::unique_ptr<SlotHost>> hosts;  // by process
  // By the shard's incarnation: a later shard may have an earlier one's address.
  std::map<std::pair<uint64_t, int>, std::shared_ptr<WorkerSession>> sessions;
  std::map<std::pair<int, uint32_t>, uint64_t> held;  // by rank and chunk: the version
  View view;
};

}  // namespace evenshard

#endif  // EVENSHARD_TESTS_SERVER_RECOVERY_SLOT_FIXTURE_H_
