#include "common/net/asking_limit.h"

#include <catch2/catch.hpp>

#include "absl/time/time.h"

namespace evenshard {
namespace {

constexpr absl::Time kStart = absl::UnixEpoch();
constexpr uint64_t kBurst = 1 << 17;
constexpr uint64_t kRate = 1 << 16;

AskingLimit Limit() {
  Strangers limits;
  limits.set_asking_burst_bytes(kBurst);
  limits.set_asking_bytes_per_second(kRate);
  return {limits, kStart};
}

TEST_CASE("a burst is allowed, and no byte more") {
  AskingLimit limit = Limit();
  CHECK_FALSE(limit.IsOver(kBurst, 0, kStart));
  CHECK(limit.IsOver(kBurst + 1, 0, kStart));
}

TEST_CASE("the rate is allowed for ever, and more is not") {
  for (const uint64_t more : {0, 1}) {
    AskingLimit limit = Limit();
    bool is_over = false;
    for (int second = 1; second <= 3600 && !is_over; ++second) {
      is_over =
          limit.IsOver(second * (kRate + more * kRate / 10), 0, kStart + absl::Seconds(second));
    }
    CHECK(is_over == (more == 1));
  }
}

TEST_CASE("a long silence does not allow a longer burst") {
  AskingLimit limit = Limit();
  CHECK_FALSE(limit.IsOver(10, 0, kStart));
  CHECK(limit.IsOver(10 + kBurst + 1, 0, kStart + absl::Hours(1)));
}

TEST_CASE("who reads much may say so") {
  constexpr uint64_t kRead = 1'000'000'000;
  constexpr auto kWords = static_cast<uint64_t>(kRead / AskingLimit::kReadBytesPerByte);
  AskingLimit silent = Limit();
  CHECK(silent.IsOver(kWords, 0, kStart));
  AskingLimit reading = Limit();
  bool is_over = false;
  for (int i = 1; i <= 1000; ++i) {
    is_over |= reading.IsOver(kWords / 1000 * i, kRead / 1000 * i, kStart);
  }
  CHECK_FALSE(is_over);
}

}  // namespace
}  // namespace evenshard
