#include "tests/simulation/ps_process.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "tests/simulation/control/etcd_host.h"
#include "tests/simulation/control/etcd_runtime.h"

namespace evenshard {
namespace {

constexpr absl::Duration kTick = absl::Milliseconds(100);

ProcessId IdOf(int index, uint64_t incarnation) {
  ProcessId id;
  id.set_process(index);
  id.set_incarnation(incarnation);
  id.set_address(absl::StrCat("ps-", index));
  return id;
}

// A stream of changes from this process to a copy. The other end calls SlotReplica::Take.
class SimReplicaStream final : public ReplicaStream {
 public:
  struct Options {
    Context* context;
    NodeRef node;
    int slot;
    uint64_t view;
    ProcessId primary;
    ProcessId copy;
    int number;  // the oracle's, of the primary
    Receiver* receiver;
  };

  explicit SimReplicaStream(Options options)
      : shared_(std::make_shared<Shared>(std::move(options))) {
    World& world = shared_->options.context->world;
    shared_->connection =
        world.Connect(shared_->options.node, world.Ref(shared_->options.copy.process()));
    shared_->connection->OnBroken(0, [shared = shared_](const absl::Status& status) {
      if (shared->ends) return;
      shared->options.receiver->Ended(status);
    });
  }
  ~SimReplicaStream() override {
    shared_->ends = true;
    shared_->connection->Close(0, absl::CancelledError("the primary has ended the stream"));
  }

  void Send(ReplicaMessage message) override {
    World& world = shared_->options.context->world;
    shared_->queue.push_back(std::move(message));
    // Its bytes are read when it is written, which is a little later.
    world.Run(shared_->options.node,
              world.dice().Once(2) ? absl::ZeroDuration()
                                   : world.typical_delay * world.dice().Between(0, 1),
              [shared = shared_] { Write(shared); });
    if (shared_->options.context->plant != Plant::kAnswersBeforeCopy) return;
    world.Run(shared_->options.node, absl::ZeroDuration(), [shared = shared_] {
      if (!shared->ends) shared->options.receiver->Confirmed(ReplicaReceipt());
    });
  }

 private:
  struct Shared {
    explicit Shared(Options options) : options(std::move(options)) {}
    const Options options;
    std::shared_ptr<Connection> connection;
    std::deque<ReplicaMessage> queue;
    bool ends = false;
  };

  static void Write(const std::shared_ptr<Shared>& shared) {
    if (shared->ends || shared->queue.empty()) return;
    const ReplicaMessage message = std::move(shared->queue.front());
    shared->queue.pop_front();
    std::string data;
    for (const auto& segment : message.data) data.append(segment.data(), segment.size());
    shared->connection->Send(0, [shared, header = message.header, data = std::move(data)] {
      Take(shared, header, data);
    });
  }

  // At the copy's process.
  static void Take(const std::shared_ptr<Shared>& shared, const ReplicaChunk& header,
                   const std::string& data) {
    const Options& options = shared->options;
    Connection& connection = *shared->connection;
    ReplicaMessage message{.header = header};
    if (!data.empty()) message.data.emplace_back(data.data(), data.size());
    PsProcess* const process = options.context->ps(static_cast<int>(options.copy.process()));
    const absl::StatusOr<ReplicaReceipt> receipt = process->TakeReplica(
        options.slot, options.view, options.primary.incarnation(), options.number, message);
    if (!receipt.ok()) {
      connection.Close(1, receipt.status());
      return;
    }
    if (options.context->plant == Plant::kAnswersBeforeCopy) return;
    connection.Send(1, [shared, receipt = *receipt] {
      if (!shared->ends) shared->options.receiver->Confirmed(receipt);
    });
  }

