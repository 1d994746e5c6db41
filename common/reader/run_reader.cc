// A pull, step by step:
//   1. AskShards asks where the slots are, if they can move, and how far their chunks have come.
//   2. Choose takes an iteration that no chunk has passed.
//   3. Receive asks all shards for it at the same time. A shard that is behind waits.
//   4. If a shard has passed it meanwhile, or cannot be reached, AfterFailure decides whether to
//      begin again: after one that has passed with a margin, an iteration that is yet to come. If
//      training pauses before that one, the next attempt is without a margin.

#include "common/reader/run_reader.h"

#include <algorithm>
#include <atomic>
#include <deque>
#include <limits>
#include <thread>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "common/base/error_kind.h"
#include "common/base/status_macros.h"
#include "common/base/text.h"
#include "common/net/channel_options.h"
#include "common/net/pull.h"
#include "common/reader/process_calls.h"
#include "grpcpp/client_context.h"

namespace evenshard {
namespace {

// How long a process may take to answer a question.
constexpr absl::Duration kAnswer = absl::Seconds(5);

// Between attempts.
constexpr absl::Duration kFirstPause = absl::Milliseconds(20);
constexpr absl::Duration kLongestPause = absl::Milliseconds(500);

// For how long an attempt with a margin waits for a first chunk.
constexpr absl::Duration kLongestAhead = absl::Seconds(1);

// An attempt that has lasted for so long has reached the shards.
constexpr absl::Duration kSettled = absl::Seconds(1);

// How often in a row a snapshot may fail because it is read too slowly.
constexpr int kMostExhausted = 10;
// The margin doubles with each attempt that a shard has passed, so that more help nothing.
constexpr int kMostPassed = 40;
// How often the shards are asked when the run is over and their chunks seem to differ: the answers
// may be of different moments.
constexpr int kMostUneven = 3;

absl::Status Named(int shard, absl::string_view address, const absl::Status& status) {
  if (status.ok()) return status;
  return Reworded(status, absl::StrCat("shard ", shard, " (", address, "): ", status.message()));
}

}  // namespace

// What a pull knows from one attempt to the next.
struct RunReader::Attempt {
  const int64_t newer_than;
  const absl::Time deadline;
  const absl::FunctionRef<absl::Status()> begin;
  const absl::FunctionRef<absl::Status(const Chunk&, absl::string_view)> take;

  std::vector<absl::StatusOr<std::string>> addresses = {};
  // The present one.
  absl::Time reached = absl::InfiniteFuture();  // when all shards had answered
  bool is_ahead = false;                        // its iteration is later than it need be
  bool was_early = false;                       // nothing of that came within kLongestAhead

