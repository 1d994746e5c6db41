#ifndef EVENSHARD_TOOLS_PSCTL_ADVICE_CANDIDATES_H_
#define EVENSHARD_TOOLS_PSCTL_ADVICE_CANDIDATES_H_

#include <string>
#include <vector>

#include "proto/config.pb.h"
#include "tools/psctl/advice/advice_request.h"

namespace evenshard {

// One way to run a cluster's training.
struct Candidate {
  enum class Kind {
    kAlone,  // one worker, by itself
    kRing,
    kOneMaster,  // one shard beside worker 0
    kColocated,  // several shards beside workers
    kServers,    // shards on hosts of their own
    kAsGiven,    // as the config file says
  };

  Kind kind = Kind::kAlone;
  std::string name = {};        // "striped on 4 servers", "ring"
  std::string difference = {};  // from training with SYNC in float32: "INT8"; empty: none
  int server_hosts = 0;         // beside the workers'
  ClusterConfig config = {};    // without exchange.schedule, but that of kAsGiven
  // Whether limits.connections were measured to be the best. The simulator sees them as worse than
  // the default, with which the candidate is predicted.
  bool has_measured_connections = false;

  int hosts() const { return config.workers() + server_hosts; }
};

// Returns where parameters may be, all with the mathematics of SYNC in float32, in a fixed order. A
// candidate may turn out to be impossible with the rest of the config.
std::vector<Candidate> Placements(const AdviceCluster& cluster);

// Returns the config of the file as a candidate.
Candidate AsGiven(const AdviceCluster& cluster);

// Returns a placement with each change of what is computed: 16 bits, INT8, local steps, and where
// workers differ in speed, updates that do not wait for the slowest.
std::vector<Candidate> Changed(const Candidate& placement);

}  // namespace evenshard

#endif  // EVENSHARD_TOOLS_PSCTL_ADVICE_CANDIDATES_H_
