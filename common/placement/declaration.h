#ifndef EVENSHARD_COMMON_PLACEMENT_DECLARATION_H_
#define EVENSHARD_COMMON_PLACEMENT_DECLARATION_H_

#include <string>

#include "proto/config.pb.h"

namespace evenshard {

// What a declared model has where another differs first, such as "tensor 3 is fc.weight [10, 16],
// and fc.weight [10, 32] there". Empty if the two are the same.
std::string DeclaredDifference(const FromWorkers& model, const FromWorkers& other);

// The same for whole declarations.
std::string DeclarationDifference(const Declaration& declaration, const Declaration& other);

// What a whole config, as a worker sends it, says of the worker's declaration.
Declaration DeclarationOf(const ClusterConfig& config, bool with_optimizer);

}  // namespace evenshard

#endif  // EVENSHARD_COMMON_PLACEMENT_DECLARATION_H_
