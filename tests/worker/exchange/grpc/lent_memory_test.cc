#include "worker/exchange/grpc/lent_memory.h"

#include <catch2/catch.hpp>
#include <thread>
#include <vector>

namespace evenshard {
namespace {

const std::vector<char> kMemory = {1, 2, 3};

}  // namespace

TEST_CASE("a slice is the memory itself") {
  LentMemory lent;
  const grpc::Slice slice = lent.Lend(kMemory);
  CHECK(slice.begin() == reinterpret_cast<const uint8_t*>(kMemory.data()));
  CHECK(slice.size() == 3);
}

TEST_CASE("memory is lent until its last slice has gone") {
  LentMemory lent;
  CHECK(lent.AwaitAll(absl::ZeroDuration()));
  grpc::Slice first = lent.Lend(kMemory);
  {
    const grpc::Slice second = lent.Lend(kMemory);
    const grpc::Slice same = second;  // shares the reference
    CHECK_FALSE(lent.AwaitAll(absl::ZeroDuration()));
  }
  CHECK_FALSE(lent.AwaitAll(absl::ZeroDuration()));
  std::thread user([&first] { first = grpc::Slice(); });
  CHECK(lent.AwaitAll(absl::Seconds(60)));
  user.join();
}

TEST_CASE("a slice may outlive the lender") {
  grpc::Slice slice;
  {
    LentMemory lent;
    slice = lent.Lend(kMemory);
  }
  CHECK(slice.size() == 3);
}

}  // namespace evenshard
