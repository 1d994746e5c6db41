// An iteration, step by step:
//   1. Begin and Push tell the RingRound, which queues the segments whose sums begin here.
//   2. A RingSender takes the next segment when the one before has passed flow control
//      (NextMessage). It lends the gradients' and the parameters' own memory to gRPC.
//   3. The successor's RingReceiver hands what it received to its round, which adds its gradient
//      and queues the sum, and so on, until the worker whose part the segment is has the whole sum.
//      That worker's RingPart applies the optimizer.
//   4. The parameters travel the same way, from the worker whose part they are to the one before
//      it.
//   5. AwaitLayer returns when the layer's parameters are there, AwaitAll when all are and
//      everything that this worker passes on has left.

#include "worker/ring/grpc/ring_exchange.h"

#include <algorithm>
#include <array>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/base/error_kind.h"
#include "common/base/incarnation.h"
#include "common/base/status_macros.h"
#include "common/checkpoint/checkpoint_id.h"
#include "common/checkpoint/checkpoint_reader.h"
#include "common/checkpoint/initial_parameters.h"
#include "common/checkpoint/storage/real_storage.h"
#include "common/net/channel_options.h"
#include "common/net/introduction.h"
#include "common/net/status_conversion.h"
#include "common/net/stoppable_call.h"
#include "common/net/unix_socket.h"
#include "common/process/open_files.h"
#include "common/wire/chunk_codec.h"
#include "common/wire/encoding.h"
#include "grpcpp/client_context.h"
#include "spdlog/spdlog.h"

