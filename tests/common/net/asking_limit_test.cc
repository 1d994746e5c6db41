#include "common/net/asking_limit.h"

#include <algorithm>
#include <catch2/catch.hpp>

#include "absl/time/time.h"

namespace evenshard {
namespace {

constexpr absl::Time kStart = absl::UnixEpoch();
constexpr uint64_t kRate = 1 << 16;

AskingLimit Limit() {
  Strangers limits;
  limits.set_asking_bytes_per_second(kRate);
  return {limits, kStart};
}

TEST_CASE("what is sent counts until its time has passed") {
  AskingLimit limit = Limit();
  CHECK(limit.Level(kRate, 0, kStart) == kRate);
  CHECK(limit.Level(kRate, 0, kStart + absl::Seconds(0.25)) == Approx(0.75 * kRate));
  CHECK(limit.Level(2 * kRate, 0, kStart + absl::Seconds(0.5)) == Approx(1.5 * kRate));
  CHECK(limit.Level(2 * kRate, 0, kStart + absl::Seconds(2)) == 0);
}

TEST_CASE("the rate is allowed for ever, and more is not") {
  for (const uint64_t more : {0, 1}) {
    AskingLimit limit = Limit();
    double level = 0;
    for (int second = 1; second <= 3600; ++second) {
      level = limit.Level(second * (kRate + more * kRate / 10), 0, kStart + absl::Seconds(second));
    }
    CHECK(level == Approx(kRate + more * 360.0 * kRate).epsilon(0.01));
  }
}

TEST_CASE("a long silence does not allow more later") {
  AskingLimit limit = Limit();
  CHECK(limit.Level(10, 0, kStart) == 10);
  CHECK(limit.Level(10 + kRate, 0, kStart + absl::Hours(1)) == kRate);
}

TEST_CASE("who reads much may say so") {
  constexpr uint64_t kRead = 1'000'000'000;
  constexpr auto kWords = static_cast<uint64_t>(kRead / AskingLimit::kReadBytesPerByte);
  CHECK(Limit().Level(kWords, 0, kStart) == kWords);
  AskingLimit reading = Limit();
  double most = 0;
  for (int i = 1; i <= 1000; ++i) {
    most = std::max(most, reading.Level(kWords / 1000 * i, kRead / 1000 * i, kStart));
  }
  CHECK(most < kWords / 100);
}

}  // namespace
}  // namespace evenshard
