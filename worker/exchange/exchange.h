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

namespace ps {

// A line in the log for a stall that is news: who is waited for, or that the wait goes on.
void LogStall(const Stall& stall);

// A worker's side of the exchange with all shards: membership, pull and push-pull. Buffers
// are laid out as Model says. Used by one thread but for what says otherwise.
// worker/exchange/exchange_schedule.h decides when what is pushed.
class Exchange final : private ShardStream::Handler {
 public:
  // The memory for gradients, and for parameters, of the whole model: in pages that can be shared
  // where the config lets a shard of this host exchange through them, and the system can make them.
  struct Buffers {
    FloatBuffer gradients;
    FloatBuffer parameters;
  };

  struct Options {
    const Config* config = nullptr;  // must outlive the exchange
    int rank = 0;
    const Clock* clock = nullptr;  // null: the system's; must outlive the exchange
    // Of the shards, where they are not the config's (tests: ports of 0).
    std::vector<std::string> addresses = {};
    // The only ones that PushPull, or Begin, will be given, where the caller knows them. Where they
    // are shared, shards of this host read and write there. After an error they may still do so:
    // another exchange needs others then.
    const Buffers* buffers = nullptr;
    Trace* trace = nullptr;  // null: none is kept. See ExchangeRound
    // Hears which floats of the parameters Pull, or the exchange, has just written. From several
    // threads; before whoever waits for them goes on.
    std::function<void(int64_t begin, int64_t count)> on_parameters_written = [](int64_t, int64_t) {
    };
    // Hears of waits for the shards in which nothing moves (see ExchangeRound::CheckProgress). From
    // a thread of the exchange's own; must not call it.
    std::function<void(const Stall&)> on_stall = LogStall;
    // Makes whatever blocks, and what is called later, return CANCELLED soon.
    std::stop_token stop = {};
  };

  // What this worker has sent and received, of tensor data as encoded.
  struct Traffic {
    uint64_t pushes = 0;  // chunks
    uint64_t bytes_out = 0;
    uint64_t bytes_in = 0;
  };

  // Makes them, for shards at `addresses` (as Options'). Errors: RESOURCE_EXHAUSTED.
  static absl::StatusOr<Buffers> AllocateBuffers(const Config& config,
                                                 const std::vector<std::string>& addresses);

  // Waits for every shard to be up, takes the rank at each and opens the streams.
  // Errors: DEADLINE_EXCEEDED naming the shards that were not up within
  // limits.startup_seconds; a shard's refusal (see Shard::Join), naming it.
  static absl::StatusOr<std::unique_ptr<Exchange>> Connect(const Options& options);

  // Calls Leave with an error if nobody has.
  ~Exchange() override;

  // The first iteration to push: 0, or where a restarted worker goes on.
  int64_t start_iteration() const { return start_iteration_; }

  // Fetches all parameters. Blocks. Errors: naming the shard that failed.
  absl::Status Pull(absl::Span<float> parameters);

  // Pushes every chunk of `gradients`, front layers first, and receives the updated
  // chunks into `parameters`, as the shards let them go; under the schedule SEQUENTIAL that is
  // when all but the last chunk of each stream have been sent. Empty `gradients` take part
  // without contributing (`skip`). Blocks; afterwards both buffers are the caller's again (after
  // an error, once Leave has returned).
  //
  // Errors, all final for this exchange: naming the shard whose stream ended, with its
  // reason; DEADLINE_EXCEEDED naming those that have not answered for longer than
  // limits.exchange_seconds; OUT_OF_RANGE for a parameter that exchange.parameter_encoding
  // does not hold.
  absl::Status PushPull(int64_t iteration, absl::Span<const float> gradients,
                        absl::Span<float> parameters);

