#include "worker/exchange/push_queue.h"

#include <catch2/catch.hpp>
#include <optional>

namespace ps {
namespace {

TEST_CASE("streams share a shard's chunks, first in, first out") {
  PushQueue queue(2);
  for (const uint32_t chunk : {7, 3, 5}) queue.Push(chunk);
  CHECK(queue.Pop(1) == 7u);
  CHECK(queue.Pop(0) == 3u);
  CHECK(queue.Pop(1) == 5u);
  CHECK(queue.Pop(1) == std::nullopt);
}

TEST_CASE("prioritised chunks leave by their ids, and before those of the next iteration") {
  PushQueue queue(1);
  for (const uint32_t chunk : {8, 9, 6, 7, 2, 3}) queue.Push(chunk);
  CHECK(queue.Pop(0) == 8u);
  queue.Prioritise();
  for (const uint32_t chunk : {1, 0}) queue.Push(chunk);
  for (const uint32_t chunk : {2, 3, 6, 7, 9, 1, 0}) CHECK(queue.Pop(0) == chunk);
  CHECK(queue.Pop(0) == std::nullopt);
}

TEST_CASE("a stream's last chunk goes to it alone, after all others") {
  PushQueue queue(2);
  queue.PushLast(1, 9);
  queue.Push(4);
  CHECK(queue.Pop(1) == 4u);
  CHECK(queue.Pop(0) == std::nullopt);
  CHECK(queue.Pop(1) == 9u);
  CHECK(queue.Pop(1) == std::nullopt);
}

}  // namespace
}  // namespace ps
