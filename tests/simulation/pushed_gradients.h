#ifndef EVENSHARD_TESTS_SIMULATION_PUSHED_GRADIENTS_H_
#define EVENSHARD_TESTS_SIMULATION_PUSHED_GRADIENTS_H_

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "common/placement/planned_config.h"
#include "common/wire/chunk_codec.h"
#include "worker/exchange/core/gradient_encoder.h"

namespace evenshard {

// What a simulated worker pushes: its memory of gradients, with the real GradientEncoder. It sees
// to it that each repeat of a push has the bytes of the first one, and that what was dropped is in
// the next one if it is to be carried.
class PushedGradients {
 public:
  // `config` must outlive this. `settles_early`: Plant::kSettlesEarly.
  PushedGradients(const PlannedConfig* config, int rank, bool settles_early);

  // By chunk: what the worker has computed, or assigns. Begin copies it to the memory.
  std::vector<std::vector<float>>& values() { return values_; }
  void Begin(bool assigns);

  // The data of a push, and its values as they arrive. Errors: INTERNAL for a repeat that differs.
  struct Push {
    std::string data;
    std::vector<float> arrives;
  };
  absl::StatusOr<Push> Take(const GradientHeader& header);
  void Answered(const ParameterHeader& header, bool contributes);
  // The run has gone back to a checkpoint.
  void GoBack();

 private:
  bool carries() const {
    return config_.has_quorum() && config_.proto().update().late() == Update::CARRY;
  }
  const char* memory() const { return reinterpret_cast<const char*>(memory_.data()); }

  const PlannedConfig& config_;
  const bool settles_early_;
  std::vector<std::vector<float>> values_;
  std::vector<float> memory_;
  std::unique_ptr<GradientEncoder> encoder_;
  std::map<uint32_t, std::pair<uint64_t, std::string>> latest_;  // by chunk: iteration and data
  // update.late: CARRY, without an encoding: what was dropped of each chunk, and is to be in the
  // next push.
  std::map<uint32_t, std::vector<float>> dropped_;
};

}  // namespace evenshard

#endif  // EVENSHARD_TESTS_SIMULATION_PUSHED_GRADIENTS_H_
