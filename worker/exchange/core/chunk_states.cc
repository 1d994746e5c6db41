#include "worker/exchange/core/chunk_states.h"

#include <algorithm>
#include <numeric>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/wire/encoding.h"

namespace evenshard {
namespace {

constexpr size_t kMostNamed = 3;  // shards in a line

}  // namespace

ChunkStates::ChunkStates(const PlannedConfig* config, const SchedulePolicy* schedule, Trace* trace)
    : config_(*config),
      plan_(config->plan()),
      schedule_(*schedule),
      trace_(trace),
      layer_of_chunk_(plan_.chunks().size()),
      states_(plan_.chunks().size(), State::kAnswered),
      again_(plan_.chunks().size()),
      versions_(plan_.chunks().size()),
      former_versions_(plan_.chunks().size()),
      pulled_at_(plan_.chunks().size()),
      pushed_(config->model().tensors().size()),
      contributions_(pushed_.size()),
      all_absent_(pushed_.size()),
      tensor_unanswered_(pushed_.size()) {
  for (const Layer& layer : config->model().layers()) {
    size_t chunks = 0;
    for (int i = 0; i < layer.tensor_count; ++i) {
      for (const uint32_t chunk : plan_.chunks_of_tensor(layer.first_tensor + i)) {
        layer_of_chunk_[chunk] = static_cast<int>(layer_chunks_.size());
        ++chunks;
      }
    }
    layer_chunks_.push_back(chunks);
  }
  layer_unanswered_.resize(layer_chunks_.size());
}

void ChunkStates::Begin(uint64_t iteration, bool skip, bool assigns) {
  iteration_ = iteration;
  states_.assign(states_.size(), State::kBegun);
  skip_ = skip;
  assigns_ = assigns;
  again_.assign(again_.size(), false);
  pushed_.assign(pushed_.size(), false);
  all_absent_.assign(all_absent_.size(), true);
  layer_unqueued_ = layer_unsent_ = layer_unanswered_ = layer_chunks_;
  for (size_t tensor = 0; tensor < pushed_.size(); ++tensor) {
    tensor_unanswered_[tensor] = plan_.chunks_of_tensor(static_cast<int>(tensor)).size();
  }
  unpushed_tensors_ = pushed_.size();
  unanswered_ = states_.size();
  if (!skip && !assigns) NoteStaleness();
}

void ChunkStates::NoteStaleness() {
  uint64_t updates = 1;  // since the last gradient's parameters, its own included
  for (size_t chunk = 0; chunk < versions_.size(); ++chunk) {
    // A slot's next process may lack updates of others.
    if (versions_[chunk] <= former_versions_[chunk]) continue;
    updates = std::max(updates, versions_[chunk] - former_versions_[chunk]);
  }
  if (!has_trained_) updates = config_.workers();
  has_trained_ = true;
  staleness_ = static_cast<uint32_t>(updates - 1);
  former_versions_ = versions_;
}

void ChunkStates::Reset() {
  states_.assign(states_.size(), State::kAnswered);
  versions_.assign(versions_.size(), 0);
  former_versions_.assign(former_versions_.size(), 0);
  all_absent_.assign(all_absent_.size(), false);
  waiting_.clear();
  layer_unanswered_.assign(layer_unanswered_.size(), 0);
  tensor_unanswered_.assign(tensor_unanswered_.size(), 0);
  unpushed_tensors_ = unsent_ = unanswered_ = 0;
  has_trained_ = false;
}

void ChunkStates::Push(int tensor, Contribution contribution) {
  pushed_[tensor] = true;
  contributions_[tensor] = skip_ ? Contribution::kNothing : contribution;
  --unpushed_tensors_;
  for (const uint32_t chunk : plan_.chunks_of_tensor(tensor)) {
    states_[chunk] = State::kPushed;
    waiting_.push_back(chunk);
    const Chunk& each = plan_.chunks()[chunk];
    ++traffic_.pushes;
    if (contributions_[tensor] == Contribution::kGradient) {
      traffic_.bytes_out += EncodedBytes(encoding(chunk), each.size);
    }
  }
}

std::vector<uint32_t> ChunkStates::Release() {
  std::vector<uint32_t> released =
      schedule_.Release(waiting_, /*all_pushed=*/unpushed_tensors_ == 0, /*all_sent=*/unsent_ == 0);
  for (const uint32_t chunk : released) Queue(chunk);
  return released;
}

void ChunkStates::Queue(uint32_t chunk) {
  states_[chunk] = State::kQueued;
  ++unsent_;
  const int layer = layer_of_chunk_[chunk];
  const size_t before = layer_unqueued_[layer]--;
  if (trace_ != nullptr && before == layer_chunks_[layer]) {
    trace_->Begin("push", layer, iteration_);
  }
}

std::vector<uint32_t> ChunkStates::QueueAgain(int shard) {
  std::vector<uint32_t> chunks;
  for (const uint32_t chunk : plan_.chunks_of_shard(shard)) {
    if (!IsPending(chunk)) continue;
    again_[chunk] = true;
    chunks.push_back(chunk);
  }
  return chunks;
}

void ChunkStates::MarkSent(uint32_t chunk) {
  if (states_[chunk] != State::kQueued) return;
  states_[chunk] = State::kSent;
  const int layer = layer_of_chunk_[chunk];
  if (--layer_unsent_[layer] == 0 && trace_ != nullptr) trace_->End("push", layer, iteration_);
  --unsent_;
}

void ChunkStates::Claim(uint32_t chunk, bool all_absent, int64_t bytes) {
  MarkSent(chunk);
  traffic_.bytes_in += bytes;
  if (!all_absent) all_absent_[plan_.chunks()[chunk].tensor] = false;
  states_[chunk] = State::kClaimed;
}

void ChunkStates::Answer(uint32_t chunk, uint64_t version) {
  states_[chunk] = State::kAnswered;
  const Chunk& answered = plan_.chunks()[chunk];
  versions_[chunk] = version;
  --unanswered_;
  --tensor_unanswered_[answered.tensor];
  const int layer = layer_of_chunk_[chunk];
  const size_t before = layer_unanswered_[layer]--;
  if (trace_ == nullptr) return;
  if (before == layer_chunks_[layer]) trace_->Begin("pull", layer, iteration_);
  if (before == 1) trace_->End("pull", layer, iteration_);
}

void ChunkStates::GiveUp() {
  for (const uint32_t chunk : waiting_) Queue(chunk);
  waiting_.clear();
  for (const Chunk& chunk : plan_.chunks()) {
    if (!IsPending(chunk.id)) continue;
    Claim(chunk.id, /*all_absent=*/false, /*bytes=*/0);
    Answer(chunk.id, versions_[chunk.id]);
  }
}

size_t ChunkStates::unanswered_of_tensors(int begin, int end) const {
  if (static_cast<size_t>(end - begin) == tensor_unanswered_.size()) return unanswered_;
  return std::accumulate(tensor_unanswered_.begin() + begin, tensor_unanswered_.begin() + end,
                         size_t{0});
}

std::string ChunkStates::Missing(int begin, int end,
                                 const std::function<std::string(int shard)>& shard_name) const {
  // Under SEQUENTIAL no shard answers while the last chunks wait for others to be sent.
  const bool is_for_sent = has_waiting();
  std::vector<std::string> shards;
  for (int shard = 0; shard < config_.shards(); ++shard) {
    size_t missing = 0;
    size_t awaited = 0;
    for (const uint32_t chunk : plan_.chunks_of_shard(shard)) {
      const int tensor = plan_.chunks()[chunk].tensor;
      if (!is_for_sent && (tensor < begin || tensor >= end)) continue;
      ++awaited;
      missing +=
          states_[chunk] == State::kQueued || (!is_for_sent && states_[chunk] != State::kAnswered);
    }
    if (missing == 0) continue;
    shards.push_back(absl::StrCat(shard_name(shard), " has not ",
                                  is_for_sent ? "taken " : "answered ", missing, " of ", awaited,
                                  " chunks"));
  }
  const size_t named = std::min(shards.size(), kMostNamed);
  const size_t others = shards.size() - named;
  shards.resize(named);
  return absl::StrCat(absl::StrJoin(shards, ", "),
                      others == 0 ? "" : absl::StrCat(", nor have ", others, " other shards"));
}

size_t ChunkStates::PulledAfter(uint64_t iteration) const {
  return std::count_if(pulled_at_.begin(), pulled_at_.end(),
                       [iteration](uint64_t at) { return at > iteration; });
}

size_t ChunkStates::ChunksAfter(uint64_t version) const {
  return std::count_if(versions_.begin(), versions_.end(),
                       [version](uint64_t held) { return held > version; });
}

}  // namespace evenshard
