// That the wire is plain gRPC and protobuf: a Python client, made of generated messages only,
// is one of the two workers of a run.

#include <catch2/catch.hpp>
#include <string>

#include "absl/strings/str_cat.h"
#include "tests/testing/program.h"
#include "tests/testing/scratch_folder.h"

namespace evenshard {
namespace {

using Catch::Contains;

// Tensors of 1 to 8 chunks, cut in the middle by the border between the shards.
std::string TwoWorkerConfig(const ScratchFolder& folder) {
  return folder.Write("run.textproto", absl::StrCat(R"(
    model {
      input { channels: 40 height: 1 width: 1 }
      layer { name: "fc1" linear { out_features: 50 } }
      layer { relu {} }
      layer { name: "fc2" linear { out_features: 30 } }
    }
    partition { scheme: MEMORY_BASED }
    shard { address: "unix:)",
                                                    folder.Path("0.sock"), R"(" }
    shard { address: "unix:)",
                                                    folder.Path("1.sock"), R"(" }
    workers: 2
    update { policy: SYNC }
    optimizer { kind: SGD learning_rate: 0.01 }
    training { iterations: 5 }
    compute { backend: EMULATED }
    limits { chunk_bytes: 1024 startup_seconds: 60 exchange_seconds: 60 shutdown_seconds: 20 }
  )"));
}

}  // namespace

TEST_CASE("a Python client is a worker of a run beside a C++ worker") {
  const ScratchFolder folder;
  const std::string config = TwoWorkerConfig(folder);
  Program plan({"tools/psctl/psctl", "plan", "--config=" + config, "--format=json"});
  REQUIRE(plan.Wait() == 0);
  folder.Write("plan.json", plan.output());

  Program shard0({"server/ps", "--shard=0", "--config=" + config});
  Program shard1({"server/ps", "--shard=1", "--config=" + config});
  Program worker({"worker/worker", "--rank=0", "--config=" + config});
  // Debian's own Python, with its modules only: others may come before it on the PATH.
  Program client({"/usr/bin/python3", "-I", "tests/integration/python_client.py", ".",
                  folder.Path("plan.json"), "1", "5"});
  const int client_code = client.Wait();
  {
    INFO(client.output());
    REQUIRE(client_code == 0);
    CHECK_THAT(client.output(), Contains("3580 parameters, 5 iterations: all as computed here"));
  }
  const int worker_code = worker.Wait();
  INFO(worker.output());
  CHECK(worker_code == 0);

  Program shutdown({"tools/psctl/psctl", "shutdown", "--config=" + config});
  CHECK(shutdown.Wait() == 0);
  CHECK(shard0.Wait() == 0);
  CHECK(shard1.Wait() == 0);
}

}  // namespace evenshard
