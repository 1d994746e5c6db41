#include "common/placement/simulator/network/framing.h"

#include <catch2/catch.hpp>

namespace evenshard {
namespace {

TEST_CASE("the payload of a link is its rate less the framing") {
  CHECK(PayloadBytesPerSecond(10, {}) == Approx(1.25e9 * 1448 / 1514));
  CHECK(PayloadBytesPerSecond(10, {.on_cable = true}) == Approx(1.25e9 * 1448 / 1538));
  CHECK(PayloadBytesPerSecond(1, {.mtu = 9000}) == Approx(1.25e8 * 8948 / 9014));
}

}  // namespace
}  // namespace evenshard
