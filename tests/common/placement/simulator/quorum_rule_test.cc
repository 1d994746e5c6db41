#include "common/placement/simulator/quorum_rule.h"

#include <catch2/catch.hpp>
#include <utility>
#include <vector>

namespace evenshard {
namespace {

// A rule for which workers arrive at given times.
class Run final : private EventQueue::Target {
 public:
  struct Decision {
    double time;
    int update;
    std::vector<int> workers;

    friend bool operator==(const Decision&, const Decision&) = default;
  };

  Run(int quorum, double grace, std::vector<double> members)
      : rule_(UpdateOf(quorum, grace), std::move(members), &events_,
              [this](int update, const std::vector<int>& workers) {
                decisions_.push_back({events_.now(), update, workers});
              }) {}

  void Arrive(double time, int worker) { events_.At(time, this, 0, worker); }

  const std::vector<Decision>& Decisions() {
    while (events_.RunNext()) {
    }
    return decisions_;
  }

 private:
  static Update UpdateOf(int quorum, double grace) {
    Update update;
    update.set_quorum(quorum);
    update.set_grace(grace);
    return update;
  }

  void OnEvent(int, int worker) override { rule_.Arrived(worker); }

  EventQueue events_;
  std::vector<Decision> decisions_;
  QuorumRule rule_;
};

TEST_CASE("an update is decided when all have arrived, and the first one when enough have") {
  Run run(2, 0.5, {1, 1, 1});
  run.Arrive(4, 1);
  run.Arrive(10, 0);
  for (const auto& [time, worker] :
       std::vector<std::pair<double, int>>{{11, 2}, {12, 1}, {12, 0}}) {
    run.Arrive(time, worker);
  }
  CHECK(run.Decisions() == std::vector<Run::Decision>{{10, 0, {1, 0}}, {12, 1, {2, 1, 0}}});
}

TEST_CASE("others may follow within a part of the time that the quorum has taken") {
  Run run(2, 0.5, {1, 1, 1});
  run.Arrive(10, 0);
  run.Arrive(10, 1);  // decides
  run.Arrive(20, 0);
  run.Arrive(30, 1);  // after 20 s, so that 10 s are left
  run.Arrive(39, 2);
  CHECK(run.Decisions() == std::vector<Run::Decision>{{10, 0, {0, 1}}, {39, 1, {0, 1, 2}}});

  Run late(2, 0.5, {1, 1, 1});
  late.Arrive(10, 0);
  late.Arrive(10, 1);
  late.Arrive(20, 0);
  late.Arrive(30, 1);
  late.Arrive(50, 2);  // the first of the next one
  CHECK(late.Decisions() == std::vector<Run::Decision>{{10, 0, {0, 1}}, {40, 1, {0, 1}}});
}

TEST_CASE("the time of grace goes by an average, in which the newest time counts a quarter") {
  Run run(1, 1, {1, 1});
  run.Arrive(0, 0);
  run.Arrive(10, 0);  // after 10 s: until 20
  run.Arrive(38, 0);  // after 18 s: 10 + (18 - 10) / 4 = 12, until 50
  const std::vector<Run::Decision> expected = {{0, 0, {0}}, {20, 1, {0}}, {50, 2, {0}}};
  CHECK(run.Decisions() == expected);
}

TEST_CASE("a worker that stands for others counts as many") {
  Run run(3, 0, {3, 1});
  run.Arrive(1, 0);
  run.Arrive(2, 1);  // one of three
  CHECK(run.Decisions() == std::vector<Run::Decision>{{1, 0, {0}}});
}

}  // namespace
}  // namespace evenshard
