// A push-pull, step by step:
//   1. Begin marks every chunk as not yet exchanged. PushChunks queues chunks for the streams of
//      their shards: all at once (PushPull), or layer by layer as the gradients are ready (Push).
//      Under FULL, when all are queued, those that have not left are sorted in the order in which
//      the next forward pass needs them. An earlier layer does not overtake others before that:
//      each worker would leave other chunks behind, and a shard answers a chunk when it has it from
//      all of them.
//   2. A ShardStream takes the next chunk when the one before has passed flow control.
//      GradientMessage lends the gradient's own memory to gRPC (LentMemory), or encodes it.
//   3. The shard answers (server/exchange_stream.cc). TakeParameters copies or decodes the received
//      pieces to their final place and marks the chunk as answered. If the shard shares the
//      worker's buffers, it reads and writes there, and the messages of steps 2 and 3 are headers.
//   4. AwaitLayer returns when the layer's chunks are answered. When all chunks are answered,
//      AwaitLayer and AwaitAll also wait until gRPC has given all memory back.

#include "worker/exchange/exchange.h"

#include <algorithm>
#include <cstring>
#include <functional>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/base/incarnation.h"
#include "common/base/status_macros.h"
#include "common/base/text.h"
#include "common/net/channel_options.h"
#include "common/net/same_host.h"
#include "common/wire/encoding.h"
#include "common/wire/message_slices.h"
#include "spdlog/spdlog.h"
#include "worker/exchange/shard_control.h"

namespace ps {
namespace {

// Runs `call(shard)` for every shard at the same time. Returns all errors in one message, with the
// code of the first.
absl::Status ForEachShard(int shards, const std::function<absl::Status(int)>& call) {
  std::vector<absl::Status> results(shards, absl::UnknownError("the call did not run"));
  std::vector<std::thread> threads;
  for (int shard = 0; shard < shards; ++shard) {
    threads.emplace_back([&, shard] { results[shard] = call(shard); });
  }
  for (std::thread& thread : threads) thread.join();
  absl::Status first;
  std::vector<absl::string_view> messages;
  for (const absl::Status& result : results) {
    if (result.ok()) continue;
    first.Update(result);
    messages.push_back(result.message());
  }
  return first.ok() ? first : absl::Status(first.code(), absl::StrJoin(messages, "; "));
}

// Returns the shards' addresses: those `given`, or the config's if none are given.
std::vector<std::string> AddressesOf(const Config& config, const std::vector<std::string>& given) {
  if (!given.empty()) return given;
  std::vector<std::string> addresses;
  for (int shard = 0; shard < config.shards(); ++shard) addresses.push_back(config.address(shard));
  return addresses;
}

const Clock& ClockOf(const Exchange::Options& options) {
  static const RealClock system;
  return options.clock == nullptr ? system : *options.clock;
}

// Returns `buffers`, or null if they cannot be shared.
const Exchange::Buffers* IfShared(const Exchange::Buffers* buffers) {
  const bool shared = buffers != nullptr && !buffers->gradients.place().name().empty() &&
                      !buffers->parameters.place().name().empty();
  return shared ? buffers : nullptr;
}

}  // namespace

void LogStall(const Stall& stall) {
  if (!stall.is_news) return;
  const std::string lasted = absl::FormatDuration(absl::Trunc(stall.lasted, absl::Seconds(1)));
  if (stall.missing.empty()) {
    spdlog::info("iteration {} goes on after {}", stall.iteration, lasted);
  } else {
    spdlog::warn("iteration {} has waited {}: {}", stall.iteration, lasted, stall.missing);
  }
}

// The connections of the worker with one shard.
struct Exchange::ShardLink {
  ShardLink(const ShardControl::Options& options, int streams) : control(options), queue(streams) {}

