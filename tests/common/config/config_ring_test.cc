// Tests the part of a config that concerns a ring.

#include <catch2/catch.hpp>
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "tests/common/config/config_fixture.h"

namespace evenshard {
namespace {

constexpr char kRing[] = R"(model {
  input { channels: 1 height: 8 width: 8 }
  layer { name: "fc1" linear { out_features: 32 } }
  layer { relu {} }
  layer { name: "fc2" linear { out_features: 10 } }
}
topology: RING
ring { address: "localhost:50051" address: "localhost:50052" address: "unix:ring" }
workers: 3
update { policy: SYNC }
training { batch_size: 4 epochs: 3 }
data { synthetic {} }
)";

std::string ErrorOfRing(const std::string& override) {
  std::string error = ErrorOf(kRing, {override});
  const std::string prefix = absl::StrCat("--set ", override, ": ");
  return absl::StartsWith(error, prefix) ? error.substr(prefix.size()) : error;
}

TEST_CASE("a ring has workers, buckets and chunks, and no shards") {
  const PlannedConfig config = Valid(kRing);
  CHECK(config.is_ring());
  CHECK(config.shards() == 0);
  CHECK(config.plan().chunks().empty());
  CHECK(config.proto().ring().bucket_bytes() == 26214400);
  CHECK(config.proto().ring().first_bucket_bytes() == 1048576);
  CHECK(config.proto().limits().chunk_bytes() == config.plan_choice().chunk_bytes);
  CHECK(config.proto().limits().chunk_bytes() >= 16384);
  CHECK(!config.proto().exchange().shared_memory());
  CHECK(config.proto().exchange().schedule() == ExchangeConfig::FULL);
  CHECK(!Valid(kConfig).is_ring());
}

TEST_CASE("workers of a ring agree on its buckets, and may know others by other addresses") {
  const uint64_t fingerprint = Valid(kRing).fingerprint();
  CHECK(Valid(kRing, {"ring.address[1]=10.0.0.2:1"}).fingerprint() == fingerprint);
  CHECK(Valid(kRing, {"ring.bucket_bytes=20000000"}).fingerprint() != fingerprint);
  CHECK(Valid(kRing, {"ring.first_bucket_bytes=20000"}).fingerprint() != fingerprint);
}