  // The same layer by layer, under the other schedules: after Begin, Push of each layer with
  // tensors once, then AwaitLayer of each or AwaitAll. From its Push on a layer's gradients must
  // not change until everything is back, and its parameters may change until they are back.
  // Begin and Push do not block. Errors as above.
  // REQUIRES of Begin: everything pushed before is back.
  absl::Status Begin(int64_t iteration, absl::Span<const float> gradients,
                     absl::Span<float> parameters);
  void Push(int layer);
  absl::Status AwaitLayer(int layer);
  absl::Status AwaitAll();

  // Tells shard 0 what this worker uses, for the statistics. Blocks for a few seconds at most, and
  // ends soon with CANCELLED once `stop` is requested. From any thread, until Leave. Errors: the
  // shard's refusal (see Shard::Report), or why it could not be told; the exchange goes on.
  absl::Status Report(const WorkerUsage& usage, const std::stop_token& stop);

  // Ends the streams and gives up the rank at every shard, as finished or, with an
  // error, as failed. Errors: naming a shard that could not be told.
  absl::Status Leave(const absl::Status& outcome);

  // Only the message of Leave, for a process that must end at once. From any thread.
  absl::Status SendLeave(const absl::Status& outcome, absl::Duration timeout);

  const Traffic& traffic() const { return traffic_; }

 private:
  struct ShardLink;

  explicit Exchange(const Options& options);

  absl::Status JoinAll();
  // Waits until the shard is up, opens the streams to it and takes the rank.
  absl::Status Join(int shard);
  void OpenStreams(int shard);
  void ChooseLastChunks();
  // Watches over the waits until `stop`.
  void Watch(const std::stop_token& stop);
  void PushChunks(absl::Span<const uint32_t> chunks);
  bool IsSequential() const;
  // Waits for the return of the lent gradients. REQUIRES: every push has been answered.
  absl::Status AwaitLent();

  // ShardStream::Handler, from gRPC's threads.
  grpc::ByteBuffer GradientMessage(uint32_t chunk) override;
  void GradientSent(uint32_t chunk) override { round_.Sent(chunk); }
  absl::Status TakeParameters(int shard, const Segments& message) override;
  void StreamEnded(int shard, const absl::Status& status) override;

  // Whether an answer to a push of `chunk` has the encoding and length of the run, and, in
  // 16 bits, only finite values. It has no data where the shard has written it to the parameters.
  absl::Status CheckParameters(const Chunk& chunk, const Decoded<ParameterHeader>& answer) const;

  // Constant after Connect.
  const Config& config_;
  const int rank_;
  const Clock& clock_;
  const std::stop_token stop_;
  const std::function<void(int64_t begin, int64_t count)> on_parameters_written_;
  const std::function<void(const Stall&)> on_stall_;
  const Buffers* const shared_buffers_;  // null where they are not shared
  const uint64_t incarnation_;
  std::vector<std::unique_ptr<ShardLink>> links_;  // by shard
  int64_t start_iteration_ = 0;
  std::atomic<bool> joined_all_{false};  // every shard has taken us
  // SEQUENTIAL: one for each stream, whose pushes let the replies go. Otherwise empty.
  std::vector<uint32_t> last_chunks_;
  std::vector<uint32_t> other_chunks_;
  std::vector<int>
      last_stream_of_chunk_;  // by chunk: the stream that one of last_chunks_ is for, or -1

  // The push-pull under way: set by Begin while no stream uses it.
  uint64_t iteration_ = 0;
  absl::Span<const float> gradients_;
  absl::Span<float> parameters_;
  std::vector<uint64_t> versions_;  // by chunk; each used by its one pending push
  Traffic traffic_;
  bool leave_called_ = false;

  // Synchronised by themselves.
  LentMemory lent_;  // the gradients that gRPC sends
  ExchangeRound round_;

  // Last: they must go before what they use.
  const std::stop_callback<std::function<void()>> on_stop_;  // ends a PushPull
  std::jthread watcher_;
};

}  // namespace ps

#endif  // PS_WORKER_EXCHANGE_EXCHANGE_H_
