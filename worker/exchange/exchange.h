#ifndef PS_WORKER_EXCHANGE_EXCHANGE_H_
#define PS_WORKER_EXCHANGE_EXCHANGE_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <stop_token>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "common/base/clock.h"
#include "common/base/float_buffer.h"
#include "common/config/config.h"
#include "proto/worker_usage.pb.h"
#include "worker/exchange/exchange_round.h"
#include "worker/exchange/lent_memory.h"
#include "worker/exchange/shard_stream.h"
#include "worker/exchange/training_exchange.h"

namespace ps {

// Logs a stall that is news: which shards are waited for, or that the iteration goes on.
void LogStall(const Stall& stall);

// A worker's side of the exchange with all shards: membership, pull and push-pull. Buffers have the
// layout that Model defines. ExchangeSchedule decides when each layer is pushed.
//
//   absl::Status Train(const Config& config, int rank, int64_t iterations) {
//     ASSIGN_OR_RETURN(Exchange::Buffers buffers, Exchange::AllocateBuffers(config, {}));
//     ASSIGN_OR_RETURN(const std::unique_ptr<Exchange> exchange,
//                      Exchange::Connect({.config = &config, .rank = rank, .buffers = &buffers}));
//     const absl::Span<float> parameters = buffers.parameters.span();
//     const absl::Span<float> gradients = buffers.gradients.span();
//     RETURN_IF_ERROR(exchange->Pull(parameters));
//     for (int64_t i = exchange->start_iteration(); i < iterations; ++i) {
//       ComputeGradients(parameters, gradients);
//       RETURN_IF_ERROR(exchange->PushPull(i, gradients, parameters));
//     }
//     return exchange->Leave(absl::OkStatus());
//   }
//
// Not thread-safe, except for the methods that say otherwise.
class Exchange final : public TrainingExchange, private ShardStream::Handler {
 public:
  // Memory for the gradients and the parameters of the whole model. It can be shared with the
  // shards of this host if the config allows that and the system provides such memory.
  struct Buffers {
    FloatBuffer gradients;
    FloatBuffer parameters;
  };

  struct Options {
    const Config* config = nullptr;  // must outlive the exchange
    int rank = 0;
    const Clock* clock = nullptr;  // must outlive the exchange; null for the system's clock
    // The shards' addresses, or none to use the config's. Tests whose ports are 0 set them.
    std::vector<std::string> addresses = {};
    // The only buffers that PushPull and Begin will be given; null if the caller does not know
    // them. Shards of this host read and write in them if they can be shared, and may still do so
    // after an error. Another exchange then needs other buffers.
    const Buffers* buffers = nullptr;
    Trace* trace = nullptr;  // records pushes and pulls (see ExchangeRound); null for no trace
    // Called when Pull or a push-pull has written a range of the parameters, before any wait for
    // that range ends. Must be thread-safe.
    std::function<void(int64_t begin, int64_t count)> on_parameters_written = [](int64_t, int64_t) {
    };
    // Called by a thread of the exchange while a wait for the shards makes no progress (see
    // ExchangeRound::CheckProgress). Must not call the exchange.
    std::function<void(const Stall&)> on_stall = LogStall;
    // Makes blocked calls, and later ones, return CANCELLED soon.
    std::stop_token stop = {};
  };

  // Allocates buffers for an exchange with shards at `addresses` (see Options). Errors:
  // RESOURCE_EXHAUSTED.
  static absl::StatusOr<Buffers> AllocateBuffers(const Config& config,
                                                 const std::vector<std::string>& addresses);

  // Waits until every shard is up, opens the streams and takes the rank at each shard. Errors:
  // DEADLINE_EXCEEDED with the names of the shards that were not up within limits.startup_seconds;
  // a shard's refusal (see Shard::Join) with its name.
  static absl::StatusOr<std::unique_ptr<Exchange>> Connect(const Options& options);

  // Calls Leave with an error if the caller has not called it.
  ~Exchange() override;

  // The first iteration to push. It is 0 unless the worker was restarted.
  int64_t start_iteration() const override { return start_iteration_; }

  uint64_t view_number() const override { return 0; }
  std::vector<Crew> crews() const override;
  bool went_back() const override { return false; }
  // Errors: FAILED_PRECONDITION, since a run without views does not go back.
  absl::StatusOr<int64_t> Resume() override;

  // Fetches all parameters. Blocks. Errors name the shard that failed.
  absl::Status Pull(absl::Span<float> parameters) override;

