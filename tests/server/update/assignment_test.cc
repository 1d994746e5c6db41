// Exchanges in which worker 0's values replace an array of the chunks' state.

#include <catch2/catch.hpp>
#include <string>
#include <vector>

#include "tests/server/update/policy_fixture.h"

namespace evenshard {
namespace {

using Catch::Matchers::Contains;

class AssignmentFixture : public PolicyFixture {
 public:
  absl::Status Assign(int rank, uint64_t iteration, std::optional<float> value, uint32_t array = 0,
                      uint64_t steps = 0) {
    const GradientHeader header{.worker = static_cast<uint32_t>(rank),
                                .incarnation = 1,
                                .iteration = iteration,
                                .chunk = store->chunks()[0].info().id,
                                .encoding = FLOAT32,
                                .view = view,
                                .absent = !value.has_value(),
                                .assigned = array,
                                .steps = steps};
    const auto values = std::make_shared<std::vector<float>>(16, value.value_or(0));
    Segments data;
    if (value.has_value()) {
      data.emplace_back(reinterpret_cast<const char*>(values->data()), 16 * sizeof(float));
    }
    return policy->Push(0, *sessions[rank], Gradient{header, std::move(data), values}, sinks[rank]);
  }

  ChunkClock Clock() {
    StoredChunk& chunk = store->chunks()[0];
    absl::MutexLock lock(&chunk.mutex);
    return chunk.clock();
  }
  float Element(int array) {
    StoredChunk& chunk = store->chunks()[0];
    absl::MutexLock lock(&chunk.mutex);
    return chunk.array(array)[0];
  }
};

TEST_CASE_METHOD(AssignmentFixture,
                 "worker 0's values replace the parameters, whoever comes last") {
  const std::string order = GENERATE("", "update.deterministic=true");
  observer.reads_gradients = GENERATE(false, true);
  const int last = GENERATE(0, 1);
  if (order.empty()) {
    Start(2);
  } else {
    Start(2, {order});
  }
  for (const int rank : {0, 1}) REQUIRE(Push(rank, 0, 2).ok());
  const int other = 1 - last;
  REQUIRE(Assign(other, 1, other == 0 ? std::optional(7.0f) : std::nullopt).ok());
  CHECK(Parameter(0) == start - 2);
  REQUIRE(Assign(last, 1, last == 0 ? std::optional(7.0f) : std::nullopt).ok());
  CHECK(Parameter(0) == 7);
  CHECK(Replies(0) == 2);
  CHECK(Replies(1) == 2);
  // It is no iteration of training, and no update.
  const ChunkClock clock = Clock();
  CHECK(clock.iteration == 2);
  CHECK(clock.trained() == 1);
  CHECK(clock.recent_assignments == 1);
  CHECK(clock.version == 2);
  CHECK(clock.steps == 1);
  CHECK(store->counters().updates == 1);
  CHECK(store->counters().received.bytes_in() > 0);
  for (const int rank : {0, 1}) REQUIRE(Push(rank, 2, 3).ok());
  CHECK(Parameter(0) == 7 - 3);
  CHECK(observer.changes.at(2).rate.iteration == 1);
  CHECK(Clock().recent_assignments == 0);
  CHECK(Clock().former_assignments == 1);
}

TEST_CASE_METHOD(AssignmentFixture,
                 "what worker 0 leaves as it is stays, and the exchange counts") {
  Start(2);
  for (const int rank : {0, 1}) REQUIRE(Assign(rank, 0, std::nullopt).ok());
  CHECK(Parameter(0) == start);
  CHECK(Clock().version == 0);
  CHECK(Clock().iteration == 1);
  CHECK(Clock().trained() == 0);
}

TEST_CASE_METHOD(AssignmentFixture, "the optimizer's state is replaced with its steps") {
  Start(2, {"optimizer.kind=ADAM"});
  REQUIRE(Assign(0, 0, 0.5f, /*array=*/2, /*steps=*/9).ok());
  REQUIRE(Assign(1, 0, std::nullopt, /*array=*/2).ok());
  CHECK(Element(0) == start);
  CHECK(Element(1) == 0);
  CHECK(Element(2) == 0.5f);
  CHECK(Clock().steps == 9);
  CHECK(Clock().version == 0);  // the parameters have not changed
  for (const int rank : {0, 1}) REQUIRE(Push(rank, 1, 1).ok());
  CHECK(Clock().steps == 10);
}

TEST_CASE_METHOD(AssignmentFixture, "workers that do not assign the same are named") {
  Start(2, {"optimizer.kind=ADAM"});
  absl::Status status;
  std::string expected;
  SECTION("one trains") {
    REQUIRE(Push(1, 0, 1).ok());
    status = Assign(0, 0, 1.0f);
    expected = "gradients, by step() and parameters, by assign()";
  }
  SECTION("one only takes part") {
    REQUIRE(Push(1, 0, 0, 0, /*skip=*/true).ok());
    status = Assign(0, 0, 1.0f);
    expected = "gradients, by step() and parameters, by assign()";
  }
  SECTION("another array") {
    REQUIRE(Assign(1, 0, std::nullopt, 2).ok());
    status = Assign(0, 0, 1.0f, 1);
    expected = "array 2 of the optimizer's state, by load_state_dict() and array 1";
  }
  CHECK(absl::IsAborted(status));
  CHECK(KindOf(status) == ErrorDetail::RUN_FAILED);
  CHECK_THAT(std::string(status.message()), Contains("workers 1 and 0 disagree at iteration 0"));
  CHECK_THAT(std::string(status.message()), Contains(expected));
}

TEST_CASE_METHOD(AssignmentFixture, "without worker 0 nothing is assigned, and the run fails") {
  Start(3);
  Adopt({{0, {1, 2}}});
  REQUIRE(Assign(1, 0, std::nullopt).ok());
  const absl::Status status = Assign(2, 0, std::nullopt);
  CHECK(absl::IsAborted(status));
  CHECK_THAT(std::string(status.message()),
             Contains("worker 0 was lost before it could give the values that it assigns"));
}

TEST_CASE_METHOD(AssignmentFixture, "who comes anew is told which assignments lie behind") {
  Start(2);
  // The other chunk comes as far, without any wait.
  const auto bring_other = [&] {
    const ChunkClock clock = Clock();
    StoredChunk& other = store->chunks()[1];
    absl::MutexLock lock(&other.mutex);
    other.mutable_clock() = clock;
  };
  const auto check = [&](const UpdatePolicy::Start& expected) {
    const UpdatePolicy::Start found = policy->Join(1, 1);
    CHECK(found.iteration == expected.iteration);
    CHECK(found.assignments == expected.assignments);
    CHECK(found.recent_assignments == expected.recent_assignments);
  };
  for (const uint64_t iteration : {0, 1}) {
    for (const int rank : {0, 1}) {
      REQUIRE(Assign(rank, iteration, rank == 0 ? std::optional(1.0f) : std::nullopt).ok());
    }
  }
  bring_other();
  check({2, 2, 2});
  for (const int rank : {0, 1}) REQUIRE(Push(rank, 2, 1).ok());
  bring_other();
  check({3, 2, 0});
  // What is not confirmed may be lost, and comes again.
  observer.keeps_replies = true;
  for (const int rank : {0, 1}) REQUIRE(Push(rank, 3, 1).ok());
  bring_other();
  check({3, 2, 0});
  for (const int rank : {0, 1}) {
    REQUIRE(Assign(rank, 4, rank == 0 ? std::optional(1.0f) : std::nullopt).ok());
  }
  bring_other();
  check({4, 2, 0});
}

TEST_CASE("a clock says where it was before its latest exchange") {
  ChunkClock clock{.iteration = 3, .assignments = 2, .recent_assignments = 2};
  ++clock.iteration;
  clock.CountExchange(/*assigned=*/false);
  CHECK(clock.trained() == 2);
  CHECK(clock.Former().iteration == 3);
  CHECK(clock.Former().assignments == 2);
  CHECK(clock.Former().recent_assignments == 2);
  ++clock.iteration;
  clock.CountExchange(/*assigned=*/true);
  CHECK(clock.Former().iteration == 4);
  CHECK(clock.Former().recent_assignments == 0);
}

}  // namespace
}  // namespace evenshard
