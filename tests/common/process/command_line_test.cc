#include "common/process/command_line.h"

#include <catch2/catch.hpp>

namespace evenshard {
namespace {

// The flags of a program, one of every kind.
struct Options {
  std::string config;
  int shard = -1;
  std::optional<double> watch;
  std::optional<double> wait;
  bool quiet = false;
  std::vector<std::string> set;
  std::string level;

  std::vector<Flag> flags = {
      {"config", "FILE", "the config", &config, true},
      {"shard", "I", "which shard", &shard},
      {"watch", "SECONDS", "again and again", &watch, false, "2"},
      {.name = "wait", .value = "SECONDS", .help = "before", .target = &wait, .may_be_zero = true},
      {"quiet", "", "says less", &quiet},
      {"set", "FIELD=VALUE", "overrides", &set},
      {"level", "LEVEL", "of the log", &level, false, "", {"low", "high"}},
  };
};

TEST_CASE("flags are taken with = and with a space, and every repetition of one that repeats") {
  Options options;
  const auto help =
      ParseFlags(options.flags, {"--config=a=b", "--shard", "-3", "--set", "x=1,2", "--quiet",
                                 "--set=y=3", "--watch=0.5", "--wait=0", "--level=high"});
  REQUIRE(help.ok());
  CHECK_FALSE(*help);
  CHECK(options.config == "a=b");
  CHECK(options.shard == -3);
  CHECK(options.set == std::vector<std::string>{"x=1,2", "y=3"});
  CHECK(options.quiet);
  CHECK(options.watch == 0.5);
  CHECK(options.wait == 0);
  CHECK(options.level == "high");
}

TEST_CASE("a flag with an implied value takes it when it has no other, and leaves what follows") {
  Options options;
  REQUIRE(ParseFlags(options.flags, {"--watch", "--config=f"}).ok());
  CHECK(options.watch == 2);
  CHECK_FALSE(ParseFlags(options.flags, {"--config=f", "--watch", "5"}).ok());
}

TEST_CASE("a flag that is not given leaves its default") {
  Options options;
  REQUIRE(ParseFlags(options.flags, {"--config=f"}).ok());
  CHECK(options.shard == -1);
  CHECK_FALSE(options.watch.has_value());
  CHECK_FALSE(options.quiet);
  CHECK(options.set.empty());
}

TEST_CASE("what is wrong with a command line is named") {
  const std::pair<std::vector<std::string>, std::string> cases[] = {
      {{"--config=f", "--shrad=1"},
       "unknown flag --shrad; known are --config=FILE, --shard=I, "
       "--watch[=SECONDS], --wait=SECONDS, --quiet, --set=FIELD=VALUE, --level=LEVEL and --help"},
      {{"--shard=1"}, "--config=FILE is missing"},
      {{"--config"}, "--config needs a value: --config=FILE"},
      {{"--config="}, "--config needs a value: --config=FILE"},
      {{"--config", "--shard=1"}, "--config needs a value: --config=FILE"},
      {{"--config=f", "--shard=one"}, "--shard: \"one\" is not a whole number"},
      {{"--config=f", "--level=middle"}, "--level: is \"middle\", allowed: low, high"},
      {{"--config=f", "--watch=soon"}, "--watch: is \"soon\", allowed: a number above 0"},
      {{"--config=f", "--watch=0"}, "--watch: is \"0\", allowed: a number above 0"},
      {{"--config=f", "--wait=-1"}, "--wait: is \"-1\", allowed: 0 or a number above 0"},
      {{"--config=f", "--watch=inf"}, "--watch: is \"inf\", allowed: a number above 0"},
      {{"--config=f", "--config=g"}, "--config is given twice"},
      {{"--config=f", "--quiet=yes"}, "--quiet takes no value"},
      {{"--config=f", "stray"}, "\"stray\" is not expected here: flags begin with --"},
  };
  for (const auto& [arguments, message] : cases) {
    Options options;
    const auto result = ParseFlags(options.flags, arguments);
    CHECK(result.status().code() == absl::StatusCode::kInvalidArgument);
    CHECK(std::string(result.status().message()) == message);
  }
}

TEST_CASE("--help comes before every error and sets nothing") {
  Options options;
  const auto help = ParseFlags(options.flags, {"--shard=1", "--nonsense", "--help"});
  REQUIRE(help.ok());
  CHECK(*help);
  CHECK(options.shard == -1);
}

TEST_CASE("the help text has the usage and a line for each flag") {
  Options options;
  CHECK(HelpText("ps: a shard.", options.flags) ==
        "ps: a shard.\n\nFlags:\n"
        "  --config=FILE      the config\n"
        "  --shard=I          which shard\n"
        "  --watch[=SECONDS]  again and again\n"
        "  --wait=SECONDS     before\n"
        "  --quiet            says less\n"
        "  --set=FIELD=VALUE  overrides\n"
        "  --level=LEVEL      of the log\n"
        "  --help             prints this\n"
        "  --version          prints the version\n");
}

TEST_CASE("main() goes on, or ends with 0 for help and the version and 2 for errors") {
  Options options;
  const char* good[] = {"ps", "--config=f"};
  CHECK_FALSE(ParseCommandLine("usage", options.flags, 2, good).has_value());
  const char* help[] = {"ps", "-h"};
  CHECK(ParseCommandLine("usage", options.flags, 2, help) == 0);
  const char* version[] = {"ps", "--version"};
  CHECK(ParseCommandLine("usage", options.flags, 2, version) == 0);
  const char* wrong[] = {"ps", "--nonsense"};
  CHECK(ParseCommandLine("usage", options.flags, 2, wrong) == 2);
}

}  // namespace
}  // namespace evenshard
