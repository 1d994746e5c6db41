// The block-scaled formats give the bytes of the numpy reference in tests/golden.

#include <catch2/catch.hpp>
#include <cstring>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "absl/strings/escaping.h"
#include "common/wire/block_scaled.h"

namespace evenshard {
namespace {

const BlockScaled& FormatOf(const std::string& name) {
  return name == "INT8" ? Int8() : name == "INT4" ? Int4() : E3m0();
}

TEST_CASE("the formats give the golden bytes") {
  std::ifstream file("tests/golden/block_scaled.golden");
  REQUIRE(file.is_open());
  int cases = 0;
  for (std::string line; std::getline(file, line); ++cases) {
    std::istringstream words(line);
    std::string encoding, rounding_name, value_hex, byte_hex;
    words >> encoding >> rounding_name;
    Rounding rounding;
    if (rounding_name == "STOCHASTIC") {
      uint64_t worker = 0, iteration = 0, first = 0;
      words >> worker >> iteration >> first;
      rounding = {true, RoundingKey(static_cast<uint32_t>(worker), iteration),
                  static_cast<uint32_t>(first)};
    }
    words >> value_hex >> byte_hex;
    const std::string memory = absl::HexStringToBytes(value_hex);
    std::vector<float> values(memory.size() / sizeof(float));
    std::memcpy(values.data(), memory.data(), memory.size());
    const BlockScaled& format = FormatOf(encoding);
    const auto n = static_cast<int64_t>(values.size());
    std::string bytes(format.Bytes(n), '\0');
    format.encode(values.data(), n, rounding, bytes.data());
    CAPTURE(encoding, rounding_name, values.size());
    REQUIRE(absl::BytesToHexString(bytes) == byte_hex);
  }
  CHECK(cases == 60);
}

}  // namespace
}  // namespace evenshard
