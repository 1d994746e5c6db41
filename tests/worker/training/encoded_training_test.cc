// A network that is trained with gradients of 8 and 4 bits comes to the loss of FLOAT32.

#include <catch2/catch.hpp>
#include <cmath>
#include <string>
#include <vector>

#include "tests/testing/cluster.h"
#include "tests/worker/training/whole_workers.h"

namespace evenshard {
namespace {

constexpr char kConfig[] = R"(
  model {
    input { channels: 1 height: 8 width: 8 }
    layer { name: "fc1" linear { out_features: 32 } }
    layer { relu {} }
    layer { name: "fc2" linear { out_features: 10 } }
  }
  partition { scheme: MEMORY_BASED }
  shard { address: "127.0.0.1:0" }
  shard { address: "127.0.0.1:0" }
  workers: 2
  update { policy: SYNC deterministic: true }
  optimizer { kind: MOMENTUM learning_rate: 0.05 }
  training { batch_size: 64 epochs: 12 }
  data {
    idx { images: "data/digits/images.idx3-ubyte.gz" labels: "data/digits/labels.idx1-ubyte.gz" }
    holdout: 0.2
  }
  compute { threads: 1 }
  limits { startup_seconds: 20 exchange_seconds: 60 }
)";

struct Trained {
  double loss = 0;  // of the last batches of both workers
  double accuracy = 0;
  std::vector<float> parameters;
};

Trained Train(const std::string& exchange) {
  TestCluster cluster(MustParse(kConfig, {"exchange={gradient_encoding: " + exchange + "}"}));
  const std::vector<Result> results = RunAll(cluster);
  RequireAllOk(results);
  REQUIRE(results[0]->final_accuracy.has_value());
  return {(results[0]->final_loss + results[1]->final_loss) / 2, *results[0]->final_accuracy,
          cluster.Parameters()};
}

TEST_CASE("8 bits, and 4 with error feedback, come to the loss and the accuracy of FLOAT32") {
  const Trained expected = Train("FLOAT32");
  CHECK(expected.accuracy > 0.93);
  for (const std::string exchange : {"INT8", "INT8 error_feedback: true",
                                     "INT4 error_feedback: true", "E3M0 error_feedback: true"}) {
    const Trained trained = Train(exchange);
    CAPTURE(exchange, trained.loss, expected.loss, trained.accuracy, expected.accuracy);
    CHECK(std::abs(trained.loss - expected.loss) < 0.02 * expected.loss);
    CHECK(std::abs(trained.accuracy - expected.accuracy) < 0.012);
  }
}

// The Euclidean distance.
double Distance(const std::vector<float>& a, const std::vector<float>& b) {
  double sum = 0;
  for (size_t i = 0; i < a.size(); ++i) sum += std::pow(double{a[i]} - b[i], 2);
  return std::sqrt(sum);
}

TEST_CASE("with error feedback 4 bits come several times as near to the parameters of FLOAT32") {
  const std::vector<float> expected = Train("FLOAT32").parameters;
  for (const std::string encoding : {"INT4", "E3M0"}) {
    const double without = Distance(Train(encoding).parameters, expected);
    const double with = Distance(Train(encoding + " error_feedback: true").parameters, expected);
    CAPTURE(encoding, without, with, Distance(expected, std::vector<float>(expected.size())));
    CHECK(without > 0);
    CHECK(with < 0.5 * without);
  }
}

TEST_CASE("a deterministic run in 4 bits gives the same bits again") {
  const std::string exchange =
      GENERATE("INT4 error_feedback: true",
               "INT4 error_feedback: true gradient_rounding: STOCHASTIC", "INT4");
  CAPTURE(exchange);
  CHECK(Train(exchange).parameters == Train(exchange).parameters);
}

}  // namespace
}  // namespace evenshard
