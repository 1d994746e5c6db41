#include "common/placement/plan/chunk_size.h"

#include <catch2/catch.hpp>
#include <string>
#include <vector>

#include "tests/common/placement/plan/model_fixture.h"

namespace evenshard {
namespace {

TEST_CASE("a ring's chunks are a 64th of a worker's part, from 16 KiB to 1 MiB") {
  const Model vgg16 = Builtin("vgg16");  // 553,430,176 bytes
  CHECK(ChooseRingChunkSize(vgg16, 2).bytes == 1 << 20);
  CHECK(ChooseRingChunkSize(vgg16, 16).bytes == 540'416);
  CHECK(ChooseRingChunkSize(vgg16, 16).reason ==
        "64 chunks for the part of each of 16 workers, from 16 KiB to 1 MiB");
  CHECK(ChooseRingChunkSize(Builtin("mnist_mlp"), 2).bytes == 16 << 10);
}

TEST_CASE("a shard gets 256 chunks, within the limits of what a chunk costs and gains") {
  const Model vgg16 = Builtin("vgg16");  // 553,430,176 bytes
  struct Case {
    int shards;
    double gbps;  // 0: no rates
    int64_t bytes;
    std::string reason;
  };
  const std::vector<Case> cases = {
      {1, 0, 655'360, "larger chunks would gain nothing"},
      {3, 0, 655'360, "larger chunks would gain nothing"},
      {4, 0, 540'480, "256 chunks for each of 4 shards"},
      {128, 0, 16'896, "256 chunks for each of 128 shards"},
      {512, 0, 16'384, "smaller chunks would cost more than they gain"},
      // 100 Gb/s are 250 kB in 20 us, a sixth of which each of 6 processors handles.
      {512, 100, 41'728,
       "with smaller chunks, processors would not keep up with links of 100 Gb/s"},
      {16, 100, 135'168, "256 chunks for each of 16 shards"},
      {512, 2000, 655'360, "larger chunks would gain nothing"},
  };
  for (const Case& c : cases) {
    CAPTURE(c.shards, c.gbps);
    const std::vector<double> rates(c.gbps > 0 ? c.shards : 0, c.gbps);
    const ChunkSize chosen = ChooseChunkSize(vgg16, c.shards, rates);
    CHECK(chosen.bytes == c.bytes);
    CHECK(chosen.reason == c.reason);
    CHECK(chosen.bytes % 64 == 0);
  }
}

TEST_CASE("with unequal rates, the smallest part counts and the fastest link") {
  const Model vgg16 = Builtin("vgg16");
  const ChunkSize chosen = ChooseChunkSize(vgg16, 4, {10, 1, 10, 10});
  CHECK(chosen.bytes == 69'760);  // a 31st of the model in 256 chunks
  CHECK(chosen.reason == "256 chunks for the slowest of 4 shards");
  CHECK(ChooseChunkSize(vgg16, 4, {100, 0.1, 100, 100}).bytes == 41'728);
}

TEST_CASE("the smallest model gets the smallest chunks") {
  CHECK(ChooseChunkSize(Builtin("mnist_mlp"), 1, {}).bytes == 16'384);
}

}  // namespace
}  // namespace evenshard
