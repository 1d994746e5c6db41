// How stale gradients are corrected under ASYNC and SSP (Asynchrony.Correction): pushes of three
// workers against the formulas, computed here by hand. tests/server/store has the arithmetic.

#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/server/update/policy_fixture.h"

namespace evenshard {
namespace {

constexpr double kRate = 0.5;

// What becomes of one element.
class Reference {
 public:
  Reference(std::string kind, double lambda) : kind_(std::move(kind)), lambda_(lambda) {}

  // `read`: what the worker had read, or nothing if the shard does not know it.
  void Push(double g, std::optional<double> read) {
    const double delta = read.has_value() ? w - *read : 0;
    if (kind_ == "DELAY_COMPENSATION") {
      Apply(g + lambda_ * g * g * delta);
    } else if (kind_ == "ADAPTIVE_DELAY_COMPENSATION") {
      square_ = 0.95 * square_ + 0.05 * g * g;
      Apply(g + lambda_ / std::sqrt(square_ + 1e-7) * g * g * delta);
    } else {
      const double corrected = delta == 0 ? g : g / (1 + std::abs(delta) / std::sqrt(square_));
      const double step = kRate * corrected;
      Apply(corrected);
      square_ = square_ == 0 ? step * step : 0.95 * square_ + 0.05 * step * step;
    }
  }

  double w = 0;

 private:
  void Apply(double g) { w -= kRate * g; }

  const std::string kind_;
  const double lambda_;
  double square_ = 0;
};

class CorrectionFixture : public PolicyFixture {
 public:
  void StartWith(const std::string& asynchrony, const std::string& policy = "policy: ASYNC",
                 const std::string& optimizer = "kind: SGD learning_rate: 0.5", int workers = 3) {
    Start(workers, {absl::StrCat("update={", policy, " asynchrony { ", asynchrony, " }}"),
                    absl::StrCat("optimizer={", optimizer, "}")});
    for (StoredChunk& chunk : store->chunks()) {
      absl::MutexLock lock(&chunk.mutex);
      for (float& value : chunk.mutable_array(0)) value = 0;
    }
    for (int rank = 0; rank < workers; ++rank) Send(rank);
  }
  // Sends a worker the parameters, as a reply does.
  void Send(int rank) {
    StoredChunk& chunk = store->chunks()[0];
    absl::ReaderMutexLock lock(&chunk.mutex);
    chunk.sent().Note(rank);
    held[rank] = chunk.version();
    read[rank] = chunk.parameters()[0];
  }
  void Push(int rank, float gradient, bool is_answered = true) {
    base_version = held[rank];
    REQUIRE(PolicyFixture::Push(rank, next[rank]++, gradient).ok());
    if (is_answered) Send(rank);
  }

