#include "client/client_reader.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "client/interrupt_check.h"
#include "common/base/clock.h"
#include "common/base/status_macros.h"
#include "common/process/exchange_setup.h"
#include "common/reader/process_calls.h"

namespace evenshard {
namespace {

// How long the ps processes may take to say which model the workers have brought, and how soon they
// are asked again.
constexpr absl::Duration kAnswer = absl::Seconds(5);
constexpr absl::Duration kPause = absl::Milliseconds(100);

// Waits for the workers' model, if the config has none.
absl::StatusOr<PlannedConfig> AwaitModel(const PlannedConfig& config, const std::stop_token& stop) {
  const RealClock clock;
  const double seconds = config.proto().limits().startup_seconds();
  const absl::Time deadline = clock.Now() + absl::Seconds(seconds);
  while (true) {
    absl::StatusOr<PlannedConfig> found =
        WithModel(config, std::min(kAnswer, deadline - clock.Now()), stop);
    if (stop.stop_requested()) return absl::CancelledError("interrupted");
    if (!absl::IsUnavailable(found.status())) return found;
    if (clock.Now() + kPause >= deadline) {
      return absl::DeadlineExceededError(absl::StrCat(found.status().message(), "; waited for ",
                                                      seconds, " s (limits.startup_seconds)"));
    }
    clock.SleepUntil(clock.Now() + kPause, stop);
  }
}

}  // namespace

absl::StatusOr<std::unique_ptr<ClientReader>> ClientReader::Create(const PlannedConfig& given) {
  SetUpExchange();
  std::stop_source stop;
  std::unique_ptr<ClientReader> reader;
  RETURN_IF_ERROR(RunInterruptibly(
      [&]() -> absl::Status {
        ASSIGN_OR_RETURN(PlannedConfig config, AwaitModel(given, stop.get_token()));
        reader.reset(new ClientReader(std::move(config)));
        return absl::OkStatus();
      },
      [&] { stop.request_stop(); }));
  return reader;
}

absl::StatusOr<int64_t> ClientReader::Pull(int64_t newer_than, double timeout_seconds,
                                           float* const* out) {
  const absl::Duration timeout =
      timeout_seconds < 0 ? absl::InfiniteDuration() : absl::Seconds(timeout_seconds);
  int64_t iteration = -1;
  RETURN_IF_ERROR(RunInterruptibly(
      [&]() -> absl::Status {
        ASSIGN_OR_RETURN(iteration,
                         reader_.Pull(
                             newer_than, timeout, [] { return absl::OkStatus(); },
                             [out](const Chunk& chunk, absl::string_view data) {
                               if (float* const tensor = out[chunk.tensor]; tensor != nullptr) {
                                 std::memcpy(tensor + chunk.begin, data.data(), data.size());
                               }
                               return absl::OkStatus();
                             }));
        return absl::OkStatus();
      },
      [this] { Interrupt(); }));
  return iteration;
}

}  // namespace evenshard
