#include "server/shard/chunk_threads.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <chrono>
#include <cstdint>
#include <thread>
#include <vector>

#include "absl/synchronization/notification.h"

namespace evenshard {
namespace {

int Processors() { return std::max(1u, std::thread::hardware_concurrency()); }

// Pushes that each keep a thread busy until they are released. They outlive the threads, which may
// still be in Notification's methods when a notification is seen.
class Busy {
 public:
  explicit Busy(int count) : started_(count), released_(count) {}
  // Returns when all of them are running.
  void Start(ChunkThreads* threads) {
    for (size_t i = 0; i < started_.size(); ++i) {
      threads->Add(0, [this, i] {
        started_[i].Notify();
        released_[i].WaitForNotification();
      });
    }
    for (absl::Notification& started : started_) started.WaitForNotification();
  }
  void Release(int i) { released_[i].Notify(); }

 private:
  std::vector<absl::Notification> started_, released_;
};

}  // namespace

TEST_CASE("pushes run on a thread for each processor, in their order") {
  const auto order = GENERATE(ChunkOrder::kPriority, ChunkOrder::kArrival);
  std::vector<uint32_t> ran;
  Busy busy(Processors());
  absl::Notification last;
  {
    ChunkThreads threads(order);
    busy.Start(&threads);
    for (const uint32_t chunk : {7, 3, 9, 3, 1}) {
      threads.Add(chunk, [&, chunk] {
        ran.push_back(chunk);
        if (ran.size() == 5) last.Notify();
      });
    }
    busy.Release(0);  // one thread, for all of them
    last.WaitForNotification();
    for (int i = 1; i < Processors(); ++i) busy.Release(i);
  }
  CHECK(ran == (order == ChunkOrder::kPriority ? std::vector<uint32_t>{1, 3, 3, 7, 9}
                                               : std::vector<uint32_t>{7, 3, 9, 3, 1}));
}

TEST_CASE("End waits for a push that is running, and none is taken after it") {
  bool ended = false;
  bool taken = false;
  absl::Notification started;
  {
    ChunkThreads threads(ChunkOrder::kArrival);
    threads.Add(0, [&] {
      started.Notify();
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
      ended = true;
    });
    started.WaitForNotification();
    threads.End();
    CHECK(ended);
    threads.Add(0, [&] { taken = true; });
  }
  CHECK_FALSE(taken);
}

TEST_CASE("without pushes there are no threads to end") { ChunkThreads(ChunkOrder::kArrival); }

}  // namespace evenshard