  static constexpr int kMostWorkers = 8;
  uint64_t held[kMostWorkers] = {};
  float read[kMostWorkers] = {};
  uint64_t next[kMostWorkers] = {};
};

struct Pushed {
  int rank;
  float gradient;
};
// The pushes are of staleness 0, 1, 0, 2, 1, 3, 2.
const std::vector<Pushed> kPushes = {{0, 1}, {1, -2}, {1, 3}, {0, 0.5}, {1, 2}, {2, 1.5}, {0, -1}};

}  // namespace

TEST_CASE_METHOD(CorrectionFixture,
                 "each worker's gradient is corrected by what it was itself sent") {
  const auto [kind, text, lambda] = GENERATE(table<std::string, std::string, double>({
      {"DELAY_COMPENSATION", "", 0.04},
      {"DELAY_COMPENSATION", " lambda: 0.25", 0.25},
      {"ADAPTIVE_DELAY_COMPENSATION", "", 2},
      {"ADAPTIVE_DELAY_COMPENSATION", " lambda: 0.5", 0.5},
      {"GAP_AWARE", "", 0},
  }));
  const std::string policy = GENERATE("policy: ASYNC", "policy: SSP staleness: 9");
  CAPTURE(kind, lambda, policy);
  StartWith("correction: " + kind + text, policy);
  Reference reference(kind, lambda);
  for (const Pushed& push : kPushes) {
    const double had_read = read[push.rank];
    Push(push.rank, push.gradient);
    reference.Push(push.gradient, had_read);
    CHECK(Parameter(0) == Approx(reference.w).epsilon(1e-5).margin(1e-6));
  }
  // The mean square is part of the state that checkpoints have, and what was sent is not.
  CHECK(store->chunks()[0].arrays() == (kind == "DELAY_COMPENSATION" ? 1 : 2));
}

TEST_CASE_METHOD(CorrectionFixture, "a compensated gradient may have a smaller rate too") {
  const std::string rate = GENERATE("", " rate: CONSTANT", " rate: BY_STALENESS");
  StartWith("correction: DELAY_COMPENSATION lambda: 0.5 velocity: SHARED" + rate, "policy: ASYNC",
            "kind: MOMENTUM learning_rate: 0.5 momentum: 0");
  staleness = 3;
  Push(0, 2);
  const double factor = rate == " rate: CONSTANT" ? 1 : 0.25;
  CHECK(Parameter(0) == Approx(-factor * kRate * 2));
  const double before = Parameter(0);
  Push(1, 2);
  CHECK(Parameter(0) == Approx(before - factor * kRate * (2 + 0.5 * 4 * before)));
}

TEST_CASE_METHOD(CorrectionFixture, "the velocities of workers take up corrected gradients") {
  StartWith("correction: DELAY_COMPENSATION lambda: 0.5", "policy: ASYNC",
            "kind: MOMENTUM learning_rate: 0.5 momentum: 0.5 weight_decay: 0.25");
  Push(0, 2);
  double w = -1;
  CHECK(Parameter(0) == w);
  // The decay is that of the present parameters.
  const double first = 2 + 0.5 * 4 * w + 0.25 * w;
  Push(1, 2);
  w -= 0.5 * first;
  CHECK(Parameter(0) == Approx(w));
  const double second = 1 + 0.5 * 1 * 0 + 0.25 * w;
  Push(1, 1);
  w -= 0.5 * (0.5 * first + second);
  CHECK(Parameter(0) == Approx(w));
}

TEST_CASE_METHOD(CorrectionFixture,
                 "a gradient of parameters that are not known is not corrected") {
  StartWith("correction: GAP_AWARE");
  Push(0, 1);
  Push(2, 1, /*is_answered=*/false);
  const float before = Parameter(0);
  held[1] = 1;  // worker 1 was sent version 0
  Push(1, 1);
  CHECK(Parameter(0) == before - 0.5f);
  // Worker 2 has not been sent anything since.
  held[2] = 2;
  const float later = Parameter(0);
  Push(2, 1);
  CHECK(Parameter(0) == later - 0.5f);
}

TEST_CASE_METHOD(CorrectionFixture, "a repeat changes nothing, whatever is sent again") {
  StartWith("correction: GAP_AWARE");
  Push(0, 1);
  Push(1, 1);
  const float before = Parameter(0);
  CHECK(PolicyFixture::Push(1, 0, 5).ok());
  Send(1);
  CHECK(Parameter(0) == before);
  CHECK(observer.changes.size() == 2);
}

TEST_CASE_METHOD(CorrectionFixture, "a push without a gradient leaves noted what was sent") {
  StartWith("correction: GAP_AWARE");
  Push(0, 1);
  Send(2);  // version 1
  REQUIRE(PolicyFixture::Push(1, next[1]++, 0, /*index=*/0, /*skip=*/true).ok());
  Push(0, 1);
  Reference reference("GAP_AWARE", 0);
  reference.Push(1, 0);
  const double was_sent = reference.w;
  reference.Push(1, reference.w);
  Push(2, 1);
  reference.Push(1, was_sent);
  CHECK(Parameter(0) == Approx(reference.w));
}

TEST_CASE_METHOD(CorrectionFixture, "one worker's gradients are never stale, and nothing is kept") {
  StartWith("correction: GAP_AWARE", "policy: ASYNC", "kind: SGD learning_rate: 0.5",
            /*workers=*/1);
  CHECK(store->chunks()[0].arrays() == 1);
  Push(0, 1);
  Push(0, 1);
  CHECK(Parameter(0) == -1);
}

// Minimises w * w / 2: workers push in turn, each a gradient that is seven updates old.
TEST_CASE_METHOD(CorrectionFixture, "GAP_AWARE converges where momentum alone diverges") {
  const bool corrects = GENERATE(false, true);
  StartWith(absl::StrCat("correction: ", corrects ? "GAP_AWARE" : "NONE",
                         " rate: CONSTANT velocity: SHARED"),
            "policy: ASYNC", "kind: MOMENTUM learning_rate: 0.03 momentum: 0.9", kMostWorkers);
  {
    StoredChunk& chunk = store->chunks()[0];
    absl::MutexLock lock(&chunk.mutex);
    for (float& value : chunk.mutable_array(0)) value = 1;
  }
  for (int rank = 0; rank < kMostWorkers; ++rank) Send(rank);
  for (int push = 0; push < 600; ++push) Push(push % kMostWorkers, read[push % kMostWorkers]);
  const float distance = std::abs(Parameter(0));
  if (corrects) {
    CHECK(distance < 0.001);
  } else {
    CHECK(distance > 1000);
  }
}

TEST_CASE_METHOD(CorrectionFixture, "the observers are told what a gradient was corrected by") {
  StartWith("correction: DELAY_COMPENSATION");
  Push(0, 1);
  Push(1, 1);
  REQUIRE(observer.changes.size() == 2);
  CHECK(observer.changes[0].rate.sent_to == SentParameters::Ranks{1, 2});
  CHECK(observer.changes[0].rate.base_version == 0);
  // Worker 2 has its copy already.
  CHECK(observer.changes[1].rate.sent_to == SentParameters::Ranks{0});
}

}  // namespace evenshard
