#ifndef EVENSHARD_COMMON_NET_ABANDONED_CHANNELS_H_
#define EVENSHARD_COMMON_NET_ABANDONED_CHANNELS_H_

#include <memory>
#include <utility>
#include <vector>

#include "grpcpp/channel.h"

namespace evenshard {

// Channels that were given up while they connected. They are kept until they have, or have failed
// to: gRPC 1.51 never closes a connection whose channel ends before the other end's first words.
// Not thread-safe.
class AbandonedChannels {
 public:
  // REQUIRES: the channel was not made of a file descriptor.
  void Add(std::shared_ptr<grpc::Channel> channel) {
    channels_.push_back(std::move(channel));
    Drop();
  }

  // Drops those that do not connect any more. To be called now and then until is_empty().
  void Drop() {
    std::erase_if(channels_, [](const std::shared_ptr<grpc::Channel>& channel) {
      return channel->GetState(/*try_to_connect=*/false) != GRPC_CHANNEL_CONNECTING;
    });
  }

  bool is_empty() const { return channels_.empty(); }

 private:
  std::vector<std::shared_ptr<grpc::Channel>> channels_;
};

}  // namespace evenshard

#endif  // EVENSHARD_COMMON_NET_ABANDONED_CHANNELS_H_
