#ifndef EVENSHARD_COMMON_PLACEMENT_MODEL_CHECKS_H_
#define EVENSHARD_COMMON_PLACEMENT_MODEL_CHECKS_H_

#include "common/config/text/config_problems.h"
#include "common/placement/model/model.h"
#include "proto/config.pb.h"

namespace evenshard {

// Checks of a config that depend on its model or on the profiles of devices. Each adds the problems
// that it finds to `problems`, with the field at fault.

// AUTO needs the time of each layer, and so the profile of a device.
void CheckProfile(const ClusterConfig& config, FieldProblems* problems);

// A model that workers bring is within limits.model_bytes.
void CheckModelBytes(const Limits& limits, const Model& model, FieldProblems* problems);

// The backend can train the model.
void CheckCompute(const ClusterConfig& config, const Model& model, FieldProblems* problems);

// The images and classes of the data fit the model.
void CheckData(const ClusterConfig& config, const Model& model, FieldProblems* problems);

// Each rule of an optimizer, whose path is given, counts for one of the model's tensors.
void CheckOptimizer(const OptimizerConfig& optimizer, absl::string_view path, const Model& model,
                    FieldProblems* problems);

// Each fragment has a layer to exchange.
void CheckFragments(const LocalSteps& local, const Model& model, FieldProblems* problems);

// Updates are rounded only where workers have parameters as the shards do.
void CheckUpdateEncoding(const ExchangeConfig& exchange, const Model& model,
                         FieldProblems* problems);

// Sets the fields whose default depends on the model: the stride of a pool,
// data.synthetic.shape and .classes, and data.image_folder.resize.
void SetModelDefaults(const Model& model, ClusterConfig* config);

}  // namespace evenshard

#endif  // EVENSHARD_COMMON_PLACEMENT_MODEL_CHECKS_H_
