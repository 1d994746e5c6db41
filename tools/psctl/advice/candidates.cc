#include "tools/psctl/advice/candidates.h"

#include <algorithm>
#include <functional>
#include <limits>
#include <set>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/config/config_contract.h"
#include "common/placement/plan/device_profile.h"
#include "common/placement/simulator/cluster_rates.h"

namespace evenshard {
namespace {

constexpr int kFirstPort = 50051;
constexpr int kManySteps = 64;
constexpr int kFewSteps = 8;
// Beside so many shards on workers' hosts, and with links of at most such a rate, one connection
// for each worker and shard was measured to be the fastest: the streams of all workers meet at each
// link, and the more of them there are, the more backs up in its queue (docs/experiment.md).
constexpr int kManyShards = 3;
constexpr double kMeasuredGbps = 10;

bool IsSyncInFloat32(const ClusterConfig& config) {
  const ExchangeConfig& exchange = config.exchange();
  return config.update().policy() == Update::SYNC && !config.has_local() &&
         exchange.gradient_encoding() == FLOAT32 && exchange.parameter_encoding() == FLOAT32 &&
         !exchange.has_update_encoding();
}

// Returns the config with the mathematics of SYNC in float32, and without places.
ClusterConfig Plain(const ClusterConfig& given) {
  ClusterConfig config = given;
  const Update& update = given.update();
  Update* const sync = config.mutable_update();
  sync->Clear();
  sync->set_policy(Update::SYNC);
  if (update.has_deterministic()) sync->set_deterministic(update.deterministic());
  if (update.has_non_finite()) sync->set_non_finite(update.non_finite());
  if (update.has_clip_value()) sync->set_clip_value(update.clip_value());
  if (update.has_clip_global_norm()) sync->set_clip_global_norm(update.clip_global_norm());
  if (update.has_max_norm()) sync->set_max_norm(update.max_norm());
  if (given.has_local()) {
    *config.mutable_optimizer() = given.local().optimizer();
    if (given.local().clip_global_norm() > 0) {
      sync->set_clip_global_norm(given.local().clip_global_norm());
    }
    config.clear_local();
  }
  // It may be false because it has to be with what is cleared.
  const bool chose_memory = given.exchange().has_shared_memory() && !NeedsMessages(given);
  config.clear_exchange();
  if (chose_memory) {
    config.mutable_exchange()->set_shared_memory(given.exchange().shared_memory());
  }
  config.clear_shard();
  config.clear_partition();
  config.clear_topology();
  config.clear_ring();
  config.clear_colocated();
  return config;
}

void SetPartition(Partition::Scheme scheme, Partition* partition) {
  partition->set_scheme(scheme);
  if (scheme == Partition::LAYER_BASED) partition->set_placement(Partition::GREEDY);
}

const char* SchemeName(Partition::Scheme scheme) {
  switch (scheme) {
    case Partition::LAYER_BASED:
      return "layer-based";
    case Partition::MEMORY_BASED:
      return "memory-based";
    default:
      return "striped";
  }
}

// The places of one cluster.
class Places {
 public:
  explicit Places(const AdviceCluster& cluster)
      : cluster_(cluster), given_(cluster.config), plain_(Plain(cluster.config)) {
    for (const ShardAddress& shard : given_.shard()) {
      fastest_ = std::max(fastest_, shard.link_gbps());
      fastest_server_ = std::max(fastest_server_, shard.server_gbps());
      if (cluster.has_file) used_.insert(shard.address());
    }
    for (const ShardAddress& spare : given_.recovery().spare()) used_.insert(spare.address());
    used_.insert(given_.ring().address().begin(), given_.ring().address().end());
    has_shard_links_ = fastest_ > 0;
    // What has no shards of its own, or shards beside workers, has links of the workers' rate.
    if (!has_shard_links_ && (given_.topology() == ClusterConfig::RING || given_.colocated())) {
      fastest_ = given_.worker_link_gbps();
    }
    others_ = given_.has_worker_link_gbps() ? given_.worker_link_gbps() : fastest_;
  }

