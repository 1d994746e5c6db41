#include "tests/fuzz/ps_core.h"

#include <functional>
#include <iterator>

#include "absl/base/casts.h"
#include "absl/strings/str_cat.h"
#include "common/wire/chunk_codec.h"
#include "common/wire/encoding.h"
#include "tests/fuzz/fuzzing.h"

namespace evenshard {
namespace {

ProcessId Process(uint32_t index, uint64_t incarnation) {
  ProcessId id;
  id.set_process(index);
  id.set_incarnation(incarnation);
  id.set_address(absl::StrCat("127.0.0.1:", 7001 + index));
  return id;
}

}  // namespace

FuzzedPs::FuzzedPs(const FuzzedRun* run, FuzzedDataProvider* input)
    : run_(*run), config_(run->config), input_(*input) {
  SlotHost::Options options;
  options.config = &config_;
  options.self = Process(0, kSelf);
  options.clock = &clock_;
  options.has_views = run_.has_views;
  options.transport = run_.has_views ? this : nullptr;
  options.agreements = this;
  options.has_threads = false;
  auto host = SlotHost::Start(options);
  Require(host.ok(), host.status().message());
  host_ = *std::move(host);
  if (!run_.has_views) return;
  view_.set_number(1);
  view_.set_generation(1);
  view_.set_run(77);
  WorkerSet* const worker_set = view_.add_worker_set();
  for (int rank = 0; rank < config_.workers(); ++rank) {
    worker_set->add_rank(rank);
    WorkerView* const worker = view_.add_worker();
    worker->set_state(WorkerView::MEMBER);
    worker->set_incarnation(++incarnations_);
  }
  SlotView* const own = view_.add_slot();
  *own->mutable_primary() = Process(0, kSelf);
  *own->mutable_replica() = Process(1, kOther);
  SlotView* const others = view_.add_slot();
  *others->mutable_primary() = Process(1, kOther);
  *others->mutable_replica() = Process(0, kSelf);
  host_->Adopt(view_);
}

FuzzedPs::~FuzzedPs() {
  readers_.clear();
  for (auto& [rank, stream] : streams_) CloseStream(stream);
  streams_.clear();
  host_.reset();
  for (const AgreementDecider::Answer& answer : asked_) answer(absl::CancelledError("the end"));
}

std::unique_ptr<ReplicaStream> FuzzedPs::Open(int, int, uint64_t, const ProcessId&,
                                              const ProcessId&, ReplicaStream::Receiver* receiver) {
  return std::make_unique<ToReplica>(&to_replica_, receiver);
}

void FuzzedPs::Report(const ProcessId&, const AgreementReport&, AgreementDecider::Answer answer) {
  asked_.push_back(std::move(answer));
}

void FuzzedPs::Step() {
  constexpr int kChanges = 3;
  const std::function<void()> what[] = {
      [this] { Join(Rank(), kChanges); },
      [this] { Push(Rank(), kChanges); },
      [this] { Train(kChanges); },
      [this] { Leave(Rank()); },
      [this] { AskFor(Rank()); },
      [this] { WriteToMemory(); },
      [this] {
        if (const auto closed = streams_.extract(Rank()); !closed.empty()) {
          CloseStream(closed.mapped());
        }
      },
      [this] { Pull(); },
      [this] { Snapshot(); },
      [this] { ReadOn(); },
      [this] { CheckStats(); },
      [this] { Agree(kChanges); },
      [this] { Replicate(); },
      [this] { Confirm(); },
      [this] { Adopt(kChanges); },
      [this] { PassTime(absl::Seconds(input_.ConsumeIntegralInRange(0, 70))); },
  };
  what[input_.ConsumeIntegralInRange<size_t>(0, std::size(what) - 1)]();
}

void FuzzedPs::Join(uint32_t rank, int changes) {
  JoinRequest request;
  request.set_worker(rank);
  request.set_incarnation(run_.has_views ? view_.worker(static_cast<int>(rank)).incarnation()
                                         : ++incarnations_);
  request.set_config_fingerprint(config_.fingerprint());
  request.set_plan_fingerprint(config_.plan().fingerprint());
  request.set_plan_version(kPlanVersion);
  request.set_protocol_version(kProtocolVersion);
  request.set_view(view_.number());
  for (const Encoding encoding : {FLOAT16, BFLOAT16, INT8, INT4, E3M0}) {
    request.add_encodings(encoding);
  }
  if (input_.ConsumeIntegralInRange(0, 3) == 0) Offer(&request);
  Vary(input_, changes, &request);
  const std::shared_ptr<Shard> shard = this->shard();
  if (shard == nullptr || !shard->Join(request, "the fuzzer").ok()) return;
  const auto session = shard->OpenStream(request.worker(), request.incarnation());
  if (!session.ok()) return;
  Stream& stream = streams_[request.worker()];
  if (stream.session != nullptr) CloseStream(stream);
  stream = {shard, *session, std::make_shared<FuzzedSink>(shard, *session)};
}

void FuzzedPs::Offer(JoinRequest* request) {
  const Model& model = config_.model();
  const auto floats = model.parameter_bytes() / static_cast<int64_t>(sizeof(float));
  auto gradients = FloatBuffer::AllocateShared(model.buffer_size());
  auto parameters = FloatBuffer::AllocateShared(floats);
  Require(gradients.ok() && parameters.ok(), "shared memory");
  *request->mutable_shared_buffers()->mutable_gradients() = gradients->place();
  *request->mutable_shared_buffers()->mutable_parameters() = parameters->place();
  memory_.push_back({*std::move(gradients), *std::move(parameters)});
}

void FuzzedPs::WriteToMemory() {
  for (Memory& memory : memory_) {
    for (float& value : memory.gradients.span()) {
      value = absl::bit_cast<float>(input_.ConsumeIntegral<uint32_t>());
    }
  }
}

GradientChunk FuzzedPs::GradientOf(const Stream& stream, StoredChunk& chunk) {
  const uint32_t rank = stream.session->rank();
  absl::ReaderMutexLock lock(&chunk.mutex);
  const ChunkClock& clock = chunk.clock();
  GradientChunk gradient;
  gradient.set_worker(rank);
  gradient.set_incarnation(stream.session->incarnation());
  gradient.set_iteration(clock.next_iteration.empty() ? clock.iteration
                                                      : clock.next_iteration[rank]);
  gradient.set_chunk(chunk.info().id);
  gradient.set_base_version(clock.version);
  gradient.set_view(view_.number());
  const Encoding encoding = config_.GradientEncoding(/*assigned=*/false, chunk.info());
  gradient.set_encoding(encoding);
  if (stream.session->buffers() != nullptr) return gradient;
  const std::vector<float> values(chunk.info().size, 0.5F);
  std::string data(EncodedBytes(encoding, chunk.info().size), '\0');
  Encode(encoding, values, data.data());
  gradient.set_data(std::move(data));
  return gradient;
}

void FuzzedPs::Push(uint32_t rank, int changes) {
  const auto found = streams_.find(rank);
  if (found == streams_.end()) return;
  Stream& stream = found->second;
  GradientChunks message;
  for (int count = input_.ConsumeIntegralInRange(1, 3); count > 0; --count) {
    const size_t last = stream.shard->store().chunks().size() - 1;
    StoredChunk& chunk =
        stream.shard->store().chunks()[input_.ConsumeIntegralInRange<size_t>(0, last)];
    GradientChunk& gradient = *message.add_chunk();
    gradient = GradientOf(stream, chunk);
    Vary(input_, changes, &gradient);
  }
  Send(stream, message);
}

void FuzzedPs::Send(Stream& stream, const GradientChunks& message) {
  const auto bytes = std::make_shared<const std::string>(message.SerializeAsString());
  const auto chunks = DecodeGradientChunks({*bytes});
  Require(chunks.ok(), "a message of generated code is decoded");
  for (const Decoded<GradientHeader>& chunk : *chunks) {
    stream.sink->Owe(chunk.header.chunk, chunk.header.base_version);
  }
  for (const Decoded<GradientHeader>& chunk : *chunks) {
    Shard& shard = *stream.shard;
    const absl::Status pushed =
        stream.session->buffers() == nullptr
            ? shard.Push(*stream.session, {chunk.header, chunk.data, bytes}, stream.sink)
            : shard.PushShared(*stream.session, chunk.header, stream.sink);
    // A refused push ends its stream.
    if (!pushed.ok()) {
      CloseStream(stream);
      streams_.erase(stream.session->rank());
      return;
    }
  }
  Work();
}

void FuzzedPs::Train(int changes) {
  for (uint32_t rank = 0; rank < static_cast<uint32_t>(config_.workers()); ++rank) {
    const std::shared_ptr<Shard> shard = this->shard();
    const size_t chunks = shard == nullptr ? 0 : shard->store().chunks().size();
    for (size_t i = 0; i < chunks; ++i) {
      const auto found = streams_.find(rank);
      if (found == streams_.end() || found->second.shard != shard) break;
      GradientChunks message;
      *message.add_chunk() = GradientOf(found->second, shard->store().chunks()[i]);
      // One change for all, so that the workers of an iteration may agree on what is unusual.
      if (changes > 0 && i == 0) Vary(input_, 1, message.mutable_chunk(0));
      Send(found->second, message);
    }
  }
}

void FuzzedPs::CloseStream(Stream& stream) { stream.shard->CloseStream(stream.session.get()); }

void FuzzedPs::Leave(uint32_t rank) {
  const auto found = streams_.find(rank);
  if (found == streams_.end()) return;
  LeaveRequest request;
  request.set_worker(rank);
  request.set_incarnation(found->second.session->incarnation());
  request.set_view(view_.number());
  Vary(input_, 2, &request);
  (void)found->second.shard->Leave(request);
}

void FuzzedPs::AskFor(uint32_t rank) {
  const auto found = streams_.find(rank);
  if (found == streams_.end()) return;
  const std::shared_ptr<Shard> shard = found->second.shard;
  const auto ask = [&](auto request, auto method) {
    request.set_worker(rank);
    request.set_incarnation(found->second.session->incarnation());
    if constexpr (requires { request.set_generation(1); }) {
      request.set_generation(view_.generation());
    }
    Vary(input_, 4, &request);
    (void)(shard.get()->*method)(request);
  };
  switch (input_.ConsumeIntegralInRange(0, 5)) {
    case 0:
      return ask(ReportRequest(), &Shard::Report);
    case 1:
      return ask(MeanRequest(), &Shard::Mean);
    case 2:
      return ask(KeepStateRequest(), &Shard::KeepState);
    case 3:
      return ask(TakeStateRequest(), &Shard::TakeState);
    case 4:
      return ask(AskWorkerStateRequest(), &Shard::AskWorkerState);
    default:
      return ask(OfferWorkerStateRequest(), &Shard::OfferWorkerState);
  }
}

}  // namespace evenshard
