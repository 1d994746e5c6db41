#ifndef EVENSHARD_COMMON_WIRE_EXCHANGE_METADATA_H_
#define EVENSHARD_COMMON_WIRE_EXCHANGE_METADATA_H_

namespace evenshard {

// The metadata of an Exchange call, decimal numbers: which worker's stream it is. A shard that
// knows this from the start notices a worker that dies before its first push.
inline constexpr char kWorkerMetadata[] = "ps-worker";
inline constexpr char kIncarnationMetadata[] = "ps-incarnation";
// 1: the worker joins when it knows that the stream is open; the shard lets it wait.
inline constexpr char kJoinFollowsMetadata[] = "ps-join-follows";
// The slot whose primary the worker means. Absent: the process's own.
inline constexpr char kSlotMetadata[] = "ps-slot";
// Which transfer of a worker's state SendWorkerState belongs to.
inline constexpr char kTicketMetadata[] = "ps-ticket";
// The number of the sender's view, for Replicate.
inline constexpr char kViewMetadata[] = "ps-view";

}  // namespace evenshard

#endif  // EVENSHARD_COMMON_WIRE_EXCHANGE_METADATA_H_
