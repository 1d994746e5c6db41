#include "common/placement/simulator/shard_network.h"

#include <limits>

namespace evenshard {
namespace {

std::vector<double> WorkerLinks(const ShardNetwork::Options& options) {
  std::vector<double> rates;
  for (const int rank : options.representatives->ranks) {
    rates.push_back(options.rates->worker_link[rank]);
  }
  return rates;
}

// Passes on what is said of the links of shards only.
Fabric::BusyCallback OfShards(const Fabric::BusyCallback& busy, int shards) {
  if (!busy) return nullptr;
  return [busy, shards](int link, double begin, double end) {
    if (link < shards) busy(link, begin, end);
  };
}

}  // namespace

ShardNetwork::ShardNetwork(const Options& options, EventQueue* events) {
  if (options.colocated) {
    ConnectHosts(options, events);
  } else {
    ConnectSeparately(options, events);
  }
  pushes_ = fabrics_.front().get();
  replies_ = fabrics_.back().get();
}

void ShardNetwork::ConnectSeparately(const Options& options, EventQueue* events) {
  const std::vector<double> shards(options.rates->shard_link.size(), 1);
  fabrics_.push_back(std::make_unique<Fabric>(
      Fabric::Options{.source_rates = WorkerLinks(options),
                      .destination_rates = options.rates->shard_link,
                      .source_members = options.representatives->members,
                      .destination_members = shards,
                      .chunk_bytes = options.gradient_bytes,
                      .window = options.window,
                      .latency_seconds = options.rates->latency_seconds,
                      .lead_bytes = std::vector<double>(shards.size(), options.lead_bytes),
                      .delivered = options.pushed,
                      .destination_busy = options.shard_in},
      events));
  fabrics_.push_back(std::make_unique<Fabric>(
      Fabric::Options{.source_rates = options.rates->shard_link,
                      .destination_rates = WorkerLinks(options),
                      .source_members = shards,
                      .destination_members = options.representatives->members,
                      .chunk_bytes = options.parameter_bytes,
                      .window = options.window,
                      .latency_seconds = options.rates->latency_seconds,
                      .by_priority = std::vector<bool>(options.representatives->members.size(),
                                                       options.replies_by_priority),
                      .delivered = [replied = options.replied](
                                       int shard, int worker,
                                       uint32_t chunk) { replied(worker, shard, chunk); },
                      .source_busy = options.shard_out},
      events));
}

void ShardNetwork::ConnectHosts(const Options& options, EventQueue* events) {
  const std::vector<double>& workers = options.representatives->members;
  const int shards = static_cast<int>(options.rates->shard_link.size());
  first_worker_ = shards;
  first_reply_ = static_cast<uint32_t>(options.gradient_bytes.size());
  // Shards, and behind them workers.
  std::vector<double> members(shards, 1);
  members.insert(members.end(), workers.begin(), workers.end());
  std::vector<int> links;
  for (int shard = 0; shard < shards; ++shard) links.push_back(shard);
  for (size_t worker = 0; worker < workers.size(); ++worker) links.push_back(worker);
  std::vector<double> lead_bytes(shards, options.lead_bytes);
  lead_bytes.resize(members.size(), std::numeric_limits<double>::infinity());
  std::vector<bool> by_priority(shards, false);
  by_priority.resize(members.size(), options.replies_by_priority);
  // Gradients, and behind them parameters.
  std::vector<double> bytes = options.gradient_bytes;
  bytes.insert(bytes.end(), options.parameter_bytes.begin(), options.parameter_bytes.end());
  fabrics_.push_back(std::make_unique<Fabric>(
      Fabric::Options{
          .source_rates = WorkerLinks(options),
          .destination_rates = WorkerLinks(options),
          .source_members = workers,
          .destination_members = std::move(members),
          .destination_links = std::move(links),
          .chunk_bytes = std::move(bytes),
          .window = options.window,
          .latency_seconds = options.rates->latency_seconds,
          .by_priority = std::move(by_priority),
          .lead_bytes = std::move(lead_bytes),
          .delivered =
              [pushed = options.pushed, replied = options.replied, shards,
               first_reply = first_reply_](int source, int destination, uint32_t chunk) {
                if (destination < shards) {
                  pushed(source, destination, chunk);
                } else {
                  replied(destination - shards, source, chunk - first_reply);
                }
              },
          .source_busy = OfShards(options.shard_out, shards),
          .destination_busy = OfShards(options.shard_in, shards)},
      events));
}

LinkUse ShardNetwork::shard_link(int shard) const {
  return {pushes_->destination_bytes()[shard], replies_->source_bytes()[shard]};
}

LinkUse ShardNetwork::worker_link(int worker) const {
  return {replies_->destination_bytes()[worker], pushes_->source_bytes()[worker]};
}

}  // namespace evenshard
