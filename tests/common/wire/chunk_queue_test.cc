#include "common/wire/chunk_queue.h"

#include <catch2/catch.hpp>
#include <string>

namespace evenshard {
namespace {

std::string Drain(ChunkQueue<char>& queue) {
  std::string items;
  while (!queue.empty()) items += queue.Pop();
  return items;
}

}  // namespace

TEST_CASE("by arrival, chunks leave as they came") {
  ChunkQueue<char> queue(ChunkOrder::kArrival);
  queue.Push(7, 'a');
  queue.Push(3, 'b');
  CHECK(queue.Pop() == 'a');
  queue.Push(1, 'c');
  CHECK(queue.size() == 2);
  CHECK(Drain(queue) == "bc");
}

TEST_CASE("by priority, the smallest id leaves first, equal ones as they came") {
  ChunkQueue<char> queue(ChunkOrder::kPriority);
  queue.Push(7, 'a');
  queue.Push(3, 'b');
  queue.Push(9, 'c');
  queue.Push(3, 'd');
  CHECK(queue.Pop() == 'b');
  queue.Push(8, 'e');
  CHECK(Drain(queue) == "daec");
}

TEST_CASE("a cleared queue is empty") {
  ChunkQueue<char> queue(ChunkOrder::kPriority);
  queue.Push(7, 'a');
  queue.clear();
  CHECK(queue.empty());
}

}  // namespace evenshard
