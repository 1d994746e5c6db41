#include "worker/exchange/core/gradient_encoder.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <limits>
#include <random>
#include <string>
#include <vector>

namespace evenshard {
namespace {

// Chunks of 256 elements, whose sizes are no multiples of a block where a tensor ends.
constexpr char kConfig[] = R"(
  model { from_workers { tensor { name: "a" shape: 700 } tensor { name: "b" shape: 300 TYPE }
                         tensor { name: "n" shape: 3 role: RUNNING_STATISTIC }
                         tensor { name: "c" shape: 9 role: BUFFER } } }
  optimizer { kind: SGD learning_rate: 0.1 }
  partition { scheme: MEMORY_BASED }
  shard { address: "127.0.0.1:0" }
  workers: 2
  update { policy: SYNC }
  limits { chunk_bytes: 1024 }
)";

PlannedConfig ConfigWith(const std::string& exchange, const std::string& type = "") {
  std::string text = kConfig;
  text.replace(text.find("TYPE"), 4, type.empty() ? "" : "type: " + type);
  absl::StatusOr<PlannedConfig> config =
      PlannedConfig::Parse(text + "exchange { " + exchange + " }", "test.textproto");
  INFO(config.status().ToString());
  REQUIRE(config.ok());
  return *std::move(config);
}

// A worker's memory of gradients, and its encoder.
class Pushes {
 public:
  explicit Pushes(PlannedConfig config, int rank = 1)
      : config_(std::move(config)), gradients_(config_.model().buffer_size()) {
    absl::StatusOr<std::unique_ptr<GradientEncoder>> encoder =
        GradientEncoder::Create(config_, rank);
    REQUIRE(encoder.ok());
    encoder_ = *std::move(encoder);
  }

  const PlannedConfig& config() const { return config_; }
  GradientEncoder& encoder() { return *encoder_; }
  const std::vector<Chunk>& chunks() const { return config_.plan().chunks(); }
  const char* memory() const { return reinterpret_cast<const char*>(gradients_.data()); }

  // Sets a gradient and returns it as the worker has it, in its type.
  std::vector<float> SetGradient(const Chunk& chunk, std::vector<float> values) {
    const PlannedConfig::Place place = config_.GradientPlace(/*assigned=*/false, chunk);
    char* const at = reinterpret_cast<char*>(gradients_.data()) + place.begin;
    Encode(place.type, values, at);
    Decode(place.type, {{at, static_cast<size_t>(place.bytes)}}, absl::MakeSpan(values));
    return values;
  }

  // Returns what a push of a chunk has as data, or "" if it needs no sending.
  std::string Data(const Chunk& chunk, uint64_t iteration, float weight = 1) {
    const Encoding encoding = config_.GradientEncoding(/*assigned=*/false, chunk);
    std::string data(EncodedBytes(encoding, chunk.size), '#');
    const GradientHeader header = {.worker = 1,
                                   .iteration = iteration,
                                   .chunk = chunk.id,
                                   .encoding = encoding,
                                   .weight = weight};
    return encoder_->Encode(header, memory(), data.data()) ? data : "";
  }
  void Settle(const Chunk& chunk, uint64_t iteration, bool dropped = false) {
    encoder_->Settle(chunk, iteration, memory(), dropped);
  }

  std::vector<float> Decoded(const Chunk& chunk, const std::string& data) const {
    std::vector<float> values(chunk.size);
    Decode(config_.GradientEncoding(/*assigned=*/false, chunk), {absl::MakeConstSpan(data)},
           absl::MakeSpan(values));
    return values;
  }
  std::string Encoded(const Chunk& chunk, const std::vector<float>& values,
                      const Rounding& rounding = {}) const {
    const Encoding encoding = config_.GradientEncoding(/*assigned=*/false, chunk);
    std::string data(EncodedBytes(encoding, chunk.size), '\0');
    Encode(encoding, values, data.data(), rounding);
    return data;
  }

