#include "worker/compute/cpu/thread_count.h"

#include <catch2/catch.hpp>

namespace evenshard {
namespace {

TEST_CASE("the number of OpenMP threads holds for a scope and then is what it was") {
  const int before = omp_get_max_threads();
  {
    const ThreadCountScope outer(3);
    CHECK(omp_get_max_threads() == 3);
    {
      const ThreadCountScope inner(5);
      CHECK(omp_get_max_threads() == 5);
    }
    CHECK(omp_get_max_threads() == 3);
  }
  CHECK(omp_get_max_threads() == before);
}

}  // namespace
}  // namespace evenshard
