// The arithmetic on gradients and parameters gives the same bits on every processor.

#include <catch2/catch.hpp>
#include <random>
#include <sstream>
#include <string>

#include "tests/testing/program.h"

namespace evenshard {
namespace {

std::string Run(const std::string& name, uint32_t seed) {
  Program program({"tests/server/arithmetic/" + name, std::to_string(seed)});
  REQUIRE(program.Wait() == 0);
  return program.output();
}

// Returns the lines that begin with `prefix`, without it.
std::string LinesOf(const std::string& output, const std::string& prefix) {
  std::istringstream lines(output);
  std::string found;
  for (std::string line; std::getline(lines, line);) {
    if (line.rfind(prefix, 0) == 0) found += line.substr(prefix.size()) + "\n";
  }
  return found;
}

TEST_CASE("every instruction set gives the same bits") {
  const auto seed = std::random_device()();
  CAPTURE(seed);
  const std::string expected = Run("arithmetic_baseline", seed);
  CHECK_THAT(expected, Catch::Contains("ADAM with a sum, clipped: "));
  CHECK_THAT(expected, Catch::Contains("squares: "));
  CHECK_THAT(expected, Catch::Contains("norms: "));
  CHECK_THAT(expected, Catch::Contains("GAP_AWARE: "));
  CHECK_THAT(expected, Catch::Contains("INT4 encode by chance: "));
  CHECK(Run("arithmetic_baseline", seed + 1) != expected);
  CHECK(Run("arithmetic_chosen", seed) == expected);
#ifdef __x86_64__
  if (__builtin_cpu_supports("avx2")) CHECK(Run("arithmetic_avx2", seed) == expected);
  if (__builtin_cpu_supports("avx512f")) CHECK(Run("arithmetic_avx512f", seed) == expected);
#endif
  const std::string with =
      LinesOf(expected, "FLOAT16 encode") + LinesOf(expected, "FLOAT16 decode");
  CHECK(with == LinesOf(expected, "FLOAT16 without instructions encode") +
                    LinesOf(expected, "FLOAT16 without instructions decode"));
}

}  // namespace
}  // namespace evenshard
