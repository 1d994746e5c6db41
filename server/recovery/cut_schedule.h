#ifndef EVENSHARD_SERVER_RECOVERY_CUT_SCHEDULE_H_
#define EVENSHARD_SERVER_RECOVERY_CUT_SCHEDULE_H_

#include <cstdint>

#include "absl/time/time.h"
#include "common/checkpoint/chunk_clock.h"
#include "common/checkpoint/shard_file_writer.h"
#include "proto/config.pb.h"
#include "proto/view.pb.h"

namespace evenshard {

// Where checkpoints are cut. All slots find the same, without having to talk.

// SYNC: whether the checkpoints are cut where a chunk is: after every so many iterations of
// training and before anything is assigned then, or at the exchange that the view says.
bool IsCutAt(const ClusterConfig& config, const View& view, const ChunkClock& clock);

// SYNC: the cut where a chunk is. It is named by iterations of training.
Cut CutAt(const View& view, const ChunkClock& clock);

// The number of a cut, by which slots agree on every 2nd, 4th, 8th ... of them.
uint64_t NumberOfCut(const ClusterConfig& config, const View& view, const Cut& cut);

// ASYNC: the number of the cut that is due. Without an iteration in common, the slots count the
// checkpoints by the time of day.
uint64_t NumberByClock(const ClusterConfig& config, absl::Time now);

// ASYNC: the number of the cut with which a run ends, larger than all before: that of the next full
// minute, since slots find the same only if they do not look across one.
uint64_t LastNumberByClock(const ClusterConfig& config, absl::Time now);

// ASYNC: the cut of a number.
Cut CutByClock(const View& view, uint64_t number);

}  // namespace evenshard

#endif  // EVENSHARD_SERVER_RECOVERY_CUT_SCHEDULE_H_
