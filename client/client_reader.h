#ifndef EVENSHARD_CLIENT_CLIENT_READER_H_
#define EVENSHARD_CLIENT_CLIENT_READER_H_

#include <cstdint>
#include <memory>
#include <stop_token>

#include "absl/status/statusor.h"
#include "common/placement/planned_config.h"
#include "common/reader/run_reader.h"

namespace evenshard {

// A reader of client/evenshard.h. That header describes each method. Not thread-safe, except for
// Interrupt.
class ClientReader {
 public:
  static absl::StatusOr<std::unique_ptr<ClientReader>> Create(const PlannedConfig& given);

  const PlannedConfig& config() const { return config_; }

  // `timeout_seconds` below 0: none.
  absl::StatusOr<int64_t> Pull(int64_t newer_than, double timeout_seconds, float* const* out);
  void Interrupt() { stop_.request_stop(); }

 private:
  explicit ClientReader(PlannedConfig config)
      : config_(std::move(config)), reader_({.config = &config_, .stop = stop_.get_token()}) {}

  const PlannedConfig config_;
  std::stop_source stop_;
  RunReader reader_;
};

}  // namespace evenshard

#endif  // EVENSHARD_CLIENT_CLIENT_READER_H_
