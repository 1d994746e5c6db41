#include "common/placement/simulator/busy_times.h"

#include <catch2/catch.hpp>
#include <vector>

namespace evenshard {
namespace {

TEST_CASE("each bin has the fraction of it in which the link was busy") {
  BusyTimes times;
  CHECK(times.Fractions(0, 1, 2) == std::vector<double>{0, 0});
  times.Add(1, 2);
  times.Add(2, 3.5);
  times.Add(5, 5.25);
  times.Add(7, 100);
  CHECK(times.Fractions(0, 8, 8) == std::vector<double>{0, 1, 1, 0.5, 0, 0.25, 0, 1});
  CHECK(times.Fractions(2, 6, 2) == std::vector<double>{0.75, 0.125});
  CHECK(times.Fractions(0, 8, 1) == std::vector<double>{3.75 / 8});
  CHECK(times.Fractions(3.5, 5, 3) == std::vector<double>{0, 0, 0});
}

}  // namespace
}  // namespace evenshard
