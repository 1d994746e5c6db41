#ifndef EVENSHARD_COMMON_PLACEMENT_DECLARATION_H_
#define EVENSHARD_COMMON_PLACEMENT_DECLARATION_H_

#include <string>

#include "proto/config.pb.h"

namespace evenshard {

// Returns the first difference between a declared model and another one, such as "tensor 3 is
// fc.weight [10, 16], and fc.weight [10, 32] there". Empty if the two are the same.
std::string DeclaredDifference(const FromWorkers& model, const FromWorkers& other);

// The same for whole declarations.
std::string DeclarationDifference(const Declaration& declaration, const Declaration& other);

// Returns the declaration that makes the whole config of a run, which a worker sends, of the config
// in the run's file.
Declaration DeclarationOf(const ClusterConfig& whole, const ClusterConfig& file);

}  // namespace evenshard

#endif  // EVENSHARD_COMMON_PLACEMENT_DECLARATION_H_