  Candidate Alone() const {
    Candidate alone = {.kind = Candidate::Kind::kAlone, .name = "one worker alone"};
    alone.config = plain_;
    alone.config.set_workers(1);
    if (given_.has_recovery()) {
      // There is nobody to take over.
      alone.name += ", without recovery";
      alone.config.clear_recovery();
    }
    const int rank = Fastest();
    if (Compute::Emulated* device = MutableEmulatedDeviceOf(alone.config.mutable_compute())) {
      const double slowdown = WorkerSlowdown(*device, rank);
      device->clear_worker_slowdown();
      if (slowdown != 1) device->add_worker_slowdown(slowdown);
    }
    AddColocated(1, Partition::STRIPED, &alone, rank);
    return alone;
  }

  Candidate Ring() const {
    Candidate ring = {.kind = Candidate::Kind::kRing, .name = "ring"};
    ring.config = WithOneLink();
    ring.config.set_topology(ClusterConfig::RING);
    *ring.config.mutable_ring() = given_.ring();
    ring.config.mutable_ring()->clear_address();
    for (int rank = 0; rank < given_.workers(); ++rank) {
      ring.config.mutable_ring()->add_address(WorkerAddress(rank));
    }
    return ring;
  }

  Candidate Colocated(int shards, Partition::Scheme scheme) const {
    Candidate candidate = {.kind = shards == 1 ? Candidate::Kind::kOneMaster
                                               : Candidate::Kind::kColocated};
    candidate.name = shards == 1
                         ? "one master, worker 0"
                         : absl::StrCat(SchemeName(scheme), " on ", shards, " of the workers");
    if (shards == given_.workers() && shards > 1) {
      candidate.name = absl::StrCat(SchemeName(scheme), " on all workers");
    }
    candidate.config = plain_;
    AddColocated(shards, scheme, &candidate);
    return candidate;
  }

  Candidate OnServers(int shards, Partition::Scheme scheme) const {
    Candidate candidate = {.kind = Candidate::Kind::kServers, .server_hosts = shards};
    candidate.name =
        shards == 1 ? "one server" : absl::StrCat(SchemeName(scheme), " on ", shards, " servers");
    candidate.config = WithOneLink();
    SetPartition(scheme, candidate.config.mutable_partition());
    const bool is_given = cluster_.has_file && !given_.colocated();
    for (int i = 0; i < shards; ++i) {
      ShardAddress* shard = candidate.config.add_shard();
      if (is_given && i < given_.shard_size()) {
        *shard = given_.shard(i);
      } else {
        shard->set_address(LoopbackAddress(i));
        if (fastest_ > 0) shard->set_link_gbps(fastest_);
        if (is_given && fastest_server_ > 0) shard->set_server_gbps(fastest_server_);
      }
    }
    return candidate;
  }

 private:
  // Returns the worker that computes the fastest; of several the one whose host would be the
  // fastest as a shard's.
  int Fastest() const {
    const Compute::Emulated& device = EmulatedDeviceOf(given_.compute());
    const auto slowness = [&](int rank) {
      const double server_gbps = given_.colocated() && rank < given_.shard_size()
                                     ? given_.shard(rank).server_gbps()
                                     : fastest_server_;
      return std::pair(WorkerSlowdown(device, rank), server_gbps > 0 ? 1 / server_gbps : 0);
    };
    int fastest = 0;
    for (int rank = 1; rank < given_.workers(); ++rank) {
      if (slowness(rank) < slowness(fastest)) fastest = rank;
    }
    return fastest;
  }

  // A config gives one rate for the links of all workers that have no shard beside them: here that
  // of the slowest, which the others wait for.
  ClusterConfig WithOneLink() const {
    ClusterConfig config = plain_;
    if (fastest_ == 0) return config;
    if (!config.has_worker_link_gbps()) config.set_worker_link_gbps(fastest_);
    if (given_.colocated() && has_shard_links_) config.set_worker_link_gbps(SlowestFrom(0));
    return config;
  }

