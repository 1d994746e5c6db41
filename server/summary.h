#ifndef PS_SERVER_SUMMARY_H_
#define PS_SERVER_SUMMARY_H_

#include <string>

#include "common/config.h"
#include "proto/admin.pb.h"

namespace ps {

// "owns 69,178,772 parameters (276.7 MB) in chunks: 275": what a shard says when it starts.
std::string Ownership(const Config& config, int shard);

// What a shard has done, in one line, for the log at its end.
std::string Summary(const ShardStats& stats);

}  // namespace ps

#endif  // PS_SERVER_SUMMARY_H_
