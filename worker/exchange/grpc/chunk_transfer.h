#ifndef EVENSHARD_WORKER_EXCHANGE_GRPC_CHUNK_TRANSFER_H_
#define EVENSHARD_WORKER_EXCHANGE_GRPC_CHUNK_TRANSFER_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "common/placement/plan/plan.h"
#include "common/placement/planned_config.h"
#include "common/wire/chunk_codec.h"
#include "worker/exchange/core/exchange_core.h"
#include "worker/exchange/core/gradient_encoder.h"
#include "worker/exchange/grpc/lent_memory.h"
#include "worker/exchange/grpc/shard_connection.h"

namespace evenshard {

// Moves chunks between a worker's memory and the streams: it makes messages of what the core lets
// leave, lending the gradients' own memory to gRPC or encoding it (GradientEncoder), and writes the
// answers that count to their final place (PlannedConfig::Place). With a shard that shares the
// memory, the messages are headers. It passes the other events of the connections on to the core.
// Thread-safe but for SetBuffers.
class ChunkTransfer final : public ShardConnection::Handler {
 public:
  // Called when answers have written a range of the parameters, before any wait for it ends.
  using OnWritten = std::function<void(int64_t begin, int64_t count)>;

  // `config` and `core` must outlive the transfer.
  ChunkTransfer(const PlannedConfig* config, ExchangeCore* core,
                std::unique_ptr<GradientEncoder> encoder, OnWritten on_parameters_written);

  // Sets the memory of the next iteration. REQUIRES: the last one is over, or no stream is left.
  void SetBuffers(absl::Span<const float> gradients, absl::Span<float> parameters);
  // Writes what a pull has received of a chunk into `parameters`. Errors: OUT_OF_RANGE for a
  // parameter that the tensor's type cannot represent.
  absl::Status TakePulled(const Chunk& chunk, const ParameterChunk& message,
                          absl::Span<float> parameters);
  // Waits until gRPC has given all gradients back. Returns false if `timeout` passes before.
  bool AwaitGivenBack(absl::Duration timeout) { return lent_.AwaitAll(timeout); }
  // The run has gone back to a checkpoint. REQUIRES: no stream is left.
  void ForgetErrors() { encoder_->Reset(); }

  std::vector<GradientHeader> NextGradients(int slot, int stream,
                                            grpc::ByteBuffer* message) override;
  void GradientsSent(absl::Span<const GradientHeader> headers) override;
  absl::Status TakeParameters(int slot, const Segments& message) override;
  void Joined(int slot, uint64_t attempt, const JoinResponse& response) override;
  void Ended(int slot, uint64_t attempt, const absl::Status& status) override;

 private:
  // Appends a chunk to a message. Returns false, and appends nothing, if its push needs no sending
  // any more (GradientEncoder::Encode).
  bool Append(const GradientHeader& header, std::vector<grpc::Slice>* message);
  absl::Status TakeAnswer(int slot, const Decoded<ParameterHeader>& answer);
  // Checks that an answer to a push of `chunk` has the chunk's encoding and the expected length. It
  // is empty if the shard wrote the parameters to shared memory, or they are unchanged.
  absl::Status CheckAnswer(const Chunk& chunk, const Decoded<ParameterHeader>& answer) const;
  // Checks that parameters in a 16-bit encoding are finite.
  absl::Status CheckRange(const Chunk& chunk, Encoding encoding, const Segments& data) const;

  // Constant after construction.
  const PlannedConfig& config_;
  ExchangeCore& core_;
  const std::unique_ptr<GradientEncoder> encoder_;
  const OnWritten on_parameters_written_;

  LentMemory lent_;                        // the gradients that gRPC sends
  std::vector<std::atomic<bool>> shares_;  // by slot: the shard reads and writes the memory itself
  // Read by the streams while a chunk is pending.
  absl::Span<const float> gradients_;
  absl::Span<float> parameters_;
};

}  // namespace evenshard

#endif  // EVENSHARD_WORKER_EXCHANGE_GRPC_CHUNK_TRANSFER_H_
