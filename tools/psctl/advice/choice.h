#ifndef EVENSHARD_TOOLS_PSCTL_ADVICE_CHOICE_H_
#define EVENSHARD_TOOLS_PSCTL_ADVICE_CHOICE_H_

#include <string>

#include "tools/psctl/advice/candidates.h"

namespace evenshard {

// What an iteration spends its time on that it could be shorter by.
enum class Bottleneck {
  kComputing,
  kWorkerLink,
  kShardLink,
  kSharedLink,
  kProcessing,  // ShardAddress.server_gbps
  kLatency
};

// "computing", "workers' links", ...
const char* BottleneckName(Bottleneck bottleneck);

// "97.5", "12,345".
std::string FormatRate(double images_per_second);

// Which schedules are tried: FULL, BACKWARD and SEQUENTIAL, or the first of these that the config
// allows, which is usually the fastest. A candidate that has one keeps it.
enum class Schedules { kAll, kFirst };

// A candidate as it is predicted to run, with the fastest schedule of those that were tried.
struct Choice {
  Candidate candidate;  // its config has the schedule
  std::string refused =
      {};  // why there is no such run; empty if there is one, and what follows is set
  double iteration_seconds = 0;  // of a round, with local steps
  double images_per_second = 0;  // of all workers together
  // What passes the busiest link of a worker's host each way in an iteration; with a shard on the
  // host, the shard's bytes too.
  double link_bytes = 0;
  Bottleneck bottleneck = Bottleneck::kComputing;
};

// Returns "ring", and with a difference "ring, INT8".
std::string NameOf(const Candidate& candidate);

// Predicts a candidate. `latency_seconds` is that of ClusterRates. Many equal workers with shards
// on their hosts are predicted as a smaller cluster whose busiest link takes as long. REQUIRES: the
// config is valid but for what the candidate has changed in it.
Choice Evaluate(const Candidate& candidate, double latency_seconds,
                Schedules schedules = Schedules::kAll);

}  // namespace evenshard

#endif  // EVENSHARD_TOOLS_PSCTL_ADVICE_CHOICE_H_
