#ifndef PS_COMMON_CONFIG_CONFIG_VALIDATION_H_
#define PS_COMMON_CONFIG_CONFIG_VALIDATION_H_

#include <cstdint>

#include "common/config/config_problems.h"
#include "common/model/model.h"
#include "proto/config.pb.h"

namespace ps {

// Checks every field, and every combination of fields, that can be judged without
// the model. docs/configuration.md lists the ranges.
void ValidateFields(const ClusterConfig& config, FieldProblems* problems);

// The part of ValidateFields for `training` and `data` (config_validation_data.cc).
void ValidateTraining(const ClusterConfig& config, FieldProblems* problems);
void ValidateData(const ClusterConfig& config, FieldProblems* problems);

// Whether limits.chunk_bytes may have this value.
bool IsChunkBytes(int64_t bytes);

// Whether the shards' rates are in range, and given for all of them or for none.
bool AreShardRates(const ClusterConfig& config);

// Checks that the backend can train the model, and that the images and classes of the data
// fit it.
void ValidateComputeAgainstModel(const ClusterConfig& config, const Model& model,
                                 FieldProblems* problems);
void ValidateDataAgainstModel(const ClusterConfig& config, const Model& model,
                              FieldProblems* problems);

}  // namespace ps

#endif  // PS_COMMON_CONFIG_CONFIG_VALIDATION_H_
