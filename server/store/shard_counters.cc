#include "server/store/shard_counters.h"

#include <algorithm>
#include <bit>
#include <limits>

namespace evenshard {
namespace {

constexpr uint64_t kExactBuckets = 4;  // staleness 0 to 3 have a bucket each

// Returns the smallest staleness in a bucket.
uint64_t BucketStart(int bucket) {
  if (bucket < static_cast<int>(kExactBuckets)) return bucket;
  return kExactBuckets << (bucket - kExactBuckets);
}

}  // namespace

void ShardCounters::CountReply(uint64_t bytes) {
  ++pulls;
  bytes_out += bytes;
}

void ShardCounters::CountStaleness(uint64_t staleness) {
  int bucket = static_cast<int>(staleness);
  if (staleness >= kExactBuckets) {
    bucket = static_cast<int>(kExactBuckets) + std::bit_width(staleness / kExactBuckets) - 1;
  }
  ++staleness_[std::min(bucket, kBuckets - 1)];
}

void ShardCounters::Fill(ShardStats* stats) const {
  received.Fill(stats);
  stats->set_pulls(pulls);
  stats->set_bytes_out(bytes_out);
  stats->set_updates(updates);
  stats->set_aggregate_seconds(aggregate_nanoseconds * 1e-9);
  stats->set_apply_seconds(apply_nanoseconds * 1e-9);
  stats->set_straggler_wait_seconds(straggler_wait_nanoseconds * 1e-9);
  for (int bucket = 0; bucket < kBuckets; ++bucket) {
    const uint64_t pushes_in_bucket = staleness_[bucket];
    if (pushes_in_bucket == 0) continue;
    StalenessBucket* out = stats->add_staleness();
    out->set_from(BucketStart(bucket));
    out->set_to(bucket + 1 == kBuckets ? std::numeric_limits<uint64_t>::max()
                                       : BucketStart(bucket + 1) - 1);
    out->set_pushes(pushes_in_bucket);
  }
}

}  // namespace evenshard