 private:
  PlannedConfig config_;
  std::vector<float> gradients_;
  std::unique_ptr<GradientEncoder> encoder_;
};

std::vector<float> RandomFloats(std::mt19937_64& random, int64_t n) {
  std::normal_distribution<float> normal;
  std::vector<float> values(n);
  for (float& value : values) value = normal(random);
  return values;
}

bool IsCompressed(const PlannedConfig& config, const Chunk& chunk) {
  return config.TensorOf(chunk).role == TensorRole::kParameter;
}

TEST_CASE("what rounding has lost counts as much as it would have, whatever the pushes' weights") {
  std::mt19937_64 random(1);
  Pushes pushes(ConfigWith("gradient_encoding: INT4 error_feedback: true"));
  for (const Chunk& chunk : pushes.chunks()) {
    if (!IsCompressed(pushes.config(), chunk)) continue;
    std::vector<double> wanted(chunk.size), got(chunk.size);
    uint64_t iteration = 0;
    for (const float weight : {1.0f, 0.125f, 0.5f, 0.0625f}) {
      std::vector<float> gradient = RandomFloats(random, chunk.size);
      for (int64_t i = 0; i < chunk.size; ++i) wanted[i] += gradient[i];
      for (float& value : gradient) value *= weight;
      pushes.SetGradient(chunk, gradient);
      const auto pushed = pushes.Decoded(chunk, pushes.Data(chunk, iteration, weight));
      for (int64_t i = 0; i < chunk.size; ++i) got[i] += pushed[i] / weight;
      pushes.Settle(chunk, iteration++);
    }
    // What is left is what the last push has lost: half a step of the largest of a block.
    for (int64_t i = 0; i < chunk.size; ++i) REQUIRE(std::abs(wanted[i] - got[i]) < 0.4);
  }
}

TEST_CASE("a push without error feedback has the gradient encoded, whatever its type in memory") {
  std::mt19937_64 random(1);
  for (const std::string encoding : {"INT8", "INT4", "E3M0"}) {
    for (const std::string type : {"", "BFLOAT16", "FLOAT16"}) {
      for (const std::string rounding : {"NEAREST", "STOCHASTIC"}) {
        CAPTURE(encoding, type, rounding);
        Pushes pushes(
            ConfigWith("gradient_encoding: " + encoding + " gradient_rounding: " + rounding, type));
        for (const Chunk& chunk : pushes.chunks()) {
          if (!IsCompressed(pushes.config(), chunk)) continue;
          const std::vector<float> gradient =
              pushes.SetGradient(chunk, RandomFloats(random, chunk.size));
          const Rounding expected = {rounding == "STOCHASTIC", RoundingKey(1, 6),
                                     static_cast<uint32_t>(chunk.model_offset)};
          const std::string data = pushes.Data(chunk, 6);
          REQUIRE(data == pushes.Encoded(chunk, gradient, expected));
          pushes.Settle(chunk, 6);
          REQUIRE(pushes.Data(chunk, 6) == data);
        }
      }
    }
  }
}

TEST_CASE("running statistics and buffers stay FLOAT32, and 16 bits in memory do not travel so") {
  const PlannedConfig config = ConfigWith("gradient_encoding: INT4", "BFLOAT16");
  for (const Chunk& chunk : config.plan().chunks()) {
    CAPTURE(config.TensorOf(chunk).name);
    CHECK(config.GradientEncoding(false, chunk) == (IsCompressed(config, chunk) ? INT4 : FLOAT32));
    CHECK(config.GradientEncoding(true, chunk) == FLOAT32);
    CHECK(config.ParameterEncoding(chunk) == config.TensorOf(chunk).type);
  }
}

TEST_CASE("what a push has lost is added to the next one, once the push is answered") {
  const auto seed = std::random_device()();
  CAPTURE(seed);
  std::mt19937_64 random(seed);
  for (const std::string options : {"INT8", "INT4", "E3M0", "INT4 gradient_rounding: STOCHASTIC"}) {
    CAPTURE(options);
    Pushes pushes(ConfigWith("error_feedback: true gradient_encoding: " + options, "BFLOAT16"));
    const bool is_stochastic =
        pushes.config().proto().exchange().gradient_rounding() == ExchangeConfig::STOCHASTIC;
    for (const Chunk& chunk : pushes.chunks()) {
      if (!IsCompressed(pushes.config(), chunk)) continue;
      std::vector<float> rest(chunk.size);
      for (uint64_t iteration = 0; iteration < 5; ++iteration) {
        std::vector<float> sum = pushes.SetGradient(chunk, RandomFloats(random, chunk.size));
        for (int64_t i = 0; i < chunk.size; ++i) sum[i] += rest[i];
        const std::string data = pushes.Data(chunk, iteration);
        const Rounding rounding = {is_stochastic, RoundingKey(1, iteration),
                                   static_cast<uint32_t>(chunk.model_offset)};
        REQUIRE(data == pushes.Encoded(chunk, sum, rounding));
        REQUIRE(pushes.Data(chunk, iteration) == data);  // a repeat
        pushes.Settle(chunk, iteration);
        pushes.Settle(chunk, iteration);  // of a repeat's answer
        REQUIRE(pushes.Data(chunk, iteration).empty());
        const std::vector<float> sent = pushes.Decoded(chunk, data);
        for (int64_t i = 0; i < chunk.size; ++i) rest[i] = sum[i] - sent[i];
      }
      REQUIRE(std::any_of(rest.begin(), rest.end(), [](float value) { return value != 0; }));
    }
  }
}

TEST_CASE("what a push has brought that was dropped is added to the next one") {
  std::mt19937_64 random(3);
  Pushes pushes(ConfigWith("error_feedback: true gradient_encoding: INT4"));
  for (const Chunk& chunk : pushes.chunks()) {
    if (!IsCompressed(pushes.config(), chunk)) continue;
    std::vector<float> rest(chunk.size);
    for (uint64_t iteration = 0; iteration < 6; ++iteration) {
      const bool dropped = iteration % 3 != 2;
      std::vector<float> sum = pushes.SetGradient(chunk, RandomFloats(random, chunk.size));
      for (int64_t i = 0; i < chunk.size; ++i) sum[i] += rest[i];
      const std::string data = pushes.Data(chunk, iteration);
      REQUIRE(data == pushes.Encoded(chunk, sum));
      pushes.Settle(chunk, iteration, dropped);
      const std::vector<float> sent = pushes.Decoded(chunk, data);
      for (int64_t i = 0; i < chunk.size; ++i) rest[i] = dropped ? sum[i] : sum[i] - sent[i];
    }
  }
}

TEST_CASE("what was dropped is carried in any encoding, and only until it counts") {
  std::mt19937_64 random(4);
  for (const std::string encoding : {"FLOAT32", "BFLOAT16", "INT4"}) {
    CAPTURE(encoding);
    std::string text = kConfig;
    text.replace(text.find("model {"), text.find("optimizer") - text.find("model {"),
                 "model { builtin: \"mnist_mlp\" }\n  ");
    text.replace(text.find("SYNC"), 4, "QUORUM quorum: 1 late: CARRY");
    Pushes pushes(*PlannedConfig::Parse(text + "exchange { gradient_encoding: " + encoding +
                                            " } training { iterations: 1 }" +
                                            " data { synthetic {} }",
                                        "test.textproto"));
    const Chunk& chunk = pushes.chunks()[1];
    const GradientHeader header = {.chunk = chunk.id,
                                   .encoding = pushes.config().GradientEncoding(false, chunk)};
    CHECK(pushes.encoder().Encodes(header));
    std::vector<float> carried(chunk.size);
    for (uint64_t iteration = 0; iteration < 7; ++iteration) {
      const bool dropped = iteration % 3 != 2;
      std::vector<float> sum = pushes.SetGradient(chunk, RandomFloats(random, chunk.size));
      for (int64_t i = 0; i < chunk.size; ++i) sum[i] += carried[i];
      const std::string data = pushes.Data(chunk, iteration);
      REQUIRE(data == pushes.Encoded(chunk, sum));
      REQUIRE(pushes.Data(chunk, iteration) == data);
      pushes.Settle(chunk, iteration, dropped);
      carried = dropped ? sum : std::vector<float>(chunk.size);
    }
  }
}

TEST_CASE("an iteration without a push leaves the residual, and going back makes it zero") {
  std::mt19937_64 random(2);
  Pushes pushes(ConfigWith("error_feedback: true gradient_encoding: INT4"));
  const Chunk& chunk = pushes.chunks()[1];
  std::vector<float> gradient = pushes.SetGradient(chunk, RandomFloats(random, chunk.size));
  const std::string first = pushes.Data(chunk, 0);
  pushes.Settle(chunk, 0);
  pushes.Settle(chunk, 1);  // the worker skipped this one
  pushes.Settle(chunk, 2);
  const std::vector<float> sent = pushes.Decoded(chunk, first);
  std::vector<float> sum(chunk.size);
  for (int64_t i = 0; i < chunk.size; ++i) sum[i] = gradient[i] + (gradient[i] - sent[i]);
  CHECK(pushes.Data(chunk, 3) == pushes.Encoded(chunk, sum));

  pushes.encoder().Reset();
  CHECK(pushes.Data(chunk, 3) == first);
  CHECK(pushes.Data(chunk, 0) == first);
}

TEST_CASE("what is not finite is pushed so and leaves its block's residual as it was") {
  std::mt19937_64 random(3);
  for (const float bad : {std::nanf(""), std::numeric_limits<float>::infinity()}) {
    Pushes pushes(ConfigWith("error_feedback: true gradient_encoding: INT4"));
    const Chunk& chunk = pushes.chunks()[0];
    REQUIRE(chunk.size == 256);
    const std::vector<float> gradient = pushes.SetGradient(chunk, RandomFloats(random, chunk.size));
    pushes.Settle(chunk, 0);
    const std::vector<float> sent = pushes.Decoded(chunk, pushes.Data(chunk, 1));
    pushes.Settle(chunk, 1);
    std::vector<float> broken = gradient;
    broken[70] = bad;
    pushes.SetGradient(chunk, broken);
    const std::string data = pushes.Data(chunk, 2);
    CHECK(FindNonFinite(INT4, {absl::MakeConstSpan(data)}, chunk.size) == 70);
    pushes.Settle(chunk, 2);
    pushes.SetGradient(chunk, gradient);
    const std::string next = pushes.Data(chunk, 3);
    CHECK(FindNonFinite(INT4, {absl::MakeConstSpan(next)}, chunk.size) == -1);
    std::vector<float> sum(chunk.size);
    for (int64_t i = 0; i < chunk.size; ++i) sum[i] = gradient[i] + (gradient[i] - sent[i]);
    // The second block, of elements 64 to 127, had the value.
    CHECK(next.substr(34, 34) == pushes.Encoded(chunk, sum).substr(34, 34));
    CHECK(next.substr(0, 34) != pushes.Encoded(chunk, sum).substr(0, 34));
  }
}

}  // namespace
}  // namespace evenshard
