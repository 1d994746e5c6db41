#include "common/model/chunk_size.h"

#include <catch2/catch.hpp>
#include <string>
#include <vector>

#include "common/model/model.h"

namespace ps {
namespace {

Model Builtin(const std::string& name) {
  ModelSpec spec;
  spec.set_builtin(name);
  absl::StatusOr<Model> model = Model::Create(spec);
  REQUIRE(model.ok());
  return *std::move(model);
}

TEST_CASE("a shard gets 64 chunks, within the limits of what a chunk costs and gains") {
  const Model vgg16 = Builtin("vgg16");  // 553,430,176 bytes
  struct Case {
    int shards;
    double gbps;  // 0: no rates
    int connections;
    int64_t bytes;
    std::string reason;
  };
  const std::vector<Case> cases = {
      {1, 0, 3, 655'360, "larger chunks would gain nothing"},
      {13, 0, 3, 655'360, "larger chunks would gain nothing"},
      {14, 0, 3, 617'728, "64 chunks for each of 14 shards"},
      {512, 0, 3, 16'896, "64 chunks for each of 512 shards"},
      {600, 0, 3, 16'384, "smaller chunks would cost more than they gain"},
      // 100 Gb/s are 250 kB in 20 us.
      {512, 100, 3, 83'392,
       "with smaller chunks, processors would not keep up with links of 100 Gb/s"},
      {512, 100, 16, 16'896, "64 chunks for each of 512 shards"},
      {512, 1000, 1, 655'360, "larger chunks would gain nothing"},
  };
  for (const Case& c : cases) {
    CAPTURE(c.shards, c.gbps, c.connections);
    const std::vector<double> rates(c.gbps > 0 ? c.shards : 0, c.gbps);
    const ChunkSize chosen = ChooseChunkSize(vgg16, c.shards, rates, c.connections);
    CHECK(chosen.bytes == c.bytes);
    CHECK(chosen.reason == c.reason);
    CHECK(chosen.bytes % 64 == 0);
  }
}

TEST_CASE("with unequal rates, the smallest part counts and the fastest link") {
  const Model vgg16 = Builtin("vgg16");
  const ChunkSize chosen = ChooseChunkSize(vgg16, 4, {10, 1, 10, 10}, 3);
  CHECK(chosen.bytes == 278'976);  // a 31st of the model in 64 chunks
  CHECK(chosen.reason == "64 chunks for the slowest of 4 shards");
  CHECK(ChooseChunkSize(vgg16, 4, {100, 0.1, 100, 100}, 3).bytes == 83'392);
}

TEST_CASE("the smallest model gets the smallest chunks") {
  CHECK(ChooseChunkSize(Builtin("mnist_mlp"), 1, {}, 3).bytes == 16'384);
}

}  // namespace
}  // namespace ps
