#include "server/rpc/read_gate.h"

#include <catch2/catch.hpp>

namespace evenshard {
namespace {

using Action = ReadGate::Action;

constexpr absl::Duration kNow = absl::ZeroDuration();

struct Fixture {
  ReadGate gate{{.held_bytes = 100, .waiting = 2}};
};

}  // namespace

TEST_CASE_METHOD(Fixture, "one read is under way at a time") {
  CHECK(gate.Next(kNow) == Action::kWait);  // the first one
  gate.ReadDone();
  CHECK(gate.Next(kNow) == Action::kRead);
  CHECK(gate.Next(kNow) == Action::kWait);
}

TEST_CASE_METHOD(Fixture, "gradients beyond the limit keep the next from being read") {
  gate.ReadDone();
  gate.Hold(60);
  gate.Hold(41);
  CHECK(gate.Next(kNow) == Action::kWait);
  gate.Release(41);
  CHECK(gate.Next(kNow) == Action::kRead);
}

TEST_CASE_METHOD(Fixture, "replies that are not taken keep the next push from being read") {
  gate.ReadDone();
  gate.SetReplies(3);
  CHECK(gate.Next(kNow) == Action::kWait);
  gate.SetReplies(2);
  CHECK(gate.Next(kNow) == Action::kRead);
}

TEST_CASE_METHOD(Fixture, "pushes that are not worked on keep the next from being read") {
  gate.ReadDone();
  for (int i = 0; i < 3; ++i) gate.QueuePushes(1);
  CHECK(gate.Next(kNow) == Action::kWait);
  gate.TakePushes(1);
  CHECK(gate.Next(kNow) == Action::kRead);
}

TEST_CASE_METHOD(Fixture, "a worker that is ahead is read again when the timer has rung") {
  gate.ReadDone();
  CHECK_FALSE(gate.timer_set());
  CHECK(gate.Next(absl::Milliseconds(3)) == Action::kSetTimer);
  CHECK(gate.timer_set());
  CHECK(gate.Next(kNow) == Action::kWait);  // one timer at a time
  gate.TimerRang();
  CHECK(gate.Next(absl::Milliseconds(3)) == Action::kSetTimer);
  gate.TimerRang();
  CHECK(gate.Next(kNow) == Action::kRead);
}

TEST_CASE_METHOD(Fixture, "nothing is read and no timer set after the end") {
  gate.ReadDone();
  gate.Close();
  CHECK(gate.Next(kNow) == Action::kWait);
  CHECK(gate.Next(absl::Milliseconds(3)) == Action::kWait);
}

}  // namespace evenshard
