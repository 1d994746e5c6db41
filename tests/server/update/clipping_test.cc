// SYNC with clipping by norm: what one slot does.

#include "server/agreement/clipping.h"

#include <catch2/catch.hpp>
#include <limits>
#include <string>

#include "common/optimizer/norm_clipping.h"
#include "tests/server/update/policy_fixture.h"

namespace evenshard {
namespace {

const std::string kClip = "update.clip_global_norm=2";

// The norm that a slot reports: the chunks of the fixture have 16 equal elements each.
double NormOf(const PolicyFixture& fixture, const AgreementReport& report) {
  SquareSum::Limbs limbs;
  std::copy_n(report.part().limb().begin(), limbs.size(), limbs.begin());
  const SquareRule rule =
      NormRuleOf(fixture.config->proto().update().clip_global_norm(), fixture.config->model());
  return std::sqrt(rule.Value(SquareSum(limbs)));
}

}  // namespace

TEST_CASE_METHOD(PolicyFixture, "an update waits for the norm of the whole mean gradient") {
  const bool deterministic = GENERATE(false, true);
  Start(2, {kClip, deterministic ? "update.deterministic=true" : "update.deterministic=false"});
  for (const int index : {0, 1}) {
    CHECK(Push(1, 0, 3, index).ok());
    CHECK(parts.empty());
    CHECK(Push(0, 0, 1, index).ok());
    CHECK(last_owner.expired());  // it is in the sum
  }
  REQUIRE(parts.size() == 1);
  CHECK(parts[0].part().iteration() == 0);
  CHECK_FALSE(parts[0].has_latest());
  CHECK(NormOf(*this, parts[0]) == Approx(2 * std::sqrt(32)));  // a mean of 2, 32 times
  CHECK(Iteration() == 0);
  CHECK(Replies(0) == 0);
  CHECK(observer.changes.empty());
  CHECK(policy->PendingUpdates().empty());

  Agree(0, 20);  // with other slots
  CHECK(Applied() == Approx(2 * 2 / 20.0));
  CHECK(Iteration() == 1);
  CHECK(Iteration(1) == 1);
  CHECK(Replies(0) == 2);
  REQUIRE(observer.changes.size() == 2);
  CHECK(observer.changes[0].scale == Approx(0.5 * 2 / 20.0));

  for (const int index : {0, 1}) {
    for (const int rank : {0, 1}) CHECK(Push(rank, 1, 0.25, index).ok());
  }
  REQUIRE(parts.size() == 2);
  CHECK(parts[1].part().iteration() == 1);
  CHECK(parts[1].latest().iteration() == 0);
  const float before = Parameter(0);
  Agree(1, 1.9);  // below the limit
  CHECK(before - Parameter(0) == Approx(0.25));
}

TEST_CASE_METHOD(PolicyFixture, "one worker is clipped as well") {
  Start(1, {kClip});
  for (const int index : {0, 1}) CHECK(Push(0, 0, 1, index).ok());
  REQUIRE(parts.size() == 1);
  CHECK(NormOf(*this, parts[0]) == Approx(std::sqrt(32)));
  Agree(0, 4);
  CHECK(Applied() == Approx(0.5));
}

TEST_CASE_METHOD(PolicyFixture, "elements are clipped after the norm") {
  Start(1, {kClip, "update.clip_value=0.1"});
  for (const int index : {0, 1}) CHECK(Push(0, 0, 1, index).ok());
  CHECK(NormOf(*this, parts.at(0)) == Approx(std::sqrt(32)));  // of 1, not of 0.1
  SECTION("which leaves them above the bound") { Agree(0, 4); }
  SECTION("which leaves them below it") {
    Agree(0, 40);
    CHECK(Applied() == Approx(0.05));
    return;
  }
  CHECK(Applied() == Approx(0.1));
}

TEST_CASE_METHOD(PolicyFixture, "what has no gradient does not count, and who skips divides none") {
  Start(2, {kClip});
  CHECK(Push(0, 0, 3).ok());
  CHECK(PushAbsent(1, 0).ok());  // a mean of 1.5
  CHECK(PushAbsent(0, 0, 1).ok());
  CHECK(PushAbsent(1, 0, 1).ok());
  REQUIRE(parts.size() == 1);
  CHECK(NormOf(*this, parts[0]) == Approx(1.5 * 4));
  Agree(0, 6);
  CHECK(Applied() == Approx(0.5));
  CHECK(Replies(0) == 2);

  for (const int index : {0, 1}) {
    CHECK(Push(0, 1, 3, index).ok());
    CHECK(Push(1, 1, 0, index, /*skip=*/true).ok());
  }
  CHECK(NormOf(*this, parts.at(1)) == Approx(3 * std::sqrt(32)));
}

TEST_CASE_METHOD(PolicyFixture, "an iteration without any gradient has a norm of zero") {
  Start(2, {kClip});
  for (const int index : {0, 1}) {
    for (const int rank : {0, 1}) CHECK(Push(rank, 0, 0, index, /*skip=*/true).ok());
  }
  CHECK(NormOf(*this, parts.at(0)) == 0);
  Agree(0, 0);
  CHECK(Applied() == 0);
  CHECK(Iteration() == 1);
}

TEST_CASE_METHOD(PolicyFixture, "a sum that leaves float32 fails before the norm is told") {
  Start(2, {kClip});
  CHECK(Push(0, 0, std::numeric_limits<float>::max()).ok());
  const absl::Status failed = Push(1, 0, std::numeric_limits<float>::max());
  CHECK(absl::IsOutOfRange(failed));
  CHECK_THAT(std::string(failed.message()), Catch::Contains("the sum of the gradients"));
  CHECK(observer.failure == failed);
  CHECK(parts.empty());
}

TEST_CASE_METHOD(PolicyFixture, "a norm that comes while an observer holds the update up is kept") {
  Start(1, {kClip});
  observer.may_change = false;
  for (const int index : {0, 1}) CHECK(Push(0, 0, 1, index).ok());
  Agree(0, 4);
  CHECK(Iteration() == 0);
  observer.may_change = true;
  CHECK(policy->Resume(0).ok());
  CHECK(Applied() == Approx(0.5));
  CHECK(Iteration(1) == 0);
}

TEST_CASE_METHOD(PolicyFixture, "a slot that is taken over in the middle uses the recorded norm") {
  Start(2, {kClip});
  {
    StoredChunk& chunk = store->chunks()[0];
    absl::MutexLock lock(&chunk.mutex);
    chunk.mutable_clock().iteration = 1;  // its update of iteration 0 had come to the replica
    chunk.mutable_clock().version = 1;
  }
  store->Learn(AgreedNorm{.iteration = 0, .squared = 16});
  CHECK(Push(0, 0, 1, 0).ok());  // a repeat
  for (const int rank : {0, 1}) CHECK(Push(rank, 0, 1, 1).ok());
  CHECK(Iteration(1) == 1);
  CHECK(start - Parameter(0) == 0);
  CHECK(observer.changes.at(0).scale == Approx(0.5 * 2 / 4.0));
  CHECK(parts.empty());  // there is nothing to agree on
  for (const int index : {0, 1}) {
    for (const int rank : {0, 1}) CHECK(Push(rank, 1, 1, index).ok());
  }
  REQUIRE(parts.size() == 1);
  CHECK(NormOf(*this, parts[0]) == Approx(std::sqrt(32)));
}

TEST_CASE_METHOD(PolicyFixture, "an update whose norm was never known fails, and does not wait") {
  Start(1, {kClip});
  store->Learn(AgreedNorm{.iteration = 7, .squared = 16});
  const absl::Status failed = Push(0, 0, 1);
  CHECK(absl::IsInternal(failed));
  CHECK(failed.message() == absl::StrCat("chunk ", store->chunks()[0].info().id,
                                         " needs the norm of the gradient of iteration 0, and its "
                                         "slot knows that of iteration 7"));
  CHECK(observer.failure == failed);
}

TEST_CASE_METHOD(PolicyFixture, "an answer that is no norm answers nothing") {
  Start(1, {kClip});
  AgreementAnswer answer;
  answer.mutable_latest()->set_iteration(3);
  for (const double squared : {-1.0, std::nan(""), HUGE_VAL}) {
    answer.mutable_latest()->set_value(squared);
    CHECK_FALSE(clipping->AnsweredBy(answer).has_value());
  }
  answer.mutable_latest()->set_value(0);
  CHECK(clipping->AnsweredBy(answer) == 3);
}

TEST_CASE_METHOD(PolicyFixture, "a lost worker's gradients stay in a norm that waits") {
  Start(3, {kClip});
  for (const int rank : {0, 1, 2}) CHECK(Push(rank, 0, 3, 0).ok());
  for (const int rank : {1, 2}) CHECK(Push(rank, 0, 3, 1).ok());
  Adopt({{0, {0, 1, 2}}}, {.worker_set_changes = true});
  CHECK(parts.empty());
  Adopt({{0, {0, 1, 2}}, {1, {1, 2}}});
  REQUIRE(parts.size() == 1);
  CHECK(NormOf(*this, parts[0]) == Approx(3 * std::sqrt(32)));
  Agree(0, 6);
  CHECK(Applied() == Approx(1));
  CHECK(observer.changes.at(0).workers == ChunkChange::Workers{0, 1, 2});
  CHECK(observer.changes.at(1).workers == ChunkChange::Workers{1, 2});
}

}  // namespace evenshard
