#include "common/placement/simulator/worker_model.h"

#include <utility>

#include "common/placement/simulator/local_passes.h"

namespace evenshard {
namespace {

// Each chunk has a part of one tensor.
std::vector<WorkerModel::Layers::Range> LayersOfChunks(const PlannedRun& run) {
  std::vector<WorkerModel::Layers::Range> of_chunk(run.plan.chunks().size());
  for (int index = 0; index < static_cast<int>(run.model.layers().size()); ++index) {
    const Layer& layer = run.model.layers()[index];
    for (int i = 0; i < layer.tensor_count; ++i) {
      for (const uint32_t chunk : run.plan.chunks_of_tensor(layer.first_tensor + i)) {
        of_chunk[chunk] = {index, index};
      }
    }
  }
  return of_chunk;
}

}  // namespace

WorkerModel::Layers::Layers(const PlannedRun& run, absl::Span<const LayerTime> layer_times)
    : Layers(run, layer_times, LayersOfChunks(run)) {}

WorkerModel::Layers::Layers(const PlannedRun& run, absl::Span<const LayerTime> layer_times,
                            std::vector<Range> units_layers)
    : config(&run.config),
      schedule(run.config.exchange().schedule()),
      pushes_at_end(schedule == ExchangeConfig::SEQUENTIAL || run.config.has_local()),
      times(layer_times.begin(), layer_times.end()),
      leaving(layer_times.size()),
      units(layer_times.size()),
      of_unit(std::move(units_layers)) {
  for (const LayerTime& time : layer_times) {
    pass_seconds += time.forward_seconds + time.backward_seconds;
  }
  for (size_t unit = 0; unit < of_unit.size(); ++unit) {
    leaving[of_unit[unit].first].push_back(static_cast<uint32_t>(unit));
    for (int layer = of_unit[unit].first; layer <= of_unit[unit].last; ++layer) {
      if (run.model.layers()[layer].tensor_count > 0) ++units[layer];
    }
  }
}

WorkerModel::WorkerModel(const Layers& layers, int rank, double slowdown, EventQueue* events,
                         Network* network)
    : layers_(layers),
      rank_(rank),
      slowdown_(slowdown),
      alone_seconds_((LocalPasses(*layers.config, slowdown * layers.pass_seconds) - 1) * slowdown *
                     layers.pass_seconds),
      events_(events),
      network_(network),
      layer_unanswered_(layers.times.size()) {}

void WorkerModel::Advance() {
  const int layers = layers_.times.size();
  while (true) {
    double seconds = 0;
    if (phase_ == Phase::kForward) {
      if (layer_ == layers) {
        if (!has_next_) return;
        phase_ = Phase::kAlone;
        continue;
      }
      if (layers_.schedule == ExchangeConfig::FULL && layer_unanswered_[layer_] > 0) return;
      seconds = layers_.times[layer_].forward_seconds * slowdown_;
    } else if (phase_ == Phase::kAlone) {
      seconds = alone_seconds_;
    } else if (phase_ == Phase::kBackward) {
      if (layer_ < 0) {
        EndCompute();
        continue;
      }
      seconds = layers_.times[layer_].backward_seconds * slowdown_;
    } else {
      return;
    }
    if (seconds > 0) {
      computing_ = true;
      events_->At(events_->now() + seconds, this, 0, 0);
      return;
    }
    EndLayer();
  }
}

void WorkerModel::OnEvent(int, int) {
  computing_ = false;
  EndLayer();
  Advance();
}

void WorkerModel::EndLayer() {
  if (phase_ == Phase::kForward) {
    ++layer_;
  } else if (phase_ == Phase::kAlone) {
    BeginExchange();
  } else {
    if (!layers_.pushes_at_end) PushLayer(layer_);
    --layer_;
  }
}

void WorkerModel::BeginExchange() {
  ++iteration_;
  layer_unanswered_ = layers_.units;
  unpushed_ = unanswered_ = layers_.of_unit.size();
  phase_ = Phase::kBackward;
  layer_ = layers_.times.size() - 1;
}

void WorkerModel::PushLayer(int layer) {
  for (const uint32_t unit : layers_.leaving[layer]) network_->Push(rank_, unit);
}

void WorkerModel::EndCompute() {
  if (layers_.pushes_at_end) {
    for (size_t layer = 0; layer < layers_.leaving.size(); ++layer) PushLayer(layer);
  }
  if (layers_.schedule == ExchangeConfig::FULL) network_->Prioritise(rank_);
  // All may be back already: the first layers may have no parameters, and computed meanwhile.
  const bool goes_on = layers_.schedule == ExchangeConfig::FULL || (unanswered_ == 0 && has_next_);
  phase_ = goes_on ? Phase::kForward : Phase::kAwait;
  layer_ = 0;
}

void WorkerModel::Pushed() {
  if (--unpushed_ > 0) return;
  for (const uint32_t chunk : std::exchange(held_replies_, {})) network_->Reply(rank_, chunk);
}

void WorkerModel::Reply(uint32_t chunk) {
  if (layers_.schedule == ExchangeConfig::SEQUENTIAL && unpushed_ > 0) {
    held_replies_.push_back(chunk);
  } else {
    network_->Reply(rank_, chunk);
  }
}

void WorkerModel::Answered(uint32_t unit) {
  bool next_is_back = false;
  const Layers::Range range = layers_.of_unit[unit];
  for (int layer = range.first; layer <= range.last; ++layer) {
    if (layers_.units[layer] == 0) continue;
    next_is_back |= --layer_unanswered_[layer] == 0 && layer == layer_;
  }
  if (--unanswered_ == 0) {
    has_next_ = network_->Ended(rank_, iteration_);
    if (phase_ == Phase::kAwait && has_next_) phase_ = Phase::kForward;
  } else if (phase_ != Phase::kForward || !next_is_back) {
    return;
  }
  if (!computing_) Advance();
}

}  // namespace evenshard
