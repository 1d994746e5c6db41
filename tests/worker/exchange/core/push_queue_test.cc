#include "worker/exchange/core/push_queue.h"

#include <catch2/catch.hpp>
#include <cstdint>
#include <limits>
#include <vector>

namespace evenshard {
namespace {

using Chunks = std::vector<uint32_t>;

constexpr int64_t kAnyBytes = std::numeric_limits<int64_t>::max();

// The next message, of one chunk.
Chunks PopOne(PushQueue& queue, int stream) { return queue.Pop(stream, 1, kAnyBytes); }

TEST_CASE("streams share a shard's chunks, first in, first out") {
  PushQueue queue(2, 0);
  for (const uint32_t chunk : {7, 3, 5}) queue.Push(chunk, 1);
  CHECK(PopOne(queue, 1) == Chunks{7});
  CHECK(PopOne(queue, 0) == Chunks{3});
  CHECK(PopOne(queue, 1) == Chunks{5});
  CHECK(PopOne(queue, 1).empty());
}

TEST_CASE("prioritised chunks leave by their ids, and before those of the next iteration") {
  PushQueue queue(1, 0);
  for (const uint32_t chunk : {8, 9, 6, 7, 2, 3}) queue.Push(chunk, 1);
  CHECK(PopOne(queue, 0) == Chunks{8});
  queue.Prioritise();
  for (const uint32_t chunk : {1, 0}) queue.Push(chunk, 1);
  CHECK(queue.Pop(0, 100, kAnyBytes) == Chunks{2, 3, 6, 7, 9, 1, 0});
  CHECK(PopOne(queue, 0).empty());
}

TEST_CASE("a stream's last chunk goes to it alone, after all others") {
  PushQueue queue(2, 0);
  queue.PushLast(1, 9);
  queue.Push(4, 1);
  CHECK(queue.Pop(1, 100, kAnyBytes) == Chunks{4});
  CHECK(PopOne(queue, 0).empty());
  CHECK(PopOne(queue, 1) == Chunks{9});
  CHECK(PopOne(queue, 1).empty());
}

TEST_CASE("a message has as many chunks as it may, and none after its bytes") {
  PushQueue queue(1, 0);
  for (const uint32_t chunk : {1, 2, 3, 4, 5, 6, 7}) queue.Push(chunk, chunk == 3 ? 1000 : 10);
  CHECK(queue.Pop(0, 2, 100) == Chunks{1, 2});
  CHECK(queue.Pop(0, 100, 20) == Chunks{3});
  CHECK(queue.Pop(0, 100, 15) == Chunks{4, 5});
  CHECK(queue.Pop(0, 100, 15) == Chunks{6, 7});
}

TEST_CASE("small chunks wait for each other") {
  PushQueue queue(1, 100);
  queue.Push(1, 60);
  CHECK(queue.Pop(0, 100, 100).empty());
  SECTION("until they have the bytes") {
    queue.Push(2, 60);
    CHECK(queue.Pop(0, 100, 100) == Chunks{1, 2});
    queue.Push(3, 60);
    CHECK(queue.Pop(0, 100, 100).empty());
  }
  SECTION("but go with larger ones, which need not wait") {
    queue.Push(2, 1000);
    queue.Push(3, 60);
    queue.Push(4, 39);
    CHECK(queue.Pop(0, 100, 100) == Chunks{1, 2, 3, 4});
    queue.Push(5, 1000);
    queue.Push(6, 60);
    queue.Push(7, 60);
    CHECK(queue.Pop(0, 100, 100) == Chunks{5});
    CHECK(queue.Pop(0, 100, 100) == Chunks{6, 7});
  }
  SECTION("until nothing is to come") {
    queue.Flush();
    CHECK(queue.Pop(0, 100, 100) == Chunks{1});
    queue.Push(2, 60);
    CHECK(queue.Pop(0, 100, 100).empty());  // of what comes later, more may come
  }
  SECTION("and are forgotten with their bytes") {
    queue.Clear();
    queue.Push(2, 60);
    CHECK(queue.Pop(0, 100, 100).empty());
  }
}

}  // namespace
}  // namespace evenshard
