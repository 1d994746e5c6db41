#ifndef EVENSHARD_TESTS_FUZZ_PS_CORE_STREAMS_H_
#define EVENSHARD_TESTS_FUZZ_PS_CORE_STREAMS_H_

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "common/wire/encoding.h"
#include "grpcpp/support/byte_buffer.h"
#include "proto/parameter_server.pb.h"
#include "server/recovery/replica.h"
#include "server/rpc/chunk_message.h"
#include "server/rpc/pending_reply.h"
#include "server/shard/shard.h"
#include "tests/fuzz/fuzzing.h"

namespace evenshard {

// Parses a message to a client.
template <typename Message>
Message Parsed(const grpc::ByteBuffer& buffer) {
  std::vector<grpc::Slice> slices;
  (void)buffer.Dump(&slices);
  std::string bytes;
  for (const grpc::Slice& slice : slices) {
    bytes.append(reinterpret_cast<const char*>(slice.begin()), slice.size());
  }
  Message message;
  Require(message.ParseFromString(bytes), "a message to a client");
  return message;
}

// Sends replies as an Exchange stream does.
class FuzzedSink final : public ReplySink, public std::enable_shared_from_this<FuzzedSink> {
 public:
  FuzzedSink(std::shared_ptr<Shard> shard, std::shared_ptr<WorkerSession> session)
      : shard_(std::move(shard)), session_(std::move(session)) {}

  void Owe(uint32_t chunk, uint64_t base_version) { owed_[chunk] = base_version; }
  void Reply(uint32_t chunk, uint64_t iteration, bool dropped) override {
    PendingReply reply{.chunk = chunk, .iteration = iteration, .dropped = dropped};
    if (const auto owed = owed_.extract(chunk); !owed.empty() && VersionsTell(*shard_)) {
      reply.base_version = owed.mapped();
    }
    if (session_->buffers() != nullptr) {
      reply.written_version = session_->buffers()->Write(shard_->config(), session_->rank(),
                                                         shard_->chunk(chunk), reply.base_version);
    }
    replies_.push_back(reply);
  }
  void SendAll() {
    std::vector<PendingReply> deferred;
    const grpc::ByteBuffer sent =
        ReplyMessage(shard_.get(), session_.get(), std::exchange(replies_, {}), deferred);
    const auto message = Parsed<ParameterChunks>(sent);
    for (const ParameterChunk& chunk : message.chunk()) {
      const int64_t elements = shard_->chunk(chunk.chunk()).info().size;
      const auto bytes = static_cast<int64_t>(chunk.data().size());
      Require(bytes == 0 || bytes == EncodedBytes(chunk.encoding(), elements),
              "the length of a reply");
    }
    for (const PendingReply& reply : deferred) {
      shard_->Defer(reply.chunk, {shared_from_this(), reply.iteration, reply.dropped});
    }
  }

 private:
  const std::shared_ptr<Shard> shard_;
  const std::shared_ptr<WorkerSession> session_;
  std::map<uint32_t, uint64_t> owed_;  // by chunk: the version that the worker has
  std::vector<PendingReply> replies_;
};

// A stream of the process to the other one, which confirms what the input says.
class ToReplica final : public ReplicaStream {
 public:
  ToReplica(std::vector<ToReplica*>* all, Receiver* receiver) : all_(*all), receiver_(receiver) {
    all_.push_back(this);
  }
  ~ToReplica() override { std::erase(all_, this); }
  void Send(ReplicaMessage message) override { sent_.push_back(std::move(message)); }
  // False if there is nothing to confirm.
  bool Confirm() {
    if (sent_.empty()) return false;
    ReplicaReceipt receipt;
    receipt.set_chunk(sent_.front().header.chunk());
    receipt.set_version(sent_.front().header.version());
    receipt.set_iteration(sent_.front().header.iteration());
    sent_.pop_front();
    receiver_->Confirmed(receipt);
    return true;
  }
  void Break() {
    if (!std::exchange(is_broken_, true)) {
      receiver_->Ended(absl::UnavailableError("the other process is away"));
    }
  }

 private:
  std::vector<ToReplica*>& all_;
  Receiver* const receiver_;
  std::deque<ReplicaMessage> sent_;
  bool is_broken_ = false;
};

}  // namespace evenshard

#endif  // EVENSHARD_TESTS_FUZZ_PS_CORE_STREAMS_H_
