#ifndef EVENSHARD_COMMON_CONFIG_PARAMETER_ENCODINGS_H_
#define EVENSHARD_COMMON_CONFIG_PARAMETER_ENCODINGS_H_

#include "proto/encoding.pb.h"

namespace evenshard {

// Whether parameters may travel in an encoding, and workers may have them so in memory. The others
// are for gradients only: the errors of gradients average out over workers and iterations, and
// those of parameters do not.
inline bool IsForParameters(Encoding encoding) {
  return encoding == FLOAT32 || encoding == FLOAT16 || encoding == BFLOAT16;
}

}  // namespace evenshard

#endif  // EVENSHARD_COMMON_CONFIG_PARAMETER_ENCODINGS_H_
