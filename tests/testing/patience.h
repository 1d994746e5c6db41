#ifndef EVENSHARD_TESTS_TESTING_PATIENCE_H_
#define EVENSHARD_TESTS_TESTING_PATIENCE_H_

#include "absl/time/time.h"

namespace evenshard {

// How long a test waits for what must happen before it fails. A sanitizer makes all programs slow.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
inline constexpr absl::Duration kPatience = absl::Minutes(10);
#else
inline constexpr absl::Duration kPatience = absl::Minutes(1);
#endif

}  // namespace evenshard

#endif  // EVENSHARD_TESTS_TESTING_PATIENCE_H_