  absl::Time unreachable = {};  // since when shards could not be reached
  absl::Duration pause = kFirstPause;
  uint64_t margin = 0;
  int passed = 0;
  int exhausted = 0;
  int uneven = 0;
  int64_t iteration = 0;  // the outcome
};

bool RunReader::IsSync() const { return options_.config->is_synchronous(); }

absl::StatusOr<int64_t> RunReader::Pull(
    int64_t newer_than, absl::Duration timeout, absl::FunctionRef<absl::Status()> begin,
    absl::FunctionRef<absl::Status(const Chunk&, absl::string_view)> take) {
  const absl::Time now = clock_.Now();
  Attempt attempt{.newer_than = std::max(newer_than, kAny),
                  .deadline = now + timeout,
                  .begin = begin,
                  .take = take,
                  .unreachable = now,
                  .margin = margin_ / 2};
  while (true) {
    attempt.reached = absl::InfiniteFuture();
    attempt.is_ahead = attempt.was_early = false;
    const absl::Status tried = TryOnce(attempt);
    if (options_.stop.stop_requested()) return absl::CancelledError("interrupted");
    if (tried.ok()) {
      has_reached_all_ = true;
      margin_ = attempt.margin;
      return attempt.iteration;
    }
    if (clock_.Now() >= attempt.deadline) {
      return absl::DeadlineExceededError(absl::StrCat(
          "there was no snapshot in ", absl::FormatDuration(timeout), ": ", tried.message()));
    }
    RETURN_IF_ERROR(AfterFailure(tried, attempt));
  }
}

absl::Status RunReader::TryOnce(Attempt& attempt) {
  ASSIGN_OR_RETURN(const std::vector<ShardStats> stats, AskShards(attempt));
  attempt.reached = clock_.Now();
  ASSIGN_OR_RETURN(const uint64_t k, Choose(stats, attempt));
  RETURN_IF_ERROR(attempt.begin());
  RETURN_IF_ERROR(Receive(k, attempt));
  if (!options_.config->proto().has_recovery()) return absl::OkStatus();
  // The run may have gone back to a checkpoint meanwhile. Then some shards may have sent iteration
  // k of the one generation, and some that of the other.
  ASSIGN_OR_RETURN(const std::vector<ShardStats> after, AskShards(attempt));
  const auto differs = [&](const ShardStats& shard) {
    return shard.recovery().generation() != stats.front().recovery().generation();
  };
  if (std::none_of(stats.begin(), stats.end(), differs) &&
      std::none_of(after.begin(), after.end(), differs)) {
    return absl::OkStatus();
  }
  return absl::UnavailableError("the run is going back to a checkpoint");
}

absl::StatusOr<std::vector<ShardStats>> RunReader::AskShards(Attempt& attempt) {
  const auto timeout = [&] { return std::min(kAnswer, attempt.deadline - clock_.Now()); };
  attempt.addresses = PrimaryAddresses(*options_.config, timeout(), options_.stop);
  const auto answers = GetStats(*options_.config, attempt.addresses, timeout(), options_.stop);
  std::vector<ShardStats> stats;
  for (size_t shard = 0; shard < answers.size(); ++shard) {
    RETURN_IF_ERROR(attempt.addresses[shard].status());
    const std::string& address = *attempt.addresses[shard];
    const absl::Status& status = answers[shard].status();
    // One that does not answer in time is as good as gone.
    RETURN_IF_ERROR(Named(
        static_cast<int>(shard), address,
        absl::IsDeadlineExceeded(status) ? absl::UnavailableError(status.message()) : status));
    if (const std::string& failure = answers[shard]->failure(); !failure.empty()) {
      return Named(
          static_cast<int>(shard), address,
          absl::FailedPreconditionError(absl::StrCat("the run has failed: ", Printable(failure))));
    }
    stats.push_back(*answers[shard]);
  }
  return stats;
}

absl::StatusOr<uint64_t> RunReader::Choose(const std::vector<ShardStats>& stats, Attempt& attempt) {
  // Exchanges, as Snapshot counts.
  uint64_t least = std::numeric_limits<uint64_t>::max();
  uint64_t largest = 0;
  int64_t trained = 0;  // the iterations of training that are there
  bool is_over = false;
  bool trains = false;
  for (const ShardStats& shard : stats) {
    is_over |= shard.progress().is_over();
    trains |= std::any_of(shard.worker().begin(), shard.worker().end(),
                          [](const auto& worker) { return worker.state() == WorkerStats::JOINED; });
    if (shard.chunks() == 0) continue;
    const ShardStats::Progress& progress = shard.progress();
    if (IsSync() ? progress.largest_exchange() >= largest : progress.least_exchange() < least) {
      trained = static_cast<int64_t>(IsSync() ? progress.largest() : progress.least());
    }
    least = std::min(least, progress.least_exchange());
    largest = std::max(largest, progress.largest_exchange());
  }
  least = std::min(least, largest);
  const uint64_t latest = IsSync() ? largest : least;
  // What lies between there and a newer iteration may be assignments too: then the next attempt
  // asks for a later exchange.
  const uint64_t behind = std::max(First(), latest - static_cast<uint64_t>(trained));
  const uint64_t wanted = static_cast<uint64_t>(attempt.newer_than + 1) + behind;
  if (is_over && wanted > latest) {
    return absl::OutOfRangeError(
        latest < First() ? "the run is over, and had no parameters"
                         : absl::StrCat("the run is over; its last iteration is ", trained));
  }
  if (!IsSync()) {
    // A worker that was lost leaves chunks apart, but none that no worker has ever updated.
    if (!is_over || least > 0 || largest == 0) return wanted;
    return absl::FailedPreconditionError(
        absl::StrCat("the run is over, and some chunks have had no update, others up to ", largest,
                     ": a shard has been started again without a checkpoint"));
  }
  if (is_over && least == largest) return latest;
  const std::string apart =
      absl::StrCat("the chunks are at different iterations, ", least, " to ", largest);
  if (is_over) {
    if (++attempt.uneven < kMostUneven) return absl::AbortedError(apart);
    return absl::FailedPreconditionError(absl::StrCat("the run is over, and ", apart));
  }
  const uint64_t k = std::max(wanted, largest + (trains ? attempt.margin : 0));
  attempt.is_ahead = k > std::max(wanted, largest);
  if (!options_.waits_for_workers && !trains && least < k) {
    return absl::FailedPreconditionError(absl::StrCat("no worker trains, and ", apart));
  }
  return k;
}

ParameterServer::Stub* RunReader::StubOf(int shard, const std::string& address) {
  connections_.resize(options_.config->shards());
  Connection& connection = connections_[shard];
  if (connection.stub == nullptr || connection.address != address) {
    connection = {address, ParameterServer::NewStub(CreateBulkChannel(
                               address, options_.config->proto(), {.role = Role::kShard}))};
  }
  return connection.stub.get();
}

absl::Status RunReader::Receive(uint64_t k, Attempt& attempt) {
  const Plan& plan = options_.config->plan();
  const int shards = options_.config->shards();
  std::deque<grpc::ClientContext> contexts(shards);
  const auto cancel_all = [&contexts] {
    for (grpc::ClientContext& context : contexts) context.TryCancel();
  };
  absl::Mutex mutex;
  bool has_begun = false;      // there is a chunk, or a failure
  absl::Status first_failure;  // the others are its consequence
  std::atomic<uint64_t> least_trained = std::numeric_limits<uint64_t>::max();
  std::vector<std::thread> threads;
  for (int shard = 0; shard < shards; ++shard) {
    const std::string& address = *attempt.addresses[shard];
    grpc::ClientContext& context = contexts[shard];
    if (attempt.deadline != absl::InfiniteFuture()) {
      context.set_deadline(absl::ToChronoTime(absl::Now() + (attempt.deadline - clock_.Now())));
    }
    threads.emplace_back([&, shard, stub = StubOf(shard, address)] {
      const absl::Status received = SnapshotShard(
          stub, &context, plan, shard, k, [&](const Chunk& chunk, const ParameterChunk& message) {
            {
              absl::MutexLock lock(&mutex);
              has_begun = true;
            }
            const uint64_t trained = (IsSync() ? k : message.version()) - message.assignments();
            uint64_t least = least_trained;
            while (trained < least && !least_trained.compare_exchange_weak(least, trained)) {
            }
            return attempt.take(chunk, message.data());
          });
      if (received.ok()) return;
      absl::MutexLock lock(&mutex);
      has_begun = true;
      if (!first_failure.ok()) return;
      // When the run is over, the next attempt asks for its last iteration.
      first_failure =
          Named(shard, address,
                absl::IsOutOfRange(received) ? absl::AbortedError(received.message()) : received);
      cancel_all();
    });
  }
  {
    const std::stop_callback cancel(options_.stop, cancel_all);
    if (attempt.is_ahead) {
      absl::MutexLock lock(&mutex);
      attempt.was_early = !mutex.AwaitWithTimeout(absl::Condition(&has_begun), kLongestAhead);
    }
    if (attempt.was_early) cancel_all();
    for (std::thread& thread : threads) thread.join();
  }
  if (!first_failure.ok()) {
    connections_.clear();  // a connection over a unix socket does not come back by itself
    return first_failure;
  }
  attempt.iteration = static_cast<int64_t>(least_trained.load());
  if (attempt.iteration > attempt.newer_than) return absl::OkStatus();
  return absl::AbortedError(absl::StrCat("exchange ", k, " was no iteration of training"));
}

absl::Status RunReader::Sleep(absl::Duration duration, const Attempt& attempt) {
  clock_.SleepUntil(std::min(clock_.Now() + duration, attempt.deadline), options_.stop);
  return options_.stop.stop_requested() ? absl::CancelledError("interrupted") : absl::OkStatus();
}

absl::Status RunReader::AfterFailure(const absl::Status& failure, Attempt& attempt) {
  const absl::Time now = clock_.Now();
  const Limits& limits = options_.config->proto().limits();
  if (attempt.was_early) {
    attempt.margin = attempt.passed = 0;
    attempt.unreachable = now;
    return absl::OkStatus();
  }
  const bool is_unreachable = absl::IsUnavailable(failure) || absl::IsCancelled(failure);
  if (!is_unreachable || now - attempt.reached > kSettled) attempt.unreachable = now;
  if (is_unreachable) {
    const absl::Duration patience = options_.patience.value_or(
        absl::Seconds(has_reached_all_ ? limits.exchange_seconds() : limits.startup_seconds()));
    if (now - attempt.unreachable >= patience) {
      if (patience == absl::ZeroDuration()) return failure;
      if (has_reached_all_) return absl::UnavailableError(failure.message());
      return absl::DeadlineExceededError(
          absl::StrCat(failure.message(), ", for ", absl::FormatDuration(patience),
                       options_.patience.has_value() ? "" : " (limits.startup_seconds)"));
    }
  } else if (absl::IsAborted(failure)) {
    if (++attempt.passed == kMostPassed) return failure;
    attempt.margin = std::max<uint64_t>(1, 2 * attempt.margin);
    return attempt.uneven > 0 ? Sleep(kFirstPause, attempt) : absl::OkStatus();
  } else if (absl::IsResourceExhausted(failure)) {
    if (++attempt.exhausted == kMostExhausted) return failure;
  } else {
    return failure;
  }
  const absl::Duration pause = attempt.pause;
  attempt.pause = std::min(2 * pause, kLongestPause);
  return Sleep(pause, attempt);
}

}  // namespace evenshard