  ShardControl control;
  PushQueue queue;
  std::vector<std::unique_ptr<ShardStream>> streams;
  uint64_t start_iteration = 0;
  bool shares_buffers = false;  // the shard reads and writes in the worker's buffers
};

absl::StatusOr<Exchange::Buffers> Exchange::AllocateBuffers(
    const Config& config, const std::vector<std::string>& addresses) {
  const std::vector<std::string> shards = AddressesOf(config, addresses);
  const bool may_share = MayShareMemory(config.proto().exchange()) &&
                         std::any_of(shards.begin(), shards.end(), IsOfThisHost);
  Buffers buffers;
  for (FloatBuffer* buffer : {&buffers.gradients, &buffers.parameters}) {
    const int64_t floats = config.model().buffer_size();
    if (may_share) {
      absl::StatusOr<FloatBuffer> shared = FloatBuffer::AllocateShared(floats);
      if (shared.ok()) {
        *buffer = *std::move(shared);
        continue;
      }
      spdlog::warn("no shared memory: {}", std::string(shared.status().message()));
    }
    ASSIGN_OR_RETURN(*buffer, FloatBuffer::Allocate(floats));
  }
  return buffers;
}

absl::StatusOr<std::unique_ptr<Exchange>> Exchange::Connect(const Options& options) {
  std::unique_ptr<Exchange> exchange(new Exchange(options));
  if (absl::Status joined = exchange->JoinAll(); !joined.ok()) {
    exchange->Leave(joined).IgnoreError();  // the reason for leaving matters more
    return joined;
  }
  exchange->joined_all_ = true;
  return exchange;
}

void Exchange::OpenStreams(int shard) {
  const Limits& limits = config_.proto().limits();
  ShardLink& link = *links_[shard];
  ShardStream::Handler* const handler = this;
  for (int i = 0; i < limits.connections(); ++i) {
    link.streams.push_back(
        std::make_unique<ShardStream>(CreateBulkChannel(link.control.address(), limits),
                                      ShardStream::Options{.shard = shard,
                                                           .index = i,
                                                           .worker = rank_,
                                                           .incarnation = incarnation_,
                                                           .queue = &link.queue},
                                      handler));
  }
}

bool Exchange::IsSequential() const {
  return config_.proto().exchange().schedule() == ExchangeConfig::SEQUENTIAL;
}

Exchange::Exchange(const Options& options)
    : config_(*options.config),
      rank_(options.rank),
      clock_(ClockOf(options)),
      stop_(options.stop),
      on_parameters_written_(options.on_parameters_written),
      on_stall_(options.on_stall),
      shared_buffers_(IfShared(options.buffers)),
      incarnation_(NewIncarnation()),
      versions_(config_.plan().chunks().size()),
      round_(
          config_, [this](int shard) { return links_[shard]->control.name(); }, options.trace),
      on_stop_(stop_,
               [this] { round_.Fail(absl::CancelledError("the exchange was told to stop")); }) {
  const std::vector<std::string> addresses = AddressesOf(config_, options.addresses);
  for (int shard = 0; shard < config_.shards(); ++shard) {
    links_.push_back(std::make_unique<ShardLink>(ShardControl::Options{.config = &config_,
                                                                       .shard = shard,
                                                                       .address = addresses[shard],
                                                                       .rank = rank_,
                                                                       .incarnation = incarnation_,
                                                                       .clock = &clock_,
                                                                       .stop = stop_},
                                                 config_.proto().limits().connections()));
  }
  ChooseLastChunks();
  watcher_ = std::jthread([this](const std::stop_token& stop) { Watch(stop); });
}

void Exchange::ChooseLastChunks() {
  const Plan& plan = config_.plan();
  last_stream_of_chunk_.assign(plan.chunks().size(), -1);
  for (int shard = 0; IsSequential() && shard < config_.shards(); ++shard) {
    const absl::Span<const uint32_t> chunks = plan.chunks_of_shard(shard);
    const size_t streams = config_.proto().limits().connections();
    for (size_t i = 0; i < std::min(streams, chunks.size()); ++i) {
      last_stream_of_chunk_[chunks[chunks.size() - 1 - i]] = i;
    }
  }
  for (const Chunk& chunk : plan.chunks()) {
    (last_stream_of_chunk_[chunk.id] >= 0 ? last_chunks_ : other_chunks_).push_back(chunk.id);
  }
}

Exchange::~Exchange() {
  watcher_ = {};  // joined first, since it reads the links' names
  if (!leave_called_) Leave(absl::CancelledError("the worker ended")).IgnoreError();
}

void Exchange::Watch(const std::stop_token& stop) {
  while (clock_.SleepUntil(clock_.Now() + round_.watch_period(), stop)) {
    if (const std::optional<Stall> stall = round_.CheckProgress(clock_.Now()); stall.has_value()) {
      on_stall_(*stall);
    }
  }
}

absl::Status Exchange::JoinAll() {
  // The first shard decides between workers that want the same rank at the same time.
  RETURN_IF_ERROR(Join(0));
  RETURN_IF_ERROR(ForEachShard(
      config_.shards(), [this](int shard) { return shard == 0 ? absl::OkStatus() : Join(shard); }));
  const auto [least, most] = std::minmax_element(
      links_.begin(), links_.end(),
      [](const auto& a, const auto& b) { return a->start_iteration < b->start_iteration; });
  // A worker that was lost in the middle of an iteration has pushed it to some shards only.
  if ((*most)->start_iteration > (*least)->start_iteration + 1) {
    return absl::FailedPreconditionError(
        absl::StrCat("the shards are not of one run: ", (*most)->control.name(),
                     " has taken this worker's iterations before ", (*most)->start_iteration, ", ",
                     (*least)->control.name(), " those before ", (*least)->start_iteration,
                     "; start all shards again"));
  }
  start_iteration_ = static_cast<int64_t>((*most)->start_iteration);
  return absl::OkStatus();
}

absl::Status Exchange::Join(int shard) {
  ShardLink& link = *links_[shard];
  const absl::Time deadline =
      clock_.Now() + absl::Seconds(config_.proto().limits().startup_seconds());
  RETURN_IF_ERROR(link.control.AwaitUp(deadline));
  // Open the streams first, so that the shard notices if this worker dies from the moment at which
  // it holds the rank.
  OpenStreams(shard);
  RETURN_IF_ERROR(link.control.Named(link.streams[0]->AwaitOpen(deadline - clock_.Now(), stop_)));

  SharedBuffers offered;
  const bool offers = shared_buffers_ != nullptr && MayShareMemory(config_.proto().exchange()) &&
                      IsOfThisHost(link.control.address());
  if (offers) {
    *offered.mutable_gradients() = shared_buffers_->gradients.place();
    *offered.mutable_parameters() = shared_buffers_->parameters.place();
  }
  ASSIGN_OR_RETURN(const JoinResponse joined,
                   link.control.Join(offers ? &offered : nullptr, deadline));
  if (!joined.shared_buffers_refusal().empty()) {
    spdlog::info("{}: exchanging by messages: {}", link.control.name(),
                 Printable(joined.shared_buffers_refusal()));
  }
  link.start_iteration = joined.start_iteration();
  link.shares_buffers = joined.shared_buffers();
  return absl::OkStatus();
}

std::vector<Crew> Exchange::crews() const {
  std::vector<Crew> crews(1);
  for (int rank = 0; rank < config_.workers(); ++rank) crews[0].add_rank(rank);
  return crews;
}

absl::StatusOr<int64_t> Exchange::Resume() {
  return absl::FailedPreconditionError("a run without views does not go back");
}

absl::Status Exchange::Pull(absl::Span<float> parameters) {
  return ForEachShard(config_.shards(), [&](int shard) {
    return links_[shard]->control.Pull([&](const Chunk& chunk, const ParameterChunk& message) {
      std::memcpy(parameters.data() + chunk.model_offset, message.data().data(),
                  message.data().size());
      versions_[chunk.id] = message.version();
      on_parameters_written_(chunk.model_offset, chunk.size);
      return absl::OkStatus();
    });
  });
}

absl::Status Exchange::PushPull(int64_t iteration, absl::Span<const float> gradients,
                                absl::Span<float> parameters) {
  RETURN_IF_ERROR(Begin(iteration, gradients, parameters));
  PushChunks(other_chunks_);
  if (!last_chunks_.empty()) {
    RETURN_IF_ERROR(round_.AwaitSent());
    PushChunks(last_chunks_);
  }
  return AwaitAll();
}

absl::Status Exchange::Begin(int64_t iteration, absl::Span<const float> gradients,
                             absl::Span<float> parameters) {
  if (shared_buffers_ != nullptr &&
      (parameters.data() != shared_buffers_->parameters.span().data() ||
       (!gradients.empty() && gradients.data() != shared_buffers_->gradients.span().data()))) {
    return absl::InvalidArgumentError(
        "the exchange was given other buffers than those that it shares with shards");
  }
  RETURN_IF_ERROR(round_.Begin(iteration));
  iteration_ = iteration;
  unpushed_ = config_.plan().chunks().size();
  gradients_ = gradients;
  parameters_ = parameters;
  return absl::OkStatus();
}

void Exchange::Push(int layer) {
  const Layer& pushed = config_.model().layers()[layer];
  std::vector<uint32_t> chunks;
  for (int i = 0; i < pushed.tensor_count; ++i) {
    const auto of_tensor = config_.plan().chunks_of_tensor(pushed.first_tensor + i);
    chunks.insert(chunks.end(), of_tensor.begin(), of_tensor.end());
  }
  PushChunks(chunks);
}

void Exchange::PushChunks(absl::Span<const uint32_t> chunks) {
  const ExchangeConfig& exchange = config_.proto().exchange();
  round_.Pushed(chunks);
  for (const uint32_t id : chunks) {
    const Chunk& chunk = config_.plan().chunks()[id];
    PushQueue& queue = links_[chunk.shard]->queue;
    if (last_stream_of_chunk_[id] >= 0) {
      queue.PushLast(last_stream_of_chunk_[id], id);
    } else {
      queue.Push(id);
    }
    traffic_.bytes_in += EncodedBytes(exchange.parameter_encoding(), chunk.size);
    if (!gradients_.empty()) {
      traffic_.bytes_out += EncodedBytes(exchange.gradient_encoding(), chunk.size);
    }
  }
  traffic_.pushes += chunks.size();
  unpushed_ -= chunks.size();
  const bool prioritises = exchange.schedule() == ExchangeConfig::FULL && unpushed_ == 0;
  for (const auto& link : links_) {
    if (prioritises) link->queue.Prioritise();
    for (const auto& stream : link->streams) stream->Wake();
  }
}

absl::Status Exchange::AwaitLayer(int layer) {
  RETURN_IF_ERROR(round_.AwaitLayer(layer));
  return round_.AllAnswered() ? AwaitLent() : absl::OkStatus();
}

absl::Status Exchange::AwaitAll() {
  RETURN_IF_ERROR(round_.AwaitAll());
  return AwaitLent();
}

absl::Status Exchange::AwaitLent() {
  // Every chunk was answered, so gRPC gives its memory back at once.
  if (lent_.AwaitAll(round_.limit())) return absl::OkStatus();
  return absl::InternalError("gRPC has not given back gradients that were answered");
}

grpc::ByteBuffer Exchange::GradientMessage(uint32_t chunk_id) {
  const Chunk& chunk = config_.plan().chunks()[chunk_id];
  const Encoding encoding = config_.proto().exchange().gradient_encoding();
  GradientHeader header{.worker = static_cast<uint32_t>(rank_),
                        .incarnation = incarnation_,
                        .iteration = iteration_,
                        .chunk = chunk_id,
                        .base_version = versions_[chunk_id],
                        .skip = gradients_.empty(),
                        .encoding = encoding,
                        .hold = IsSequential() && last_stream_of_chunk_[chunk_id] < 0};
  const bool is_sent = !header.skip && !links_[chunk.shard]->shares_buffers;
  const EncodedHeader encoded =
      EncodeHeader(header, is_sent ? EncodedBytes(encoding, chunk.size) : 0);
  grpc::Slice slices[2] = {grpc::Slice(encoded.data(), encoded.size())};
  if (!is_sent) return grpc::ByteBuffer(slices, 1);
  const absl::Span<const float> gradient = gradients_.subspan(chunk.model_offset, chunk.size);
  slices[1] = encoding == FLOAT32 ? lent_.Lend(gradient) : EncodedSlice(encoding, gradient);
  return grpc::ByteBuffer(slices, 2);
}

absl::Status Exchange::CheckParameters(const Chunk& chunk,
                                       const Decoded<ParameterHeader>& answer) const {
  const Encoding encoding = config_.proto().exchange().parameter_encoding();
  if (answer.header.encoding != encoding) {
    return absl::InternalError(
        absl::StrCat("it answered chunk ", chunk.id, " as ", EncodingName(answer.header.encoding),
                     "; the run's exchange.parameter_encoding is ", EncodingName(encoding)));
  }
  const size_t bytes = SegmentsSize(answer.data);
  const size_t expected =
      links_[chunk.shard]->shares_buffers ? 0 : EncodedBytes(encoding, chunk.size);
  if (bytes != expected) {
    return absl::InternalError(absl::StrCat("it answered chunk ", chunk.id, " with ", bytes,
                                            " bytes instead of ", expected));
  }
  if (encoding == FLOAT32) return absl::OkStatus();
  // The shard encodes any value, so a parameter that the encoding cannot represent shows up here as
  // one that is not finite.
  const int64_t bad = FindNonFinite(encoding, answer.data);
  if (bad < 0) return absl::OkStatus();
  return absl::OutOfRangeError(
      absl::StrCat("it answered with a parameter that is not finite", RangeOf(encoding), ": ",
                   config_.model().tensors()[chunk.tensor].name, " element ", chunk.begin + bad,
                   " (chunk ", chunk.id, ")"));
}

absl::Status Exchange::TakeParameters(int shard, const Segments& message) {
  ASSIGN_OR_RETURN(const Decoded<ParameterHeader> decoded, DecodeParameterChunk(message));
  const ParameterHeader& header = decoded.header;
  const std::vector<Chunk>& chunks = config_.plan().chunks();
  if (header.chunk >= chunks.size() || chunks[header.chunk].shard != shard ||
      !round_.Awaits(header.chunk, header.iteration)) {
    return absl::InternalError(absl::StrCat("it answered chunk ", header.chunk, " of iteration ",
                                            header.iteration, ", which was not asked for"));
  }
  const Chunk& chunk = chunks[header.chunk];
  RETURN_IF_ERROR(CheckParameters(chunk, decoded));
  Decode(config_.proto().exchange().parameter_encoding(), decoded.data,
         parameters_.data() + chunk.model_offset);
  on_parameters_written_(chunk.model_offset, chunk.size);
  versions_[chunk.id] = header.version;
  round_.Answered(chunk.id);
  return absl::OkStatus();
}

void Exchange::StreamEnded(int shard, const absl::Status& status) {
  // Before Leave, a stream ends without an error only if the shard goes away.
  const bool silent = status.ok() || absl::IsCancelled(status);
  round_.Fail(links_[shard]->control.Named(
      silent ? absl::UnavailableError("it ended the exchange without a reason") : status));
}

absl::Status Exchange::Report(const WorkerUsage& usage, const std::stop_token& stop) {
  return links_[0]->control.Report(usage, stop);
}

absl::Status Exchange::SendLeave(const absl::Status& outcome, absl::Duration timeout) {
  return ForEachShard(config_.shards(), [&](int shard) {
    return links_[shard]->control.Leave(outcome, /*before_start=*/!joined_all_, timeout);
  });
}

absl::Status Exchange::Leave(const absl::Status& outcome) {
  leave_called_ = true;
  const absl::Status told = SendLeave(outcome, ShardControl::kTimeout);
  for (const auto& link : links_) {
    if (outcome.ok() && link->control.has_left()) {
      for (const auto& stream : link->streams) stream->Close();
    }
    link->streams.clear();  // closes the connections, so that gRPC gives its memory back
  }
  if (!lent_.AwaitAll(ShardControl::kTimeout)) {
    spdlog::error("gRPC still holds gradient memory {} after its connections were closed",
                  absl::FormatDuration(ShardControl::kTimeout));
  }
  return told;
}

}  // namespace ps
