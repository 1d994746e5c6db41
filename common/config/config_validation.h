#ifndef EVENSHARD_COMMON_CONFIG_CONFIG_VALIDATION_H_
#define EVENSHARD_COMMON_CONFIG_CONFIG_VALIDATION_H_

#include <cmath>
#include <string>

#include "absl/strings/string_view.h"
#include "common/config/text/config_problems.h"
#include "proto/config.pb.h"

namespace evenshard {

// Checks every field and combination of fields that can be checked without the model.
// docs/configuration.md lists what is allowed.
void ValidateFields(const ClusterConfig& config, FieldProblems* problems);

// The part of ValidateFields for `optimizer`, in config_validation_optimizer.cc.
void ValidateOptimizer(const ClusterConfig& config, FieldProblems* problems);

// The parts of ValidateFields for `training` and `data`, in config_validation_data.cc.
void ValidateTraining(const ClusterConfig& config, FieldProblems* problems);
void ValidateData(const ClusterConfig& config, FieldProblems* problems);

// The part for model.from_workers, in the same file: which other fields such a config may have.
void ValidateFromWorkers(const ClusterConfig& config, FieldProblems* problems);

// The part for model.initial_parameters, there too.
void ValidateInitialParameters(const ModelSpec& model, FieldProblems* problems);

// The parts for `recovery`, in config_validation_recovery.cc. The second one needs
// limits.chunk_bytes, which must be set.
void ValidateRecovery(const ClusterConfig& config, FieldProblems* problems);
void ValidateChunkState(const ClusterConfig& config, FieldProblems* problems);

// The parts for `topology` and `ring`, in config_validation_ring.cc. The second one needs
// limits.chunk_bytes, which must be set.
void ValidateRing(const ClusterConfig& config, FieldProblems* problems);
void ValidateBuckets(const ClusterConfig& config, FieldProblems* problems);

// The part for `security` and the TLS of recovery.etcd, in config_validation_security.cc. Whether
// files are there and right is checked where they are used (common/security/tls_files.h).
void ValidateSecurity(const ClusterConfig& config, FieldProblems* problems);

// Ranges of numbers, which exclude NaN and infinity, and their names in errors.
inline constexpr char kAtLeastZero[] = "a number of at least 0";
inline constexpr char kAboveZero[] = "a number above 0";
inline bool IsAtLeastZero(double value) { return std::isfinite(value) && value >= 0; }
inline bool IsAboveZero(double value) { return std::isfinite(value) && value > 0; }

// A week. A longer time is a mistake.
inline constexpr double kMaxSeconds = 7 * 24 * 3600;
// Checks that a time is above 0 and at most kMaxSeconds.
void ValidateTime(const char* field, double seconds, FieldProblems* problems);

// Refuses a field that is set but has no effect, because the user who set it expects one.
void ValidateUse(bool is_set, bool is_used, const std::string& field, absl::string_view kind_field,
                 const std::string& kind, absl::string_view used_by, FieldProblems* problems);

// Returns whether limits.chunk_bytes is in range or absent, to be chosen.
bool IsChunkBytesOrAbsent(const Limits& limits);

// Checks limits.held_bytes against limits.chunk_bytes, which must be there.
void ValidateHeldBytes(const Limits& limits, FieldProblems* problems);

// Returns whether the shards' rates are in range and are given for all shards or for none.
bool AreShardRates(const ClusterConfig& config);

}  // namespace evenshard

#endif  // EVENSHARD_COMMON_CONFIG_CONFIG_VALIDATION_H_
