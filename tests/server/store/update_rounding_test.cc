#include "server/store/update_rounding.h"

#include <catch2/catch.hpp>
#include <cmath>
#include <random>
#include <string>
#include <vector>

#include "common/wire/encoding.h"

namespace evenshard {
namespace {

std::vector<float> Numbers(std::mt19937& random, int64_t n, float deviation) {
  std::normal_distribution<float> normal(0, deviation);
  std::vector<float> numbers(n);
  for (float& number : numbers) number = normal(random);
  return numbers;
}

}  // namespace

TEST_CASE("parameters change by what is sent, and what that lacks is in the next update") {
  std::mt19937 random(1);
  for (const Encoding encoding : {INT8, INT4, E3M0}) {
    for (const int64_t n : {1, 63, 2048, 5000}) {
      CAPTURE(EncodingName(encoding), n);
      std::vector<float> parameters = Numbers(random, n, 1), residual(n);
      std::vector<double> exact(parameters.begin(), parameters.end());
      UpdateRounding rounding(encoding, absl::MakeSpan(residual));
      CHECK(rounding.EncodedUpdate(0).empty());
      for (uint64_t version = 1; version <= 20; ++version) {
        const std::vector<float> before = parameters;
        const std::vector<float> update = Numbers(random, n, 0.01F);
        std::vector<float> owed(n);
        for (int64_t i = 0; i < n; ++i) {
          parameters[i] += update[i];
          exact[i] += update[i];
          owed[i] = parameters[i] - before[i] + residual[i];
        }
        rounding.Round(before, version, absl::MakeSpan(parameters));
        const absl::Span<const char> sent = rounding.EncodedUpdate(version);
        std::string expected(EncodedBytes(encoding, n), '\0');
        Encode(encoding, owed, expected.data());
        REQUIRE(std::string(sent.begin(), sent.end()) == expected);
        CHECK(rounding.EncodedUpdate(version - 1).empty());
        std::vector<float> change(n);
        Decode(encoding, {sent}, absl::MakeSpan(change));
        for (int64_t i = 0; i < n; ++i) {
          REQUIRE(parameters[i] == before[i] + change[i]);
          REQUIRE(residual[i] == owed[i] - change[i]);
        }
      }
      // However many updates there were, only the residual is missing.
      for (int64_t i = 0; i < n; ++i) {
        REQUIRE(std::abs(parameters[i] + residual[i] - exact[i]) < 1e-5);
      }
      rounding.Forget();
      CHECK(rounding.EncodedUpdate(20).empty());
    }
  }
}

}  // namespace evenshard