  // Pushes every chunk of `gradients`, front layers first, and receives the updated chunks into
  // `parameters`. Under the schedule SEQUENTIAL a shard begins to answer when all but the last
  // chunk of each stream have been sent. If `gradients` is empty, the worker takes part without
  // contributing (`skip`). Blocks. The buffers are in use until it returns or, after an error,
  // until Leave returns.
  //
  // Errors end this exchange. They are: the reason and name of a shard whose stream has ended;
  // DEADLINE_EXCEEDED with the names of the shards that have not answered for longer than
  // limits.exchange_seconds; OUT_OF_RANGE for a parameter that exchange.parameter_encoding cannot
  // represent.
  absl::Status PushPull(int64_t iteration, absl::Span<const float> gradients,
                        absl::Span<float> parameters) override;

  // These methods do the same layer by layer, under the other schedules. Call Begin, then Push once
  // for each layer with tensors, then AwaitLayer for each of them or AwaitAll. After its Push a
  // layer's parameters may change until they have been received. Its gradients must not change
  // until all layers have been received. Begin and Push do not block. The errors are those of
  // PushPull. Begin REQUIRES: everything pushed before has been received.
  absl::Status Begin(int64_t iteration, absl::Span<const float> gradients,
                     absl::Span<float> parameters) override;
  void Push(int layer) override;
  absl::Status AwaitLayer(int layer) override;
  absl::Status AwaitAll() override;

  // Sends shard 0 what this worker uses, for the statistics. Blocks for a few seconds at most, and
  // returns CANCELLED soon after `stop` is requested. May be called from any thread until Leave.
  // Errors, which do not end the exchange: the shard's refusal (see Shard::Report), or why the call
  // failed.
  absl::Status Report(const WorkerUsage& usage, const std::stop_token& stop) override;

  // Gives up the rank at every shard and ends the streams. The worker has finished if `outcome` is
  // OK, and failed if it is an error. Errors name the shards that could not be reached.
  absl::Status Leave(const absl::Status& outcome) override;

  // Only sends the message of Leave, for a process that must end at once. May be called from any
  // thread.
  absl::Status SendLeave(const absl::Status& outcome, absl::Duration timeout) override;

  const Traffic& traffic() const override { return traffic_; }

 private:
  struct ShardLink;

  explicit Exchange(const Options& options);

  absl::Status JoinAll();
  // Waits until the shard is up, opens the streams to it and takes the rank.
  absl::Status Join(int shard);
  void OpenStreams(int shard);
  void ChooseLastChunks();
  // Calls CheckProgress once per period until `stop` is requested.
  void Watch(const std::stop_token& stop);
  void PushChunks(absl::Span<const uint32_t> chunks);
  bool IsSequential() const;
  // Waits until gRPC has given the lent gradients back. REQUIRES: every push has been answered.
  absl::Status AwaitLent();

  // Implement ShardStream::Handler. Called from gRPC's threads.
  grpc::ByteBuffer GradientMessage(uint32_t chunk) override;
  void GradientSent(uint32_t chunk) override { round_.Sent(chunk); }
  absl::Status TakeParameters(int shard, const Segments& message) override;
  void StreamEnded(int shard, const absl::Status& status) override;

  // Checks that an answer to a push of `chunk` has the run's encoding, the expected length and, in
  // a 16-bit encoding, only finite values. The answer is empty if the shard wrote the parameters to
  // shared buffers.
  absl::Status CheckParameters(const Chunk& chunk, const Decoded<ParameterHeader>& answer) const;

  // Constant after Connect.
  const Config& config_;
  const int rank_;
  const Clock& clock_;
  const std::stop_token stop_;
  const std::function<void(int64_t begin, int64_t count)> on_parameters_written_;
  const std::function<void(const Stall&)> on_stall_;
  const Buffers* const shared_buffers_;  // null if they cannot be shared
  const uint64_t incarnation_;
  std::vector<std::unique_ptr<ShardLink>> links_;  // by shard
  int64_t start_iteration_ = 0;
  std::atomic<bool> joined_all_{false};  // every shard has accepted this worker
  // Under SEQUENTIAL the last chunk of each stream, whose push lets the shard answer all of the
  // stream's chunks. Empty under other schedules.
  std::vector<uint32_t> last_chunks_;
  std::vector<uint32_t> other_chunks_;
  std::vector<int> last_stream_of_chunk_;  // by chunk: the stream that sends it last, or -1
  uint64_t iteration_ = 0;
  size_t unpushed_ = 0;  // this iteration's chunks that PushChunks has not queued
  absl::Span<const float> gradients_;
  absl::Span<float> parameters_;
  std::vector<uint64_t> versions_;  // by chunk; used only by the chunk's one pending push
  Traffic traffic_;
  bool leave_called_ = false;

  // Thread-safe.
  LentMemory lent_;  // the gradients that gRPC sends
  ExchangeRound round_;

  // Destroyed first, since they use the other members.
  const std::stop_callback<std::function<void()>> on_stop_;  // fails the round
  std::jthread watcher_;
};

}  // namespace ps

#endif  // PS_WORKER_EXCHANGE_EXCHANGE_H_
