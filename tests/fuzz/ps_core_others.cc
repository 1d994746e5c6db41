// What readers, other shards, the coordinator and time do to a ps process.

#include <algorithm>

#include "common/wire/non_finite.h"
#include "tests/fuzz/fuzzing.h"
#include "tests/fuzz/ps_core.h"

namespace evenshard {

void FuzzedPs::Pull() {
  PullRequest request;
  request.set_plan_fingerprint(config_.plan().fingerprint());
  Vary(input_, 3, &request);
  if (shard() == nullptr) return;
  const auto source = PullSource(shard(), request);
  if (!source.ok()) return;
  for (auto next = (*source)->TakeNext(); next.ok() && next->message.has_value();
       next = (*source)->TakeNext()) {
    (void)Parsed<ParameterChunk>(*next->message);
  }
}

void FuzzedPs::Snapshot() {
  constexpr size_t kMostReaders = 4;
  if (readers_.size() >= kMostReaders) readers_.erase(readers_.begin());
  SnapshotRequest request;
  request.set_plan_fingerprint(config_.plan().fingerprint());
  request.set_iteration(input_.ConsumeIntegralInRange(0, 4));
  Vary(input_, 2, &request);
  if (shard() == nullptr) return;
  auto source = SnapshotSource(shard(), request, [] {});
  if (source.ok()) readers_.push_back(*std::move(source));
}

void FuzzedPs::ReadOn() {
  std::erase_if(readers_, [](const std::unique_ptr<ChunkSource>& reader) {
    const auto next = reader->TakeNext();
    if (!next.ok()) return true;
    if (next->message.has_value()) (void)Parsed<ParameterChunk>(*next->message);
    return next->is_end;
  });
}

void FuzzedPs::CheckStats() {
  const auto stats = host_->Stats(0);
  if (!stats.ok()) return;
  ShardStats sum;
  for (const WorkerStats& worker : stats->worker()) {
    sum.set_pushes(sum.pushes() + worker.pushes());
    sum.set_repeated_pushes(sum.repeated_pushes() + worker.repeated_pushes());
    sum.set_skipped_pushes(sum.skipped_pushes() + worker.skipped_pushes());
    sum.set_bytes_in(sum.bytes_in() + worker.bytes_in());
  }
  Require(sum.pushes() == stats->pushes() && sum.repeated_pushes() == stats->repeated_pushes() &&
              sum.skipped_pushes() == stats->skipped_pushes() &&
              sum.bytes_in() == stats->bytes_in(),
          "the statistics of the workers add up to those of the shard");
}

void FuzzedPs::CheckFinite() {
  const std::shared_ptr<Shard> shard = this->shard();
  if (shard == nullptr || shard->has_failed()) return;
  for (StoredChunk& chunk : shard->store().chunks()) {
    absl::ReaderMutexLock lock(&chunk.mutex);
    Require(FindNonFinite(chunk.parameters().data(), chunk.info().size) < 0,
            "parameters are finite");
  }
}

void FuzzedPs::Agree(int changes) {
  // A slot that lies can hold the run up for ever, and sensible workers could not go on.
  if (!run_.has_views) changes = 0;
  AgreementReport report;
  report.set_config_fingerprint(config_.fingerprint());
  report.set_view(view_.number());
  report.set_slot(1);
  report.set_number(++reports_);
  const std::shared_ptr<Shard> shard = this->shard();
  if (shard == nullptr) return;
  uint64_t iteration = UINT64_MAX;
  for (StoredChunk& chunk : shard->store().chunks()) {
    absl::ReaderMutexLock lock(&chunk.mutex);
    iteration = std::min(iteration, chunk.clock().iteration);
  }
  if (config_.has_quorum()) {
    report.mutable_quorum()->set_iteration(iteration);
    for (int rank = 0; rank < config_.workers(); ++rank) {
      report.mutable_quorum()->add_arrived(rank);
      report.mutable_quorum()->add_training(rank);
    }
  } else {
    report.mutable_part()->set_iteration(iteration);
    for (size_t i = 0; i < SquareSum::Limbs().size(); ++i) report.mutable_part()->add_limb(i == 0);
  }
  Vary(input_, changes, &report);
  host_->TakeReport(report, [](const absl::StatusOr<AgreementAnswer>&) {});
  while (!asked_.empty()) {
    AgreementAnswer answer;
    Vary(input_, changes, &answer);
    const auto answered = std::move(asked_.front());
    asked_.pop_front();
    answered(answer);
  }
  Work();
}

void FuzzedPs::Replicate() {
  const std::shared_ptr<SlotReplica> copy = host_->Copy(1);
  if (copy == nullptr) return;
  const size_t last = copy->store().chunks().size() - 1;
  StoredChunk& chunk = copy->store().chunks()[input_.ConsumeIntegralInRange<size_t>(0, last)];
  ReplicaChunk header;
  const bool is_state = input_.ConsumeBool();
  std::string data;
  {
    absl::ReaderMutexLock lock(&chunk.mutex);
    const ChunkClock& clock = chunk.clock();
    header.set_view(view_.number());
    header.set_chunk(chunk.info().id);
    header.set_is_state(is_state);
    header.set_scale(1);
    if (is_state) {
      header.set_version(clock.version + 1);
      header.set_iteration(clock.iteration + 1);
      for (const uint64_t next : clock.next_iteration) header.add_next_iteration(next);
      for (const uint64_t version : chunk.sent().versions()) header.add_sent_version(version + 1);
      const size_t arrays = chunk.arrays() + chunk.sent().workers();
      data.resize(arrays * chunk.info().size * sizeof(float));
    } else {
      header.set_version(clock.version + 1);
      const bool is_async = !clock.next_iteration.empty();
      if (is_async) header.set_worker(Rank());
      header.set_iteration(1 +
                           (is_async ? clock.next_iteration[header.worker()] : clock.iteration));
      data.resize(chunk.info().size * sizeof(float));
    }
  }
  Vary(input_, 3, &header);
  if (input_.ConsumeIntegralInRange(0, 3) == 0) {
    data.resize(input_.ConsumeIntegralInRange<size_t>(0, 2 * data.size()));
  }
  ReplicaMessage message{.header = header};
  if (!data.empty()) message.data.emplace_back(data);
  (void)copy->Take(view_.number(), kOther, message);
}

void FuzzedPs::Confirm() {
  for (ToReplica* const stream : std::vector<ToReplica*>(to_replica_)) {
    if (std::find(to_replica_.begin(), to_replica_.end(), stream) == to_replica_.end()) continue;
    while (stream->Confirm()) {
    }
    if (input_.ConsumeIntegralInRange(0, 7) == 0) stream->Break();
  }
  Work();
}

void FuzzedPs::Adopt(int changes) {
  if (!run_.has_views) return;
  view_.set_number(view_.number() + 1);
  View told = view_;
  Vary(input_, changes, &told);
  host_->Adopt(told);
  Work();
}

void FuzzedPs::PassTime(absl::Duration duration) {
  clock_.Advance(duration);
  host_->Tick();
  if (shard() != nullptr) shard()->CheckWaits();
  Work();
}

void FuzzedPs::Work() {
  while (host_->Work()) {
  }
  for (const auto& [rank, stream] : streams_) stream.sink->SendAll();
}

void FuzzedPs::TrainOnceMore() {
  const std::shared_ptr<Shard> shard = this->shard();
  CheckFinite();
  CheckStats();
  if (shard == nullptr || run_.has_views) return;
  const auto progress = [&] {
    uint64_t least = UINT64_MAX;
    for (StoredChunk& chunk : shard->store().chunks()) {
      absl::ReaderMutexLock lock(&chunk.mutex);
      const ChunkClock& clock = chunk.clock();
      least = std::min(
          least, config_.is_synchronous()
                     ? clock.iteration
                     : *std::min_element(clock.next_iteration.begin(), clock.next_iteration.end()));
    }
    return least;
  };
  const uint64_t before = progress();
  const auto has_ended = [&] { return !shard->failure().ok() || progress() > before; };
  // After a while ranks are free whose workers have gone, and what waits for a worker that will not
  // come fails the run.
  for (const int seconds : {1, 1, 1, 61, 61, 1, 1, 61}) {
    if (has_ended()) break;
    for (uint32_t rank = 0; rank < static_cast<uint32_t>(config_.workers()); ++rank) {
      const auto found = streams_.find(rank);
      if (found == streams_.end() || !found->second.session->holds_rank()) Join(rank, 0);
    }
    Train(0);
    Agree(0);
    PassTime(absl::Seconds(seconds));
  }
  Require(has_ended(), "the run goes on, or fails");
}

}  // namespace evenshard
