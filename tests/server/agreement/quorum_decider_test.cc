#include "server/agreement/quorum_decider.h"

#include <catch2/catch.hpp>
#include <optional>
#include <thread>
#include <vector>

#include "tests/server/agreement/decider_calls.h"
#include "tests/testing/await.h"
#include "tests/testing/cluster.h"
#include "tests/testing/fake_clock.h"

namespace evenshard {
namespace {

const std::vector<uint32_t> kAll = {0, 1, 2, 3};

class Fixture {
 public:
  AgreementReport Report(int slot, uint64_t view = 0) {
    AgreementReport report;
    report.set_config_fingerprint(config.fingerprint());
    report.set_view(view);
    report.set_slot(slot);
    report.set_number(++number);
    report.mutable_quorum();
    return report;
  }
  AgreementReport Asking(int slot, uint64_t iteration, const std::vector<uint32_t>& arrived,
                         uint64_t view = 0, const std::vector<uint32_t>& training = kAll) {
    AgreementReport report = Report(slot, view);
    report.mutable_quorum()->set_iteration(iteration);
    report.mutable_quorum()->mutable_arrived()->Add(arrived.begin(), arrived.end());
    report.mutable_quorum()->mutable_training()->Add(training.begin(), training.end());
    return report;
  }
  static AgreementReport Knowing(AgreementReport report, uint64_t iteration,
                                 const std::vector<uint64_t>& counted_before) {
    QuorumSet& latest = *report.mutable_quorum()->mutable_latest();
    latest.set_iteration(iteration);
    latest.mutable_counted_before()->Add(counted_before.begin(), counted_before.end());
    return report;
  }

  Result Take(const AgreementReport& report) { return evenshard::Take(decider, report); }
  // The set that both slots are told, which ask for it.
  std::optional<std::vector<uint32_t>> Decide(uint64_t iteration,
                                              const std::vector<uint32_t>& arrived) {
    const Result first = Take(Asking(0, iteration, arrived));
    return SetIn(Take(Asking(1, iteration, arrived)));
  }
  static std::optional<std::vector<uint32_t>> SetIn(const Result& result) {
    if (!result->has_value()) return std::nullopt;
    REQUIRE((*result)->ok());
    const QuorumSet& set = (**result)->quorum();
    std::vector<uint32_t> ranks;
    for (int rank = 0; rank < set.counted_before_size(); ++rank) {
      if (set.counted_before(rank) == set.iteration() + 1) ranks.push_back(rank);
    }
    return ranks;
  }