namespace evenshard {
namespace {

// A wait for a neighbour that takes longer than this is worth a line in the log.
constexpr absl::Duration kQuietWait = absl::Seconds(3);
constexpr absl::Duration kStopPeriod = absl::Milliseconds(50);
constexpr absl::Duration kIntroduction = absl::Seconds(5);

std::chrono::system_clock::time_point After(absl::Duration timeout) {
  return absl::ToChronoTime(absl::Now() + timeout);
}

std::vector<int> RanksOf(const RingExchange::Options& options) {
  std::vector<int> ranks = options.start.ranks;
  for (int rank = 0; rank < options.config->workers() && options.start.ranks.empty(); ++rank) {
    ranks.push_back(rank);
  }
  return ranks;
}

}  // namespace

RingExchange::RingExchange(const Options& options, RingPlan plan)
    : options_(options),
      config_(*options.config),
      ranks_(RanksOf(options)),
      place_(
          static_cast<int>(std::find(ranks_.begin(), ranks_.end(), options.rank) - ranks_.begin())),
      successor_(ranks_[(place_ + 1) % ranks_.size()]),
      predecessor_(ranks_[(place_ + ranks_.size() - 1) % ranks_.size()]),
      incarnation_(NewIncarnation()),
      started_(options.clock->Now()),
      plan_(std::move(plan)),
      notes_(ranks_) {}

absl::StatusOr<std::unique_ptr<RingExchange>> RingExchange::Connect(const Options& options) {
  const PlannedConfig& config = *options.config;
  const int64_t connections = config.proto().limits().connections() + 1;
  RETURN_IF_ERROR(ReserveOpenFiles(
      connections + Listener::FilesFor(connections, config.proto().ring().address(options.rank),
                                       config.proto()),
      "connections to both neighbours"));
  RingPlan::Options plan_options = RingPlan::OptionsOf(config.proto());
  if (!options.start.ranks.empty()) {
    plan_options.workers = static_cast<int>(options.start.ranks.size());
  }
  ASSIGN_OR_RETURN(RingPlan plan, RingPlan::Create(config.model(), plan_options));
  std::unique_ptr<RingExchange> exchange(new RingExchange(options, std::move(plan)));
  ASSIGN_OR_RETURN(exchange->part_, RingPart::Create({.config = &config,
                                                      .plan = &exchange->plan_,
                                                      .place = exchange->place_,
                                                      .rank = options.rank}));
  exchange->MakeRound();
  absl::Status ready = exchange->Start();
  if (ready.ok()) return exchange;
  // A neighbour may have ended because of it.
  if (const std::string refusal = exchange->service_->refusal(); !refusal.empty()) {
    ready = Reworded(ready, absl::StrCat(ready.message(), "; before that, ", refusal));
  }
  exchange->Leave(ready).IgnoreError();
  return ready;
}

void RingExchange::MakeRound() {
  round_ = std::make_unique<RingRound>(
      RingRound::Options{.config = &config_,
                         .plan = &plan_,
                         .part = part_.get(),
                         .place = place_,
                         .rank = options_.rank,
                         .first_iteration = static_cast<uint64_t>(options_.start.iteration),
                         .predecessor = NameOf(predecessor_),
                         .wake =
                             [this](RingWay way, int stream) {
                               if (!is_connected_) return;
                               const int first = way == RingWay::kReduce ? 0 : Connections();
                               senders_[first + stream]->Wake();
                             },
                         .on_parameters_written = options_.on_parameters_written,
                         .while_waiting = options_.while_waiting});
  tensors_ = std::make_unique<RingTensors>(RingTensors::Options{.config = &config_,
                                                                .plan = &plan_,
                                                                .round = round_.get(),
                                                                .rank = options_.rank,
                                                                .gradients = options_.gradients,
                                                                .parameters = options_.parameters});
  service_ = std::make_unique<RingService>(
      RingService::Options{.config = &config_,
                           .plan = &plan_,
                           .rank = options_.rank,
                           .predecessor = predecessor_,
                           .generation = options_.start.generation,
                           .round = round_.get(),
                           .on_lost = [this] { Lost(predecessor_, "its connection has ended"); },
                           .on_finished =
                               [this] {
                                 round_->PredecessorFinished();
                                 CheckOthers().IgnoreError();
                               },
                           .on_note = [this](const RingNote& note) { return TakeNote(note); },
                           .on_news = [this](const absl::Status& news) { Fail(news); },
                           .on_failure = [this] { SpreadFailure(); },
                           .waits = [this] { return round_->waits() || notes_.awaits(); },
                           .stats = [this] { return Stats(); }});
  on_stop_.emplace(options_.stop, [this] { round_->Fail(absl::CancelledError("told to stop")); });
}

std::string RingExchange::NameOf(int rank) const {
  return absl::StrCat("worker ", rank, " (", config_.proto().ring().address(rank), ")");
}

absl::Status RingExchange::OfSuccessor(const absl::Status& error) const {
  // News of a run that has failed name the worker themselves.
  if (KindOf(error) == ErrorDetail::RUN_FAILED) return error;
  return Reworded(error, absl::StrCat(NameOf(successor_), ": ", error.message()));
}

absl::Status RingExchange::Start() {
  RETURN_IF_ERROR(Listen());
  held_ = std::jthread([this] {
    while (round_->ReduceHeld()) {
    }
    SpreadFailure();
  });
  watcher_ = std::jthread([this](const std::stop_token& stop) { Watch(stop); });
  const absl::Duration patience = absl::Seconds(config_.proto().limits().startup_seconds());
  RETURN_IF_ERROR(AwaitUp(patience));
  RETURN_IF_ERROR(Join());
  RETURN_IF_ERROR(OpenStreams(patience));
  RETURN_IF_ERROR(service_->AwaitPredecessor(patience, options_.stop));
  return AwaitRing(patience);
}

absl::Status RingExchange::Listen() {
  const std::string& address = config_.proto().ring().address(options_.rank);
  for (const int rank : {options_.rank, successor_}) {
    if (!absl::EndsWith(config_.proto().ring().address(rank), ":0")) continue;
    return config_.FieldError(
        absl::StrCat("ring.address[", rank, "]"),
        absl::StrCat("is \"", config_.proto().ring().address(rank),
                     "\", and others must find it, allowed: a port above 0, or a start by launch, "
                     "which chooses one"));
  }
  grpc::ServerBuilder builder;
  SetServerOptions(config_.proto(), /*chunks=*/1, &builder);
  builder.RegisterService(service_.get());
  ASSIGN_OR_RETURN(listener_, Listener::Start(&builder, address, config_.proto(),
                                              absl::StrCat("worker ", options_.rank)));
  listening_ = listener_.get();
  return absl::OkStatus();
}

absl::Status RingExchange::AwaitUp(absl::Duration patience) {
  control_ = CreateChannel(config_.proto().ring().address(successor_), config_.proto(),
                           {.role = Role::kWorker, .index = successor_});
  stub_ = Ring::NewStub(control_);
  const absl::Time start = options_.clock->Now();
  bool logged = false;
  while (!control_->WaitForConnected(After(kStopPeriod))) {
    if (options_.stop.stop_requested()) return absl::CancelledError("told to stop");
    RETURN_IF_ERROR(round_->failure());
    const absl::Duration waited = options_.clock->Now() - start;
    if (waited >= patience) {
      return absl::DeadlineExceededError(absl::StrCat(NameOf(successor_), " is not up after ",
                                                      absl::FormatDuration(patience),
                                                      " (limits.startup_seconds)"));
    }
    if (!logged && waited > kQuietWait) spdlog::info("waiting for {}", NameOf(successor_));
    logged |= waited > kQuietWait;
  }
  RETURN_IF_ERROR(CheckUnixPeer(config_.proto().ring().address(successor_)));
  // A Join has the names of all tensors that workers bring.
  Introduce(control_, kIntroduction, [this] { return !round_->failure().ok(); });
  return absl::OkStatus();
}

absl::Status RingExchange::Join() {
  RingJoinRequest request;
  request.set_worker(options_.rank);
  request.set_successor(successor_);
  request.set_incarnation(incarnation_);
  request.set_protocol_version(kProtocolVersion);
  request.set_plan_version(kRingPlanVersion);
  request.set_config_fingerprint(config_.fingerprint());
  request.set_plan_fingerprint(plan_.fingerprint());
  request.set_generation(options_.start.generation);
  if (config_.is_from_workers()) *request.mutable_declaration() = config_.declaration();
  grpc::ClientContext context;
  context.set_deadline(After(absl::Seconds(config_.proto().limits().startup_seconds())));
  // gRPC tells that it is connected a moment before its calls know, and until then they fail with
  // the reason why it was not.
  context.set_wait_for_ready(true);
  RingJoinResponse response;
  const absl::Status joined = FromGrpc(StoppableCall(
      &context,
      [&](std::function<void(grpc::Status)> done) {
        stub_->async()->Join(&context, &request, &response, std::move(done));
      },
      [this] { return !round_->failure().ok(); }));  // a stop fails the round too
  RETURN_IF_ERROR(round_->failure());
  if (!joined.ok()) return OfSuccessor(joined);
  has_joined_ = true;
  return absl::OkStatus();
}

absl::Status RingExchange::OpenStreams(absl::Duration patience) {
  std::vector<std::shared_ptr<grpc::Channel>> channels;
  for (const RingWay way : {RingWay::kReduce, RingWay::kGather}) {
    for (int stream = 0; stream < Connections(); ++stream) {
      // A connection has one stream of each way: a sum that waits does not hold parameters up.
      if (way == RingWay::kReduce) {
        channels.push_back(CreateBulkChannel(config_.proto().ring().address(successor_),
                                             config_.proto(),
                                             {.role = Role::kWorker, .index = successor_}));
      }
      senders_.push_back(std::make_unique<RingSender>(
          channels[stream],
          RingSender::Options{
              .way = way, .stream = stream, .worker = options_.rank, .incarnation = incarnation_},
          this));
    }
  }
  const absl::Time start = options_.clock->Now();
  const auto check = [&]() -> absl::Status {  // a stop fails the round too
    RETURN_IF_ERROR(round_->failure());
    if (options_.clock->Now() - start < patience) return absl::OkStatus();
    return absl::DeadlineExceededError(absl::StrCat(
        "has taken no stream for ", absl::FormatDuration(patience), " (limits.startup_seconds)"));
  };
  for (const auto& sender : senders_) {
    const absl::Status open = sender->AwaitOpen(check);
    if (!open.ok()) return OfSuccessor(open);
  }
  is_connected_ = true;
  // What has been received meanwhile may have to leave.
  for (const auto& sender : senders_) sender->Wake();
  return absl::OkStatus();
}

RingExchange::~RingExchange() {
  const bool has_begun = round_ != nullptr;  // Connect has had memory for the part
  if (has_begun && !leave_called_) Leave(absl::CancelledError("the worker ended")).IgnoreError();
}

std::vector<WorkerSet> RingExchange::worker_sets() const {
  WorkerSet all;
  for (const int rank : ranks_) all.add_rank(rank);
  return {all};
}

absl::StatusOr<int64_t> RingExchange::Resume() {
  return absl::FailedPreconditionError("a run in a ring does not go back");
}

absl::Status RingExchange::Pull(absl::Span<float> parameters) {
  // Initialize has given them, and all workers have the same ones.
  if (config_.is_from_workers()) return absl::OkStatus();
  RETURN_IF_ERROR(options_.start.checkpoint.empty() ? MakeInitial(parameters)
                                                    : ReadCheckpoint(parameters));
  options_.on_parameters_written(0, static_cast<int64_t>(parameters.size()));
  return absl::OkStatus();
}

absl::Status RingExchange::MakeInitial(absl::Span<float> parameters) {
  RealStorage storage;
  ASSIGN_OR_RETURN(const std::unique_ptr<const InitialParameters> initial,
                   InitialParameters::Open(&storage, config_));
  for (size_t i = 0; i < config_.model().tensors().size(); ++i) {
    const Tensor& tensor = config_.model().tensors()[i];
    RETURN_IF_ERROR(
        initial->Fill(static_cast<int>(i), 0, parameters.subspan(tensor.offset, tensor.size)));
  }
  return part_->Start(parameters);
}

absl::Status RingExchange::ReadCheckpoint(absl::Span<float> parameters) {
  const std::string& name = options_.start.checkpoint;
  const std::optional<CheckpointId> id = ParseCheckpointId(name);
  if (!id.has_value()) {
    return absl::InvalidArgumentError(absl::StrCat("\"", name, "\" is no checkpoint of this run"));
  }
  RealStorage storage;
  ASSIGN_OR_RETURN(const std::unique_ptr<CheckpointReader> checkpoint,
                   CheckpointReader::Open(
                       &storage, config_.proto().recovery().checkpoint().folder(), config_, *id));
  return part_->Restore(*checkpoint, parameters);
}

absl::Status RingExchange::PushPull(int64_t iteration, absl::Span<const float> gradients,
                                    absl::Span<float> parameters) {
  RETURN_IF_ERROR(Begin(iteration, gradients, parameters));
  for (int layer = static_cast<int>(config_.model().layers().size()) - 1; layer >= 0; --layer) {
    if (config_.model().layers()[layer].tensor_count == 0) continue;
    RETURN_IF_ERROR(config_.is_from_workers() ? PushTensors({&layer, 1}, Contribution::kGradient)
                                              : Push(layer));
  }
  return AwaitAll();
}

absl::Status RingExchange::Begin(int64_t iteration, absl::Span<const float> gradients,
                                 absl::Span<float> parameters) {
  if (iteration != next_iteration()) {
    return absl::FailedPreconditionError(absl::StrCat(
        "iteration ", iteration, " cannot begin, allowed: iteration ", next_iteration()));
  }
  return Begin(
      ExchangeKind{
          .skip = gradients.empty(), .weight = weight_, .hyperparameters = hyperparameters_},
      gradients, parameters);
}

absl::Status RingExchange::Begin(ExchangeKind kind, absl::Span<const float> pushed,
                                 absl::Span<float> parameters) {
  if (parameters.data() != options_.parameters.data() ||
      (!pushed.empty() && pushed.data() != options_.gradients.data())) {
    return absl::InvalidArgumentError("the exchange was given other buffers than its own");
  }
  const bool assigns = kind.assigned.has_value();
  if (assigns) kind.skip = options_.rank != 0;
  RETURN_IF_ERROR(round_->Begin(kind, options_.gradients, options_.parameters));
  tensors_->Begun(assigns);
  return CheckOthers();
}

absl::Status RingExchange::AwaitLayer(int layer) {
  RETURN_IF_ERROR(Await([&] { return round_->AwaitLayer(layer); }));
  tensors_->Awaited();
  return absl::OkStatus();
}

absl::Status RingExchange::AwaitAll() {
  RETURN_IF_ERROR(Await([&] { return round_->AwaitAll(); }));
  tensors_->Awaited();
  if (lent_.AwaitAll(round_->limit())) return absl::OkStatus();
  return absl::InternalError("gRPC has not given back memory that was sent");
}

grpc::ByteBuffer RingExchange::NormMessage(const RingRound::Outgoing& part) {
  const EncodedHeader header = EncodeListed(
      ParameterHeader{.iteration = part.iteration, .chunk = part.norm_chunk}, sizeof(part.norm));
  const std::array<grpc::Slice, 2> slices = {grpc::Slice(header.data(), header.size()),
                                             grpc::Slice(part.norm.data(), sizeof(part.norm))};
  return grpc::ByteBuffer(slices.data(), slices.size());
}

bool RingExchange::NextMessage(RingWay way, int stream, grpc::ByteBuffer* message) {
  // AwaitAll must not return between Take and Lend.
  const LentMemory::Hold hold(&lent_);
  const std::optional<RingRound::Outgoing> next = round_->Take(way, stream);
  if (!next.has_value()) return false;
  if (next->segment == nullptr) {
    *message = NormMessage(*next);
    return true;
  }
  const RingSegment& segment = *next->segment;
  const bool is_sum = way == RingWay::kReduce;
  const ExchangeConfig& exchange = config_.proto().exchange();
  const Encoding encoding = is_sum ? exchange.gradient_encoding() : exchange.parameter_encoding();
  const auto iteration = static_cast<int64_t>(next->trained);
  std::array<grpc::Slice, 2> slices;
  size_t count = 1;
  size_t bytes = 0;
  if (!next->buffer.empty()) {
    bytes = static_cast<size_t>(EncodedBytes(encoding, segment.size));
    absl::Status usable;
    if (encoding == FLOAT32) {
      if (next->is_own) usable = round_->sums().Check(segment, iteration, next->buffer);
      slices[1] =
          lent_.Lend({reinterpret_cast<const char*>(next->buffer.data() + segment.begin), bytes});
    } else {
      slices[1] = grpc::Slice(bytes);
      // Writing is safe because nobody else refers to the slice yet.
      char* const out = reinterpret_cast<char*>(const_cast<uint8_t*>(slices[1].begin()));
      if (is_sum) {
        usable = round_->sums().Encode(segment, iteration, next->is_own, next->buffer, out);
      } else {
        Encode(encoding, next->buffer.subspan(segment.begin, segment.size), out);
      }
    }
    if (!usable.ok()) {
      Fail(usable);
      return false;
    }
    ++count;
  }
  const EncodedHeader header =
      is_sum ? EncodeListed(
                   GradientHeader{.worker = static_cast<uint32_t>(options_.rank),
                                  .incarnation = incarnation_,
                                  .iteration = next->iteration,
                                  .chunk = segment.id,
                                  .base_version = next->actions.agreement,
                                  .skip = bytes == 0,
                                  .encoding = encoding,
                                  .hyperparameters = next->actions.hyperparameters,
                                  .absent = next->all_zeros,
                                  .assigned = next->actions.assigns ? std::optional<uint32_t>(0)
                                                                    : std::nullopt,
                                  .weight = bytes == 0 ? 1 : next->weight},
                   bytes)
             : EncodeListed(ParameterHeader{.iteration = next->iteration,
                                            .chunk = segment.id,
                                            .encoding = encoding,
                                            .unchanged = bytes == 0,
                                            .all_absent = next->all_zeros},
                            bytes);
  slices[0] = grpc::Slice(header.data(), header.size());
  *message = grpc::ByteBuffer(slices.data(), count);
  return true;
}

}  // namespace evenshard