TEST_CASE("what a ring cannot be is refused before anything starts") {
  CHECK(ErrorOfRing("workers=1") ==
        "workers: is 1 with topology RING, and nobody is there to pass anything on to, allowed: at "
        "least 2\n--set workers=1: ring.address: has 3 entries, allowed: 1, one for each worker in "
        "the order of ranks");
  CHECK(ErrorOfRing("ring.bucket_bytes=16320") ==
        "ring.bucket_bytes: is 16320, allowed: at least a chunk, 16384, and at most "
        "1099511627776");
  CHECK(ErrorOfRing("ring.first_bucket_bytes=0") ==
        "ring.first_bucket_bytes: is 0, allowed: at least a chunk, 16384, and at most "
        "1099511627776");
  CHECK(ErrorOfRing("update={policy: SSP staleness: 2}") ==
        "update.policy: is SSP with topology RING, in which every sum has all workers' gradients, "
        "allowed: SYNC, or topology PARAMETER_SERVER");
  CHECK(ErrorOfRing("update.policy=ASYNC").find("update.policy: is ASYNC with topology RING") == 0);
  CHECK(ErrorOfRing("update={policy: QUORUM quorum: 2}")
            .find("update.policy: is QUORUM with topology RING") == 0);
  CHECK(ErrorOfRing("update.max_norm=10") ==
        "update.max_norm: is 10 with topology RING, where no shard sees each worker's gradient, "
        "allowed: 0");
  CHECK(ErrorOfRing("shard={address: 'a:1'}") ==
        "shard: is given with topology RING, whose workers need no shards, allowed: none");
  CHECK(ErrorOfRing("colocated=true") ==
        "colocated: is true with topology RING, whose workers need no shards, allowed: false");
  CHECK(ErrorOfRing("partition={scheme: STRIPED}") ==
        "partition: is given with topology RING, where each bucket is cut into equal parts, one "
        "for each worker, allowed: none");
  CHECK(ErrorOfRing("recovery={replicas: 1}") ==
        "recovery.replicas: is 1 with topology RING, which goes back to a checkpoint after a loss, "
        "allowed: 0");
  CHECK(ErrorOfRing("recovery={spare {address: 'a:1'}}") ==
        "recovery.spare: is given with topology RING, which has no shards to replace, allowed: "
        "none");
  CHECK(ErrorOfRing("recovery={etcd {endpoint: 'a:1'}}") ==
        "recovery.etcd: is given with topology RING, whose workers only launch starts again, "
        "allowed: none");
  CHECK(ErrorOfRing("recovery={checkpoint {folder: 'f' every_seconds: 5}}") ==
        "recovery.checkpoint.every_seconds: is 5 with topology RING, whose workers all cut after "
        "the same iteration without asking anybody, allowed: every_iterations in its place");
  CHECK(ErrorOfRing("recovery={checkpoint {folder: 'f' every_iterations: 5 "
                    "buffer_bytes: 100000000}}") ==
        "recovery.checkpoint.buffer_bytes: has no effect with topology RING, where a worker copies "
        "all of its part, allowed: none");
  CHECK(ErrorOfRing("recovery={worker_loss: CONTINUE min_workers: 1}") ==
        "recovery.min_workers: is 1 with topology RING, which needs two, allowed: 2 to the number "
        "of workers");
  CHECK(ErrorOfRing("exchange.update_encoding=INT8") ==
        "exchange.update_encoding: is INT8 with topology RING, whose workers pass on parameters, "
        "allowed: none");
  CHECK(ErrorOfRing("exchange.gradient_encoding=INT8") ==
        "exchange.gradient_encoding: is INT8 with topology RING, where every worker on the way "
        "would round the sum once more, allowed: FLOAT32, FLOAT16, BFLOAT16");
  CHECK(ErrorOfRing("exchange.shared_memory=true") ==
        "exchange.shared_memory: is true with topology RING, where workers exchange messages, "
        "allowed: false, the default with it");
  CHECK(ErrorOfRing("local={steps: 4 fragments: 2 optimizer {kind: ADAMW}}") ==
        "local.fragments: is 2 with topology RING, whose chunks may have layers of several "
        "fragments, allowed: 1");
  CHECK(ErrorOfRing("limits.lead_bytes=1000000") ==
        "limits.lead_bytes: has no effect with topology RING, because it is about shards, allowed: "
        "none");
  CHECK(ErrorOfRing("limits.reconnect_seconds=1") ==
        "limits.reconnect_seconds: has no effect with topology RING, which ends when a connection "
        "breaks, allowed: none");
  Valid(kRing, {"exchange.gradient_encoding=BFLOAT16", "exchange.parameter_encoding=FLOAT16"});
  Valid(kRing, {"update.deterministic=true"});
  CHECK(Valid(kRing, {"update.clip_global_norm=1"}).clips_mean());
  Valid(kRing, {"recovery={worker_loss: WAIT}"});
  Valid(kRing, {"recovery={checkpoint {folder: 'f' every_iterations: 5 keep: 2} "
                "worker_loss: CONTINUE min_workers: 2 silence_seconds: 2}"});
}

TEST_CASE("models from workers travel in 32 bits in a ring") {
  constexpr char kText[] = R"(
model { from_workers {} }
topology: RING
ring { address: "a:1" address: "a:2" }
workers: 2
update { policy: SYNC }
)";
  CHECK(Valid(kText).is_ring());
  constexpr char kAllowed[] =
      " with topology RING, where programs bring the model and everything travels in 32 bits, "
      "allowed: FLOAT32";
  for (const std::string field : {"gradient_encoding", "parameter_encoding"}) {
    const std::string error = ErrorOf(absl::StrCat(kText, "exchange { ", field, ": BFLOAT16 }"));
    CHECK(error.find(absl::StrCat("exchange.", field, ": is BFLOAT16", kAllowed)) !=
          std::string::npos);
  }
  const std::string error = ErrorOf(R"(
model { from_workers { tensor { name: "w" shape: 3 type: BFLOAT16 } } }
topology: RING
ring { address: "a:1" address: "a:2" }
workers: 2
update { policy: SYNC }
optimizer { kind: SGD learning_rate: 0.1 }
)");
  CHECK(error.find(absl::StrCat("model.from_workers: has w, which is BFLOAT16", kAllowed)) !=
        std::string::npos);
}

TEST_CASE("the workers of a ring have different addresses") {
  CHECK(ErrorOfRing("ring.address[1]=LOCALHOST:50051") ==
        "ring.address[1]: is \"LOCALHOST:50051\", the same as ring.address[0], allowed: a "
        "different address for each worker");
  CHECK(ErrorOfRing("ring.address[1]=nowhere") ==
        "ring.address[1]: is \"nowhere\", allowed: host:port or [IPv6]:port with a port of 0 to "
        "65535, or unix:PATH of at most 107 bytes");
  Valid(kRing, {"ring.address[1]=localhost:0", "ring.address[0]=localhost:0"});
}

TEST_CASE("`ring` is only for a ring") {
  CHECK(ErrorOfOverride("ring={address: 'a:1'}") ==
        "ring: has no effect with PARAMETER_SERVER, allowed: only with RING");
}

}  // namespace
}  // namespace evenshard