  const std::shared_ptr<Shared> shared_;
};

}  // namespace

PsProcess::PsProcess(Context* context, int index, NodeRef node, uint64_t incarnation)
    : context_(*context),
      index_(index),
      node_(node),
      incarnation_(incarnation),
      storage_(context->disk.Mount(node)),
      link_(context->coordinator()->MakeLink(node)),
      dice_(context->scenario.seed ^ incarnation) {
  SlotHost::Options options;
  options.config = &context_.config;
  options.self = IdOf(index, incarnation);
  options.clock = &context_.world.clock(node_.node);
  options.has_views = true;
  options.transport = this;
  options.agreements = this;
  options.storage = context_.scenario.has_checkpoints ? storage_.get() : nullptr;
  options.has_threads = false;
  options.breaks_cuts = context_.plant == Plant::kInconsistentCut;
  options.holds_roles = [this] { return HoldsRoles(); };
  options.on_primary = [this](Shard& shard) { BecamePrimary(shard); };
  options.on_state = [this] { announce_ = may_work_ = true; };
  options.observer = this;
  host_ = SlotHost::Start(options).value();
  context_.world.Run(node_, absl::ZeroDuration(), [this] {
    link_->Start({.on_view = [this](const View& view) { OnView(view); },
                  .on_end =
                      [this](const absl::Status& reason) {
                        context_.exit(node_.node, std::string(reason.message()));
                      }});
    if (context_.scenario.etcd) StandForElection();
    Tick();
  });
}

void PsProcess::StandForElection() {
  auto& etcd = static_cast<EtcdHost&>(*context_.coordinator());
  candidate_ = std::make_unique<ViewCandidate>(ViewCandidate::Options{
      .config = &context_.config,
      .process = index_,
      .resume = etcd.resumes(),
      .etcd = std::make_shared<SimEtcdRuntime>(&context_, node_),
      .run = etcd.run(),
      .storage = storage_.get(),
      .request_shutdown = [this] {
        context_.world.Run(node_, absl::ZeroDuration(), [this] {
          static_cast<EtcdHost&>(*context_.coordinator()).CandidateFailed(candidate_->failure());
          context_.exit(node_.node, std::string(candidate_->failure().message()));
        });
      }});
}

PsProcess::~PsProcess() { streams_.clear(); }

std::optional<uint64_t> PsProcess::Changed(int index, const StoredChunk& chunk,
                                           const ChunkChange& change) {
  context_.oracle.Changed(primaries_.at(chunk.info().shard), chunk, change);
  WorkLater();
  return std::nullopt;
}

void PsProcess::BecamePrimary(Shard& shard) {
  const int slot = shard.index();
  primaries_[slot] = context_.oracle.PrimaryBegan(index_, slot, adopting_, shard.store());
  shard.OnEnd([this, ended = &shard](const absl::Status& reason) {
    const auto found = streams_.find(ended);
    if (found == streams_.end()) return;
    const auto streams = std::move(found->second);
    streams_.erase(found);
    for (const auto& weak : streams) {
      if (const auto stream = weak.lock(); stream != nullptr) stream->End(reason);
    }
  });
}

void PsProcess::OnView(const View& view) {
  adopting_ = view;
  host_->Adopt(view);
  announce_ = true;
}

void PsProcess::Announce() {
  ProcessState state = host_->State();
  if (context_.plant == Plant::kReportsFilledEarly || context_.plant == Plant::kHandsOverEarly) {
    for (int slot = 0; slot < adopting_.slot_size(); ++slot) {
      const SlotView& roles = adopting_.slot(slot);
      if (roles.primary().incarnation() != incarnation_ || !roles.has_replica()) continue;
      if (context_.plant == Plant::kReportsFilledEarly) state.add_filled(slot);
      if (context_.plant == Plant::kHandsOverEarly && roles.handing_over()) {
        state.add_handed_over(slot);
      }
    }
  }
  if (context_.plant == Plant::kHidesUnreachable) state.clear_unreachable();
  link_->Announce(state);
}

int PsProcess::slots_held() const {
  int held = 0;
  for (int slot = 0; slot < context_.config.shards(); ++slot) {
    held += host_->Primary(slot) != nullptr || host_->Copy(slot) != nullptr ? 1 : 0;
  }
  return held;
}

bool PsProcess::HoldsRoles() const {
  return context_.plant == Plant::kTrustsLease || link_->HoldsRoles();
}

bool PsProcess::holds_replica() const {
  for (int slot = 0; slot < context_.config.shards(); ++slot) {
    if (host_->Copy(slot) != nullptr) return true;
  }
  return false;
}

void PsProcess::AfterEvent() {
  if (std::exchange(announce_, false)) Announce();
  if (std::exchange(may_work_, false)) WorkLater();
  if (std::exchange(may_read_, false)) Read();
}

void PsProcess::OpenReader() {
  constexpr size_t kMostReaders = 3;
  const int slot = dice_.Int(0, context_.config.shards() - 1);
  const std::shared_ptr<Shard> shard = host_->Primary(slot);
  if (readers_.size() >= kMostReaders || !dice_.Once(3) || shard == nullptr) return;
  uint64_t farthest = 0;
  for (StoredChunk& chunk : shard->store().chunks()) {
    absl::ReaderMutexLock lock(&chunk.mutex);
    farthest = std::max(farthest, chunk.clock().iteration);
  }
  SlotReader opened{.shard = shard,
                    .primary = primaries_.at(slot),
                    .k = context_.scenario.sync ? farthest + dice_.Int(0, 2) : 0,
                    .reader = nullptr};
  if (context_.plant == Plant::kReadsWithoutSnapshot) {
    for (StoredChunk& chunk : shard->store().chunks()) {
      absl::ReaderMutexLock lock(&chunk.mutex);
      context_.oracle.WasRead(opened.primary, farthest, chunk.info().id, chunk.version(),
                              chunk.parameters());
    }
    return;
  }
  auto reader = shard->snapshots().Open(opened.k, [this] { may_read_ = true; });
  // Some chunk has passed k, the run waits for its first parameters, or the slot has moved.
  if (!reader.ok()) return;
  opened.reader = *std::move(reader);
  readers_.push_back(std::move(opened));
  may_read_ = true;
}

void PsProcess::Read() {
  std::erase_if(readers_, [this](const SlotReader& each) {
    const auto check = [&](const Snapshots::Taken& taken) {
      context_.oracle.WasRead(each.primary, each.k, taken.info.id, taken.clock.version,
                              taken.parameters);
    };
    using Progress = Snapshots::Reader::Progress;
    absl::StatusOr<Progress> progress = Progress::kTaken;
    while (progress.ok() && *progress == Progress::kTaken) progress = each.reader->Take(check);
    return !progress.ok() || *progress == Progress::kAll;
  });
}

void PsProcess::WorkLater() {
  const bool has_work = context_.scenario.has_checkpoints || context_.config.clips_mean() ||
                        context_.config.has_quorum();
  if (!has_work || std::exchange(working_, true)) return;
  World& world = context_.world;
  const absl::Duration pause = world.typical_delay * world.dice().Scale(0.1, 10);
  world.Run(node_, pause + context_.disk.Lag(node_.node), [this] {
    working_ = false;
    if (host_->Work()) WorkLater();
  });
}

void PsProcess::Tick() {
  host_->Tick();
  WorkLater();
  for (int slot = 0; slot < context_.config.shards(); ++slot) {
    if (const auto shard = host_->Primary(slot); shard != nullptr) shard->CheckWaits();
  }
  OpenReader();
  announce_ = true;
  context_.world.Run(node_, kTick, [this] { Tick(); });
}

absl::StatusOr<std::shared_ptr<Shard>> PsProcess::PrimaryOf(int slot) const {
  std::shared_ptr<Shard> shard = host_->Primary(slot);
  if (shard != nullptr) return shard;
  return absl::UnavailableError(absl::StrCat("ps ", index_, " is not primary of slot ", slot));
}

absl::StatusOr<JoinResponse> PsProcess::Join(int slot, const JoinRequest& request) {
  ASSIGN_OR_RETURN(const std::shared_ptr<Shard> shard, PrimaryOf(slot));
  JoinRequest sent = request;
  if (context_.plant == Plant::kIgnoresViews) sent.set_view(shard->view());
  return shard->Join(sent, "simulated");
}

absl::Status PsProcess::Leave(int slot, const LeaveRequest& request) {
  ASSIGN_OR_RETURN(const std::shared_ptr<Shard> shard, PrimaryOf(slot));
  return shard->Leave(request);
}

absl::StatusOr<std::vector<PsProcess::Pulled>> PsProcess::Pull(int slot, uint32_t rank) {
  ASSIGN_OR_RETURN(const std::shared_ptr<Shard> shard, PrimaryOf(slot));
  std::vector<Pulled> pulled;
  for (StoredChunk& chunk : shard->store().chunks()) {
    absl::ReaderMutexLock lock(&chunk.mutex);
    if (!shard->IsConfirmed(chunk.info().id)) return absl::UnavailableError("not confirmed yet");
    const auto parameters = chunk.parameters();
    chunk.sent().Note(rank);
    pulled.push_back({.chunk = chunk.info().id,
                      .version = chunk.version(),
                      .iteration = chunk.clock().iteration,
                      .data = std::string(reinterpret_cast<const char*>(parameters.data()),
                                          parameters.size() * sizeof(float))});
  }
  return pulled;
}

std::shared_ptr<PushStream> PsProcess::OpenStream(int slot, uint32_t rank, uint64_t incarnation,
                                                  std::shared_ptr<Connection> connection) {
  const absl::StatusOr<std::shared_ptr<Shard>> shard = PrimaryOf(slot);
  if (!shard.ok()) {
    connection->Close(1, shard.status());
    return nullptr;
  }
  const absl::StatusOr<std::shared_ptr<WorkerSession>> session =
      (*shard)->OpenStream(rank, incarnation);
  if (!session.ok()) {
    connection->Close(1, session.status());
    return nullptr;
  }
  auto stream = std::make_shared<PushStream>(PushStream::Options{.context = &context_,
                                                                 .connection = connection,
                                                                 .shard = *shard,
                                                                 .session = *session,
                                                                 .primary = primaries_.at(slot),
                                                                 .node = node_});
  // The connection keeps the stream.
  connection->OnBroken(1, [stream](const absl::Status& status) { stream->End(status); });
  streams_[shard->get()].push_back(stream);
  return stream;
}

std::unique_ptr<ReplicaStream> PsProcess::Open(int slot, int /*lane*/, uint64_t view,
                                               const ProcessId& primary, const ProcessId& copy,
                                               ReplicaStream::Receiver* receiver) {
  return std::make_unique<SimReplicaStream>(SimReplicaStream::Options{.context = &context_,
                                                                      .node = node_,
                                                                      .slot = slot,
                                                                      .view = view,
                                                                      .primary = primary,
                                                                      .copy = copy,
                                                                      .number = primaries_.at(slot),
                                                                      .receiver = receiver});
}

void PsProcess::Report(const ProcessId& decider, const AgreementReport& report,
                       AgreementDecider::Answer answer) {
  World& world = context_.world;
  const std::shared_ptr<Connection> connection =
      world.Connect(node_, world.Ref(static_cast<int>(decider.process())));
  // The answer or the connection's end, whichever comes first.
  auto once = std::make_shared<AgreementDecider::Answer>(std::move(answer));
  const auto finish = [once, report,
                       plant = context_.plant](absl::StatusOr<AgreementAnswer> result) {
    if (plant == Plant::kMixesSets && result.ok() && report.quorum().has_iteration()) {
      for (const uint32_t rank : report.quorum().arrived()) {
        result->mutable_quorum()->set_counted_before(static_cast<int>(rank),
                                                     result->quorum().iteration() + 1);
      }
    }
    if (const auto waits = std::exchange(*once, nullptr); waits) waits(result);
  };
  connection->OnBroken(0, [finish](const absl::Status& status) {
    finish(absl::UnavailableError(status.message()));
  });
  connection->Send(0, [context = &context_, connection, finish, report,
                       process = static_cast<int>(decider.process())] {
    context->ps(process)->host_->TakeReport(
        report, [connection, finish](const absl::StatusOr<AgreementAnswer>& result) {
          connection->Send(1, [connection, finish, result] {
            finish(result);
            connection->Close(0, absl::CancelledError("the report is answered"));
          });
        });
  });
}

absl::StatusOr<ReplicaReceipt> PsProcess::TakeReplica(int slot, uint64_t view, uint64_t sender,
                                                      int number, const ReplicaMessage& message) {
  const std::shared_ptr<SlotReplica> copy = host_->Copy(slot);
  if (copy == nullptr) return absl::UnavailableError("it has no copy of the slot");
  if (context_.plant == Plant::kIgnoresViews) {
    view = adopting_.number();
    sender = adopting_.slot(slot).primary().incarnation();
  }
  ReplicaMessage taken = message;
  if (context_.plant == Plant::kForgetsNorms) taken.header.clear_squared_norm();
  if (context_.plant == Plant::kForgetsSets) taken.header.clear_quorum();
  if (context_.plant == Plant::kForgetsSent) taken.header.clear_sent_to();
  ASSIGN_OR_RETURN(ReplicaReceipt receipt, copy->Take(view, sender, taken));
  ParameterStore& store = copy->store();
  context_.oracle.CopyConfirmed(number, store.chunks()[store.IndexOf(message.header.chunk())]);
  return receipt;
}

}  // namespace evenshard
