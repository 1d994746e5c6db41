// Tests the parts of a config that concern the exchange's schedule and encodings, and emulated
// times and sizes.

#include <catch2/catch.hpp>
#include <string>

#include "absl/strings/str_cat.h"
#include "tests/common/config/config_fixture.h"

namespace evenshard {
namespace {

// Overrides the backend with EMULATED, for 5 iterations, and then applies `more`.
Overrides Emulated(const Overrides& more) {
  Overrides overrides = {"compute.backend=EMULATED", "training.iterations=5"};
  overrides.insert(overrides.end(), more.begin(), more.end());
  return overrides;
}

ExchangeConfig::Schedule ScheduleOf(const Overrides& overrides) {
  return Valid(kConfig, overrides).proto().exchange().schedule();
}

}  // namespace

TEST_CASE("the schedule is FULL, or BACKWARD where workers bring the model") {
  const std::string text =
      "model { from_workers {} } partition { scheme: STRIPED } shard { address: \"localhost:1\" } "
      "workers: 1 update { policy: SYNC }";
  const auto schedule = [&](const Overrides& overrides) {
    return Valid(text, overrides).proto().exchange().schedule();
  };
  CHECK(schedule({}) == ExchangeConfig::BACKWARD);
  CHECK(schedule({"exchange.schedule=FULL"}) == ExchangeConfig::FULL);
  CHECK(schedule({"update.non_finite=SKIP"}) == ExchangeConfig::SEQUENTIAL);
}

TEST_CASE("INT8, INT4 and E3M0 are for gradients, and what concerns them is refused without them") {
  for (const std::string encoding : {"INT8", "INT4", "E3M0"}) {
    CAPTURE(encoding);
    CHECK(ErrorOf(kConfig, {"exchange.parameter_encoding=" + encoding}) ==
          "--set exchange.parameter_encoding=" + encoding + ": exchange.parameter_encoding: is " +
              encoding +
              ", allowed: FLOAT32, FLOAT16, BFLOAT16, because the errors of parameters do not "
              "average out as those of gradients do");
    const ExchangeConfig exchange =
        Valid(kConfig, {"exchange.gradient_encoding=" + encoding, "exchange.error_feedback=true",
                        "exchange.gradient_rounding=STOCHASTIC"})
            .proto()
            .exchange();
    CHECK(exchange.error_feedback());
    CHECK(exchange.gradient_rounding() == ExchangeConfig::STOCHASTIC);
  }
  for (const std::string encoding : {"FLOAT32", "FLOAT16", "BFLOAT16"}) {
    const std::string gradient = "exchange.gradient_encoding=" + encoding;
    CHECK(ErrorOf(kConfig, {gradient, "exchange.error_feedback=true"}) ==
          "--set exchange.error_feedback=true: exchange.error_feedback: has no effect with " +
              encoding + ", allowed: only with INT8, INT4, E3M0");
    CHECK(ErrorOf(kConfig, {gradient, "exchange.gradient_rounding=STOCHASTIC"}) ==
          "--set exchange.gradient_rounding=STOCHASTIC: exchange.gradient_rounding: has no effect "
          "with " +
              encoding + ", allowed: only with INT8, INT4, E3M0");
    CHECK_FALSE(Valid(kConfig, {gradient}).proto().exchange().error_feedback());
  }
}

TEST_CASE("programs that bring the model are waited for longer, unless the config says how long") {
  const std::string text =
      "model { from_workers {} } partition { scheme: STRIPED } shard { address: \"localhost:1\" } "
      "workers: 1 update { policy: SYNC }";
  const Overrides five = {"limits.exchange_seconds=5"};
  CHECK(Valid(text, {}).worker_patience() == absl::Minutes(30));
  CHECK(Valid(text, five).worker_patience() == absl::Seconds(5));
  CHECK(Valid(text, {"limits.exchange_seconds=300"}).worker_patience() == absl::Minutes(5));
  CHECK(Valid(kConfig, {}).worker_patience() == absl::Minutes(5));
  CHECK(Valid(kConfig, five).worker_patience() == absl::Seconds(5));
}

TEST_CASE("the schedule is FULL, or SEQUENTIAL where the whole gradient is needed first") {
  CHECK(ScheduleOf({}) == ExchangeConfig::FULL);
  CHECK(ScheduleOf({"update.clip_global_norm=1"}) == ExchangeConfig::FULL);
  CHECK(ScheduleOf({"update.policy=ASYNC", "update.clip_global_norm=1"}) ==
        ExchangeConfig::SEQUENTIAL);
  CHECK(ScheduleOf({"update.non_finite=SKIP"}) == ExchangeConfig::SEQUENTIAL);
  CHECK(ScheduleOf({"update.clip_value=1"}) == ExchangeConfig::FULL);
  CHECK(ScheduleOf({"exchange.schedule=BACKWARD"}) == ExchangeConfig::BACKWARD);
  CHECK(ScheduleOf({"exchange.schedule=SEQUENTIAL", "update.clip_global_norm=1"}) ==
        ExchangeConfig::SEQUENTIAL);
}

TEST_CASE("BACKWARD and FULL refuse what needs the whole gradient before any of it leaves") {
  for (const std::string schedule : {"BACKWARD", "FULL"}) {
    const std::string set = "exchange.schedule=" + schedule;
    CHECK(ScheduleOf({set, "update.clip_global_norm=1"}) != ExchangeConfig::SEQUENTIAL);
    CHECK(ErrorOf(kConfig, {set, "update.policy=ASYNC", "update.clip_global_norm=1"}) ==
          absl::StrCat(
              "--set ", set, ": exchange.schedule: is ", schedule,
              " with update.clip_global_norm under ASYNC or SSP, which needs the whole gradient "
              "before any of it leaves, allowed: SEQUENTIAL, or without "
              "update.clip_global_norm"));
    CHECK(ErrorOf(absl::StrCat(kConfig, "exchange { schedule: ", schedule, " }"),
                  {"update.non_finite=SKIP"}) ==
          absl::StrCat("--set update.non_finite=SKIP: exchange.schedule: is ", schedule,
                       " with update.non_finite: SKIP, which needs the whole gradient before any "
                       "of it leaves, allowed: SEQUENTIAL, or without update.non_finite"));
  }
}

TEST_CASE("processes must agree on the schedule, also where one of them leaves it to the default") {
  const auto fingerprint = [](const Overrides& overrides) {
    return Valid(kConfig, overrides).fingerprint();
  };
  CHECK(fingerprint({"exchange.schedule=FULL"}) == fingerprint({}));
  CHECK(fingerprint({"exchange.schedule=BACKWARD"}) != fingerprint({}));
  CHECK(fingerprint({"exchange.schedule=SEQUENTIAL"}) != fingerprint({}));
  CHECK(fingerprint({"update.non_finite=SKIP", "exchange.schedule=SEQUENTIAL"}) ==
        fingerprint({"update.non_finite=SKIP"}));
  CHECK(fingerprint(Emulated({"compute.emulated={device: 'rtx_2080_ti'}"})) !=
        fingerprint(Emulated({})));
  CHECK(fingerprint(Emulated({"compute.emulated={time_dilation: 1 device: 'none'}"})) ==
        fingerprint(Emulated({})));
  CHECK(fingerprint(Emulated({"model.shrink=2"})) != fingerprint(Emulated({})));
}

TEST_CASE("an emulated device must be known, and its time dilation positive") {
  Valid(kConfig, Emulated({"compute.emulated={device: 'rtx_2080_ti' time_dilation: 0.5}"}));
  CHECK(ErrorOf(kConfig, Emulated({"compute.emulated.device=rtx_9"})) ==
        "--set compute.emulated.device=rtx_9: compute.emulated.device: is \"rtx_9\", allowed: "
        "\"none\", \"rtx_2080_ti\", \"cpu_epyc_2_threads\"");
  for (const std::string wrong : {"0", "-1", "nan", "inf"}) {
    const std::string set = "compute.emulated.time_dilation=" + wrong;
    CHECK(ErrorOf(kConfig, Emulated({set})) == absl::StrCat("--set ", set,
                                                            ": compute.emulated.time_dilation: is ",
                                                            wrong, ", allowed: a number above 0"));
  }
  CHECK(ErrorOfOverride("compute.emulated={device: 'rtx_2080_ti'}") ==
        "compute.emulated: has no effect with CPU, allowed: only with EMULATED");
}

TEST_CASE("emulated workers may be slow, each by a factor above 0, and all processes know") {
  const auto fingerprint = [](const std::string& factors) {
    return Valid(kConfig, Emulated({"compute.emulated={worker_slowdown: " + factors + "}"}))
        .fingerprint();
  };
  CHECK(fingerprint("[1, 2]") != fingerprint("[2]"));
  CHECK(fingerprint("[2, 1]") == fingerprint("[2]"));
  CHECK(fingerprint("[1, 1]") == Valid(kConfig, Emulated({})).fingerprint());
  for (const std::string wrong : {"0", "-1", "nan", "inf"}) {
    const std::string set = "compute.emulated={worker_slowdown: [1, " + wrong + "]}";
    CHECK(ErrorOf(kConfig, Emulated({set})) ==
          absl::StrCat("--set ", set, ": compute.emulated.worker_slowdown[1]: is ", wrong,
                       ", allowed: a number above 0"));
  }
  const std::string set = "compute.emulated={worker_slowdown: [1, 1, 2]}";
  CHECK(ErrorOf(kConfig, Emulated({"workers=2", set})) ==
        absl::StrCat("--set ", set,
                     ": compute.emulated.worker_slowdown: has 3 entries, allowed: "
                     "at most one for each of 2 workers"));
}

TEST_CASE("only emulated tensors shrink, and each keeps an element") {
  CHECK(Valid(kConfig, Emulated({"model.shrink=10"})).model().parameter_count() ==
        64 * 32 / 10 + 32 / 10 + 32 * 10 / 10 + 10 / 10);
  CHECK(ErrorOfOverride("model.shrink=2") ==
        "model.shrink: is 2 with backend CPU, which needs whole tensors, allowed: 1, or "
        "compute.backend EMULATED");
  for (const std::string wrong : {"11", "0"}) {
    CHECK(ErrorOf(kConfig, Emulated({"model.shrink=" + wrong})) ==
          absl::StrCat("--set model.shrink=", wrong, ": model.shrink: is ", wrong,
                       ", allowed: 1 to 10, the elements of the smallest tensor, fc2/bias"));
  }
}

TEST_CASE("updates are rounded where all workers have the shards' parameters") {
  for (const std::string encoding : {"INT8", "INT4", "E3M0"}) {
    const PlannedConfig config = Valid(kConfig, {"exchange.update_encoding=" + encoding});
    CHECK_FALSE(config.proto().exchange().shared_memory());
    for (const Chunk& chunk : config.plan().chunks()) {
      CHECK(EncodingName(config.AnswerEncoding(chunk)) == encoding);
      CHECK(config.ParameterEncoding(chunk) == FLOAT32);
    }
    CHECK(config.fingerprint() != Valid(kConfig).fingerprint());
  }
  const std::string set = "--set exchange.update_encoding=";
  const auto error = [&](std::vector<std::string> more, const std::string& encoding = "INT8") {
    more.insert(more.begin(), "exchange.update_encoding=" + encoding);
    return ErrorOf(kConfig, more);
  };
  CHECK(error({}, "BFLOAT16") ==
        set +
            "BFLOAT16: exchange.update_encoding: is BFLOAT16, allowed: INT8, INT4, E3M0; without "
            "it replies have parameters in exchange.parameter_encoding");
  CHECK_THAT(error({"update.policy=ASYNC"}),
             Catch::Contains("is INT8 with policy ASYNC, under which workers have other parameters "
                             "than each other, allowed: with SYNC, QUORUM"));
  CHECK_THAT(error({"exchange.parameter_encoding=BFLOAT16"}),
             Catch::Contains("is INT8 with parameters in BFLOAT16, to which no update can be "
                             "added, allowed: with FLOAT32"));
  const std::string tensor = "model={from_workers {tensor {name: \"a\" shape: 8 TYPE}}}";
  const auto of_workers = [&](const std::string& type) {
    return std::string(tensor).replace(tensor.find("TYPE"), 4, type);
  };
  CHECK_THAT(error({of_workers("")}),
             Catch::Contains("is INT8 with a model from workers, whose program may change its "
                             "parameters, allowed: with local steps"));
  CHECK_THAT(error({of_workers("type: BFLOAT16"), "local={steps: 2 stepped_by: \"SGD\"}",
                    "training={}", "data={}"}),
             Catch::Contains("is INT8, and a is BFLOAT16, allowed: with models of FLOAT32"));
}

}  // namespace evenshard
