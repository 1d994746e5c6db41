// What becomes of stale gradients under ASYNC and SSP, against the formulas of docs/modes.md. All
// numbers are small multiples of powers of two, so that float32 has them exactly.

#include <catch2/catch.hpp>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/server/update/policy_fixture.h"

namespace evenshard {
namespace {

// A push of a worker, at its next iteration.
struct Push {
  int rank;
  float gradient;
  uint32_t staleness;
};
const std::vector<Push> kPushes = {{0, 4, 1}, {1, -8, 1}, {0, 16, 0}, {0, 2, 3}, {1, 1, 1}};

// What kPushes take from a parameter.
struct Reference {
  bool divides;
  bool per_worker;
  bool nesterov;

  float Applied() const {
    constexpr float kRate = 0.5;
    constexpr float kMomentum = 0.5;
    float applied = 0;
    float velocities[2] = {};
    for (const Push& push : kPushes) {
      float& v = velocities[per_worker ? push.rank : 0];
      v = kMomentum * v + push.gradient;
      const float rate = divides ? kRate / static_cast<float>(1 + push.staleness) : kRate;
      applied += rate * (nesterov ? push.gradient + kMomentum * v : v);
    }
    return applied;
  }
};

class AsynchronyFixture : public PolicyFixture {
 public:
  void StartWith(const std::string& kind, const std::string& update) {
    Start(2, {absl::StrCat("update={", update, "}"),
              absl::StrCat("optimizer={kind: ", kind, " learning_rate: 0.5",
                           kind == "SGD" ? "" : " momentum: 0.5", "}")});
    // Without the rounding of a drawn value.
    for (StoredChunk& chunk : store->chunks()) {
      absl::MutexLock lock(&chunk.mutex);
      for (float& value : chunk.mutable_array(0)) value = 0;
    }
    start = 0;
  }
  float AppliedByPushes() {
    int next[2] = {};
    for (const evenshard::Push& push : kPushes) {
      staleness = push.staleness;
      CHECK(PolicyFixture::Push(push.rank, next[push.rank]++, push.gradient).ok());
    }
    return Applied();
  }
};

}  // namespace

TEST_CASE_METHOD(AsynchronyFixture, "by default a rule with momentum has a velocity per worker") {
  const std::string update = GENERATE("policy: ASYNC", "policy: SSP staleness: 9");
  const bool nesterov = GENERATE(false, true);
  StartWith(nesterov ? "NESTEROV" : "MOMENTUM", update);
  CHECK(AppliedByPushes() == Reference{true, true, nesterov}.Applied());
  CHECK(store->chunks()[0].arrays() == 3);  // the parameters and two velocities
}

TEST_CASE_METHOD(AsynchronyFixture, "rate and velocity can be chosen") {
  const bool divides = GENERATE(false, true);
  const bool per_worker = GENERATE(false, true);
  StartWith("NESTEROV",
            absl::StrCat("policy: ASYNC asynchrony { rate: ", divides ? "BY_STALENESS" : "CONSTANT",
                         " velocity: ", per_worker ? "PER_WORKER" : "SHARED", " }"));
  CHECK(AppliedByPushes() == Reference{divides, per_worker, true}.Applied());
  CHECK(store->chunks()[0].arrays() == (per_worker ? 3 : 2));
}

TEST_CASE_METHOD(AsynchronyFixture, "SGD's rate is constant unless the config says otherwise") {
  StartWith("SGD", "policy: ASYNC");
  CHECK(AppliedByPushes() == 0.5f * (4 - 8 + 16 + 2 + 1));
}

TEST_CASE_METHOD(AsynchronyFixture, "SGD's rate may be divided too, and the observers are told") {
  StartWith("SGD", "policy: ASYNC asynchrony { rate: BY_STALENESS }");
  CHECK(AppliedByPushes() == 0.5f * (2 - 4 + 16 + 0.5f + 0.5f));
  REQUIRE(observer.changes.size() == kPushes.size());
  CHECK(observer.changes[3].rate.pushed.learning_rate == 0.125f);
  CHECK(observer.changes[4].rate.worker == 1);
}

}  // namespace evenshard
