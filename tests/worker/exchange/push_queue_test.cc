#include "worker/exchange/push_queue.h"

#include <catch2/catch.hpp>
#include <optional>

namespace ps {
namespace {

TEST_CASE("streams share a shard's chunks, by priority") {
  PushQueue queue(ChunkOrder::kPriority, 2);
  for (const uint32_t chunk : {7, 3, 5}) queue.Push(chunk);
  CHECK(queue.Pop(1) == 3u);
  CHECK(queue.Pop(0) == 5u);
  CHECK(queue.Pop(1) == 7u);
  CHECK(queue.Pop(1) == std::nullopt);
}

TEST_CASE("a stream's last chunk goes to it alone, after all others") {
  PushQueue queue(ChunkOrder::kArrival, 2);
  queue.PushLast(1, 9);
  queue.Push(4);
  CHECK(queue.Pop(1) == 4u);
  CHECK(queue.Pop(0) == std::nullopt);
  CHECK(queue.Pop(1) == 9u);
  CHECK(queue.Pop(1) == std::nullopt);
}

}  // namespace
}  // namespace ps
