#ifndef EVENSHARD_COMMON_CHECKPOINT_STATES_BY_NAME_H_
#define EVENSHARD_COMMON_CHECKPOINT_STATES_BY_NAME_H_

#include <map>
#include <string>

namespace evenshard {

// What the workers have registered beside the model, such as schedulers, by name. It is part of
// slot 0's state, and in its checkpoints. The texts are the workers' own.
using StatesByName = std::map<std::string, std::string>;

}  // namespace evenshard

#endif  // EVENSHARD_COMMON_CHECKPOINT_STATES_BY_NAME_H_
