#ifndef EVENSHARD_TESTS_TESTING_NO_DESCRIPTORS_H_
#define EVENSHARD_TESTS_TESTING_NO_DESCRIPTORS_H_

#include <sys/resource.h>
#include <unistd.h>

#include <catch2/catch.hpp>

namespace evenshard {

// While this lives, the process gets no further file descriptor.
class NoDescriptors {
 public:
  NoDescriptors() {
    REQUIRE(getrlimit(RLIMIT_NOFILE, &before_) == 0);
    const int next = dup(STDIN_FILENO);  // gets the lowest number
    REQUIRE(next >= 0);
    close(next);
    const rlimit none = {.rlim_cur = static_cast<rlim_t>(next), .rlim_max = before_.rlim_max};
    REQUIRE(setrlimit(RLIMIT_NOFILE, &none) == 0);
  }
  NoDescriptors(const NoDescriptors&) = delete;
  NoDescriptors& operator=(const NoDescriptors&) = delete;
  ~NoDescriptors() { setrlimit(RLIMIT_NOFILE, &before_); }

 private:
  rlimit before_;
};

}  // namespace evenshard

#endif  // EVENSHARD_TESTS_TESTING_NO_DESCRIPTORS_H_