  PlannedConfig config = MustParse(
      kSmallConfig, {"workers=4", "update.policy=QUORUM", "update.quorum=2", "update.grace=0.5",
                     "shard[0].address=127.0.0.1:1", "shard[1].address=127.0.0.1:2"});
  FakeClock clock;
  QuorumDecider decider{&config, &clock};
  uint64_t number = 0;
};

using Ranks = std::vector<uint32_t>;

}  // namespace

TEST_CASE_METHOD(Fixture, "the set is who has arrived at every slot") {
  const Result first = Take(Asking(0, 0, {0, 1, 2}));
  CHECK_FALSE(first->has_value());
  CHECK_FALSE(Take(Asking(1, 0, {3}))->has_value());  // nobody has arrived at both
  const Result second = Take(Asking(1, 0, {1, 2, 3}));
  CHECK(SetIn(first) == Ranks{1, 2});
  CHECK(SetIn(second) == Ranks{1, 2});
}

TEST_CASE_METHOD(Fixture, "others may follow within a part of the time that the quorum takes") {
  CHECK(Decide(0, {0, 1}) == Ranks{0, 1});  // nothing is known of the time yet
  clock.Advance(absl::Seconds(10));
  const Result waits = Take(Asking(0, 1, {0, 1}));
  CHECK_FALSE(Take(Asking(1, 1, {0, 1}))->has_value());
  clock.Advance(absl::Seconds(4));
  decider.Tick();
  const Result third = Take(Asking(1, 1, {0, 1, 3}));  // one more, at this slot
  CHECK_FALSE(third->has_value());
  const Result latest = Take(Asking(0, 1, {0, 1, 3}));
  CHECK_FALSE(latest->has_value());
  clock.Advance(absl::Seconds(1));
  decider.Tick();
  CHECK(SetIn(latest) == Ranks{0, 1, 3});
  CHECK(SetIn(third) == Ranks{0, 1, 3});
  CHECK(absl::IsUnavailable((*waits)->status()));  // the slot has reported again
}

TEST_CASE_METHOD(Fixture, "the time of grace is no part of the time that the quorum takes") {
  CHECK(Decide(0, {0, 1}).has_value());
  for (uint64_t iteration = 1; iteration < 20; ++iteration) {
    clock.Advance(absl::Seconds(10));
    CHECK_FALSE(Decide(iteration, {0, 1}).has_value());
    clock.Advance(absl::Seconds(5));
    CHECK(Decide(iteration, {0, 1}) == Ranks{0, 1});
  }
}

TEST_CASE_METHOD(Fixture, "nobody waits for a time of grace when all have arrived") {
  CHECK(Decide(0, {0, 1}).has_value());
  clock.Advance(absl::Seconds(10));
  CHECK(Decide(1, {0, 1, 2, 3}) == kAll);
}

TEST_CASE_METHOD(Fixture, "of fewer workers than the quorum all are needed") {
  const Result first = Take(Asking(0, 0, {2}, 0, {2, 3}));
  CHECK_FALSE(Take(Asking(1, 0, {2}, 0, {2, 3}))->has_value());
  // Worker 3 leaves, as one slot knows already.
  const Result second = Take(Asking(1, 0, {2}, 0, {2}));
  CHECK(SetIn(first) == Ranks{2});
  CHECK(SetIn(second) == Ranks{2});
}

TEST_CASE_METHOD(Fixture, "each decision keeps in which iteration a worker has counted last") {
  CHECK(Decide(0, kAll) == kAll);
  const Result first = Take(Asking(0, 1, {0, 3}));
  const Result second = Take(Asking(1, 1, {0, 3}));
  REQUIRE(second->has_value());
  const auto& counted = (**second)->quorum().counted_before();
  CHECK(std::vector<uint64_t>(counted.begin(), counted.end()) == std::vector<uint64_t>{2, 1, 1, 2});
}

TEST_CASE_METHOD(Fixture, "a slot that knows a set is believed in a new view") {
  decider.Adopt(ViewOf(2));
  const Result asks = Take(Asking(0, 5, {0, 1, 2}, 2));
  CHECK_FALSE(asks->has_value());
  const Result knows = Take(Knowing(Report(1, 2), 5, {6, 2, 1, 6}));
  CHECK(SetIn(asks) == Ranks{0, 3});
  CHECK(SetIn(knows) == Ranks{0, 3});
}

TEST_CASE_METHOD(Fixture, "a new view needs every slot to ask again") {
  const Result old = Take(Asking(0, 0, kAll));
  decider.Adopt(ViewOf(1));
  CHECK(absl::IsUnavailable((*old)->status()));
  CHECK_FALSE(Take(Asking(1, 0, kAll, 1))->has_value());
  CHECK(absl::IsUnavailable((*Take(Asking(0, 0, kAll, 0)))->status()));
  CHECK(SetIn(Take(Asking(0, 0, kAll, 1))) == kAll);
}

TEST_CASE_METHOD(Fixture, "a report that was overtaken by a later one changes nothing") {
  const AgreementReport older = Asking(0, 0, {0, 1});
  const Result newer = Take(Asking(0, 0, {0, 1, 2}));
  CHECK(absl::IsUnavailable((*Take(older))->status()));
  CHECK_FALSE(newer->has_value());
  CHECK(SetIn(Take(Asking(1, 0, {0, 1, 2}))) == Ranks{0, 1, 2});
  CHECK(newer->has_value());
}

TEST_CASE_METHOD(Fixture, "a report that cannot be one of this run's is refused") {
  AgreementReport other = Asking(0, 0, kAll);
  other.mutable_quorum()->add_arrived(4);
  CHECK(absl::IsInvalidArgument((*Take(other))->status()));
  CHECK(absl::IsInvalidArgument((*Take(Knowing(Report(0), 1, {1, 2})))->status()));
  // A worker's gradients cannot have counted in a later iteration.
  CHECK(absl::IsInvalidArgument((*Take(Knowing(Report(0), 1, {0, 1, 2, 3})))->status()));
  CHECK(absl::IsInvalidArgument((*Take(Knowing(Report(0), 1, {0, 1, 2, UINT64_MAX})))->status()));
  CHECK((*Take(Knowing(Report(0), 1, {0, 1, 2, 2})))->ok());
  AgreementReport none = Report(0);
  none.clear_quorum();
  CHECK(absl::IsInvalidArgument((*Take(none))->status()));
  CHECK(absl::IsInvalidArgument((*Take(Asking(2, 0, kAll)))->status()));
}

TEST_CASE("the timer decides when the time of grace is over") {
  const PlannedConfig config = MustParse(
      kSmallConfig, {"workers=2", "update.policy=QUORUM", "update.quorum=1", "update.grace=0.01"});
  const RealClock clock;
  QuorumDecider decider(&config, &clock);
  std::thread timer([&] { decider.RunTimer(); });
  absl::Mutex mutex;
  int decided = 0;
  for (uint64_t iteration = 0; iteration < 3; ++iteration) {
    for (const int slot : {0, 1}) {
      AgreementReport report;
      report.set_config_fingerprint(config.fingerprint());
      report.set_slot(slot);
      report.mutable_quorum()->set_iteration(iteration);
      report.mutable_quorum()->add_arrived(0);
      for (const uint32_t rank : {0, 1}) report.mutable_quorum()->add_training(rank);
      decider.Take(report, [&](const absl::StatusOr<AgreementAnswer>& answer) {
        absl::MutexLock lock(&mutex);
        decided += answer.ok() ? 1 : 0;
      });
    }
    AwaitTrue([&] {
      absl::MutexLock lock(&mutex);
      return decided == 2 * (static_cast<int>(iteration) + 1);
    });
  }
  decider.StopTimer();
  timer.join();
}

}  // namespace evenshard
