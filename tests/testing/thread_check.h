#ifndef EVENSHARD_TESTS_TESTING_THREAD_CHECK_H_
#define EVENSHARD_TESTS_TESTING_THREAD_CHECK_H_

#include <cstdio>
#include <cstdlib>
#include <source_location>

namespace evenshard {

// Ends the program unless the condition holds. For threads other than the test's own, in which
// Catch's macros must not be used.
inline void ThreadCheck(bool condition,
                        std::source_location where = std::source_location::current()) {
  if (condition) return;
  std::fprintf(stderr, "%s:%u: ThreadCheck failed\n", where.file_name(), where.line());
  std::abort();
}

}  // namespace evenshard

#endif  // EVENSHARD_TESTS_TESTING_THREAD_CHECK_H_