  // Returns the slowest link of the workers from the given rank on, of which some may have a shard
  // of the config beside them. REQUIRES: there are any.
  double SlowestFrom(int rank) const {
    double slowest = std::numeric_limits<double>::infinity();
    for (int i = rank; i < given_.workers(); ++i) {
      const bool has_own = i < given_.shard_size() && given_.shard(i).has_link_gbps();
      slowest = std::min(slowest, has_own ? given_.shard(i).link_gbps() : others_);
    }
    return slowest;
  }

  // Returns an address for what the config has none for, and which nothing of the config has.
  std::string LoopbackAddress(int index) const {
    constexpr int kMost = 1024;
    std::string address;
    for (int port = kFirstPort + index; address.empty() || used_.count(address) > 0;
         port += kMost) {
      address = absl::StrCat("127.0.0.1:", port);
    }
    return address;
  }

  // What listens on a worker's host does so at the address that the config has for that host.
  std::string WorkerAddress(int rank) const {
    if (rank < given_.ring().address_size()) return given_.ring().address(rank);
    if (given_.colocated() && rank < given_.shard_size()) return given_.shard(rank).address();
    return LoopbackAddress(rank);
  }

  // Adds shards beside workers, from the host of worker `first` on. They have the hosts' links,
  // which in a config of such shards may differ.
  void AddColocated(int shards, Partition::Scheme scheme, Candidate* candidate,
                    int first = 0) const {
    ClusterConfig* const config = &candidate->config;
    config->set_colocated(true);
    SetPartition(scheme, config->mutable_partition());
    const bool has_links = given_.colocated() && has_shard_links_;
    for (int host = first; host < first + shards; ++host) {
      ShardAddress* shard = config->add_shard();
      if (given_.colocated() && host < given_.shard_size()) {
        *shard = given_.shard(host);
        continue;
      }
      shard->set_address(WorkerAddress(host));
      if (has_links) shard->set_link_gbps(others_);
      if (given_.colocated() && fastest_server_ > 0) shard->set_server_gbps(fastest_server_);
    }
    if (!config->has_worker_link_gbps() && fastest_ > 0) config->set_worker_link_gbps(fastest_);
    if (has_links && shards < std::min(given_.shard_size(), given_.workers())) {
      // The workers that lose their shard keep their links, of which a config tells one rate.
      config->set_worker_link_gbps(SlowestFrom(shards));
    }
    const std::vector<double> links = ConfiguredRates(*config).worker_link;
    const bool is_measured = config->has_worker_link_gbps() && shards >= kManyShards &&
                             *std::max_element(links.begin(), links.end()) <= kMeasuredGbps;
    if (is_measured && !given_.limits().has_connections()) {
      config->mutable_limits()->set_connections(1);
      candidate->has_measured_connections = true;
    }
  }

