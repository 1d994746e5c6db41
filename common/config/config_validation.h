#ifndef PS_COMMON_CONFIG_CONFIG_VALIDATION_H_
#define PS_COMMON_CONFIG_CONFIG_VALIDATION_H_

#include "common/config/config_problems.h"
#include "common/model/model.h"
#include "proto/config.pb.h"

namespace ps {

// Checks every field and combination of fields that can be checked without the model.
// docs/configuration.md lists what is allowed.
void ValidateFields(const ClusterConfig& config, FieldProblems* problems);

// The parts of ValidateFields for `training` and `data`, in config_validation_data.cc.
void ValidateTraining(const ClusterConfig& config, FieldProblems* problems);
void ValidateData(const ClusterConfig& config, FieldProblems* problems);

// Returns whether limits.chunk_bytes is in range or absent, to be chosen.
bool IsChunkBytesOrAbsent(const Limits& limits);

// Checks limits.held_bytes against limits.chunk_bytes, which must be there.
void ValidateHeldBytes(const Limits& limits, FieldProblems* problems);

// Returns whether the shards' rates are in range and are given for all shards or for none.
bool AreShardRates(const ClusterConfig& config);

// Check that the backend can train the model, and that the images and classes of the data fit the
// model.
void ValidateComputeAgainstModel(const ClusterConfig& config, const Model& model,
                                 FieldProblems* problems);
void ValidateDataAgainstModel(const ClusterConfig& config, const Model& model,
                              FieldProblems* problems);

}  // namespace ps

#endif  // PS_COMMON_CONFIG_CONFIG_VALIDATION_H_