  const AdviceCluster& cluster_;
  const ClusterConfig& given_;
  const ClusterConfig plain_;
  double fastest_ = 0;         // link of the config's shards, or of its workers; 0: not given
  double others_ = 0;          // link of hosts for which the config has none; 0: not given
  double fastest_server_ = 0;  // of the config's shards; 0: not given
  bool has_shard_links_ = false;
  std::set<std::string> used_;  // addresses of the config
};

bool AreWorkersEqual(const ClusterConfig& config) {
  const Compute::Emulated& device = EmulatedDeviceOf(config.compute());
  for (int rank = 1; rank < config.workers(); ++rank) {
    if (WorkerSlowdown(device, rank) != WorkerSlowdown(device, 0)) return false;
  }
  return true;
}

Candidate WithLocalSteps(const Candidate& placement, int steps) {
  Candidate candidate = placement;
  candidate.difference = absl::StrCat("local steps, H = ", steps);
  ClusterConfig& config = candidate.config;
  config.mutable_local()->set_steps(steps);
  if (config.has_optimizer()) {
    *config.mutable_local()->mutable_optimizer() = config.optimizer();
  } else {
    config.mutable_local()->mutable_optimizer()->set_kind(OptimizerConfig::SGD);
  }
  config.clear_optimizer();
  if (config.update().clip_global_norm() > 0) {
    config.mutable_local()->set_clip_global_norm(config.update().clip_global_norm());
    config.mutable_update()->clear_clip_global_norm();
  }
  return candidate;
}

}  // namespace

std::vector<Candidate> Placements(const AdviceCluster& cluster) {
  constexpr Partition::Scheme kSchemes[] = {Partition::STRIPED, Partition::MEMORY_BASED,
                                            Partition::LAYER_BASED};
  const Places places(cluster);
  const int workers = cluster.config.workers();
  std::vector<Candidate> candidates = {places.Alone()};
  if (workers > 1) candidates.push_back(places.Ring());
  // With one shard all schemes are the same.
  const auto add = [&](const std::set<int>& counts, const auto& make) {
    for (const int shards : counts) {
      for (const Partition::Scheme scheme : kSchemes) {
        if (shards > 1 || scheme == Partition::STRIPED) candidates.push_back(make(shards, scheme));
      }
    }
  };
  if (workers > 1) {
    add({1, 2, (workers + 1) / 2, workers},
        [&](int shards, Partition::Scheme scheme) { return places.Colocated(shards, scheme); });
  }
  const int hosts = cluster.server_hosts;
  std::set<int> counts;
  for (const int shards : {1, 2, (workers + 1) / 2, workers, hosts}) {
    if (shards >= 1 && shards <= hosts) counts.insert(shards);
  }
  add(counts,
      [&](int shards, Partition::Scheme scheme) { return places.OnServers(shards, scheme); });
  return candidates;
}

Candidate AsGiven(const AdviceCluster& cluster) {
  Candidate given = {.kind = Candidate::Kind::kAsGiven,
                     .name = absl::StrCat("as in ", cluster.name),
                     .config = cluster.config};
  if (!IsSyncInFloat32(cluster.config)) given.difference = "as it says";
  if (!cluster.config.colocated()) given.server_hosts = cluster.config.shard_size();
  return given;
}

std::vector<Candidate> Changed(const Candidate& placement) {
  const auto with = [&](const std::string& difference,
                        const std::function<void(ClusterConfig*)>& change) {
    Candidate candidate = placement;
    candidate.difference = difference;
    change(&candidate.config);
    return candidate;
  };
  std::vector<Candidate> changed;
  changed.push_back(with("BFLOAT16", [](ClusterConfig* config) {
    config->mutable_exchange()->set_gradient_encoding(BFLOAT16);
    config->mutable_exchange()->set_parameter_encoding(BFLOAT16);
  }));
  changed.push_back(with("INT8", [](ClusterConfig* config) {
    config->mutable_exchange()->set_gradient_encoding(INT8);
    config->mutable_exchange()->set_error_feedback(true);
    config->mutable_exchange()->set_update_encoding(INT8);
  }));
  changed.push_back(WithLocalSteps(placement, kFewSteps));
  changed.push_back(WithLocalSteps(placement, kManySteps));
  if (AreWorkersEqual(placement.config)) return changed;
  const int quorum = placement.config.workers() - 1;
  if (quorum > 0) {
    changed.push_back(
        with(absl::StrCat("QUORUM, ", quorum, " of ", quorum + 1), [&](ClusterConfig* config) {
          config->mutable_update()->set_policy(Update::QUORUM);
          config->mutable_update()->set_quorum(quorum);
        }));
  }
  changed.push_back(with("ASYNC", [](ClusterConfig* config) {
    config->mutable_update()->clear_deterministic();
    config->mutable_update()->set_policy(Update::ASYNC);
  }));
  return changed;
}

}  // namespace evenshard
