#include <catch2/catch.hpp>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "nlohmann/json.hpp"
#include "tests/testing/program.h"
#include "tests/testing/scratch_folder.h"
#include "tests/tools/psctl/report/fake_shard.h"

namespace evenshard {
namespace {

constexpr char kPsctl[] = "tools/psctl/psctl";

std::string WriteConfig(const ScratchFolder& folder, const std::vector<std::string>& addresses,
                        const std::string& recovery = "") {
  std::string text = R"pb(
    model { builtin: "mnist_mlp" }
    partition { scheme: MEMORY_BASED }
    update { policy: SYNC }
    training { iterations: 1 }
    compute { backend: EMULATED }
  )pb";
  for (const std::string& address : addresses) {
    absl::StrAppend(&text, "shard { address: \"", address, "\" }\n");
  }
  absl::StrAppend(&text, recovery);
  return folder.Write("config", text);
}

TEST_CASE("psctl explains itself, and wrong usage has exit code 2") {
  Program help({kPsctl, "--help"});
  CHECK(help.Wait() == 0);
  CHECK(absl::StrContains(help.output(), "shutdown"));

  Program nothing({kPsctl});
  CHECK(nothing.Wait() == 2);

  Program unknown({kPsctl, "restart"});
  CHECK(unknown.Wait() == 2);
  CHECK(absl::StrContains(unknown.output(), "unknown verb \"restart\""));

  Program flag({kPsctl, "save", "--config=x", "--to=y"});
  CHECK(flag.Wait() == 2);
  CHECK(absl::StrContains(flag.output(), "unknown flag --to"));

  for (const std::string verb : {"plan", "stats", "save", "shutdown"}) {
    Program level({kPsctl, verb, "--config=x", "--log_level=loud"});
    CHECK(level.Wait() == 2);
    CHECK(absl::StrContains(level.output(), "--log_level: is \"loud\", allowed: trace"));
  }

  const std::vector<std::pair<std::vector<std::string>, std::string>> values = {
      {{"plan", "--format=xml"}, "--format: is \"xml\", allowed: table, json\n"},
      {{"plan", "--gbps=0"}, "--gbps: is \"0\", allowed: a number above 0\n"},
      {{"stats", "--timeout=-1"}, "--timeout: is \"-1\", allowed: a number above 0\n"},
      {{"stats", "--watch=0"}, "--watch: is \"0\", allowed: a number above 0\n"},
      {{"stats", "--watch", "--out=x"},
       "psctl stats: --out: is given with --watch, allowed: one of the two\n"},
      {{"shutdown", "--timeout=0"}, "--timeout: is \"0\", allowed: a number above 0\n"}};
  for (const auto& [arguments, message] : values) {
    std::vector<std::string> command = {kPsctl};
    command.insert(command.end(), arguments.begin(), arguments.end());
    command.push_back("--config=x");
    Program wrong(command);
    CHECK(wrong.Wait() == 2);
    CHECK(wrong.output() == message);
  }

  Program config({kPsctl, "plan", "--config=/nowhere/config"});
  CHECK(config.Wait() == 2);
  CHECK(absl::StrContains(config.output(), "/nowhere/config"));
}

TEST_CASE("psctl fails with the reason if its result cannot be written") {
  const ScratchFolder folder;
  const std::string config = WriteConfig(folder, {"localhost:1"});
  Program full(
      {"/bin/sh", "-c", absl::StrCat("exec ", kPsctl, " plan --config=", config, " >/dev/full")});
  CHECK(full.Wait() == 1);
  CHECK(full.output() == "psctl: cannot write to standard output: No space left on device\n");

  for (const std::string arguments : {"--help", "--version", "plan --help"}) {
    Program explained({"/bin/sh", "-c", absl::StrCat(kPsctl, " ", arguments, " >/dev/full")});
    CAPTURE(arguments);
    CHECK(explained.Wait() == 1);
    CHECK(explained.output() ==
          "psctl: cannot write to standard output: No space left on device\n");
  }

  FakeShard shard;  // what repeats ends too
  const std::string running = WriteConfig(folder, {shard.address()});
  Program watch(
      {"/bin/sh", "-c",
       absl::StrCat("exec ", kPsctl, " stats --watch=0.01 --config=", running, " >/dev/full")});
  CHECK(watch.Wait() == 1);
  CHECK(watch.output() == "psctl: cannot write to standard output: No space left on device\n");
}

TEST_CASE("psctl plan prints a table or JSON and applies overrides") {
  const ScratchFolder folder;
  const std::string config = "--config=" + WriteConfig(folder, {"localhost:1", "localhost:2"});
  Program table({kPsctl, "plan", config, "--set", "workers=5"});
  CHECK(table.Wait() == 0);
  CHECK(absl::StrContains(table.output(), "mnist_mlp on 2 shards for 5 workers"));

  Program two({kPsctl, "plan", config, config});
  CHECK(two.Wait() == 0);
  CHECK(absl::StrContains(two.output(), "MEMORY_BASED  "));

  Program json({kPsctl, "plan", config, "--format", "json"});
  CHECK(json.Wait() == 0);
  const auto parsed = nlohmann::json::parse(json.output(), nullptr, false);
  CHECK(parsed["plans"][0]["parameters"] == 13002);
  CHECK(parsed["plans"][0]["worker_link_gbps"] == 10);

  Program fast({kPsctl, "plan", config, "--gbps=40"});
  CHECK(fast.Wait() == 0);
  CHECK(absl::StrContains(fast.output(), "links of 40 Gb/s"));
}

TEST_CASE("psctl stats asks every shard and fails if one is unreachable") {
  FakeShard up;
  up.Change([](auto* answers) { answers->stats.set_pushes(1234); });
  const ScratchFolder folder;
  // Nothing listens on port 1.
  Program all({kPsctl, "stats", "--config=" + WriteConfig(folder, {up.address()})});
  CHECK(all.Wait() == 0);
  CHECK(absl::StrContains(all.output(), "1,234"));

  const std::string config = "--config=" + WriteConfig(folder, {up.address(), "127.0.0.1:1"});
  Program half({kPsctl, "stats", config});
  CHECK(half.Wait() == 1);
  CHECK(absl::StrContains(half.output(), "1,234"));
  CHECK(absl::StrContains(half.output(), "shard 1 (127.0.0.1:1) is unreachable"));

  Program json({kPsctl, "stats", config, "--format=json", "--out=" + folder.Path("stats")});
  CHECK(json.Wait() == 1);
  CHECK(json.output().empty());
  const auto parsed = nlohmann::json::parse(folder.Read("stats"), nullptr, false);
  CHECK(parsed["shards"][0]["stats"]["pushes"] == "1234");
  CHECK(parsed["shards"][1].contains("error"));
}

TEST_CASE("psctl stats asks the primary that the newest view names for each shard") {
  FakeShard behind;
  FakeShard holder;
  behind.Change([&](auto* answers) {
    answers->view.set_number(3);
    answers->view.add_slot()->mutable_primary()->set_address(behind.address());
  });
  holder.Change([&](auto* answers) {
    answers->view.set_number(4);
    for (int slot = 0; slot < 2; ++slot) {
      answers->view.add_slot()->mutable_primary()->set_address(holder.address());
    }
    answers->stats.set_pushes(77);
  });
  const ScratchFolder folder;
  const auto config = [&] {
    return "--config=" + WriteConfig(folder, {behind.address(), "127.0.0.1:1"},
                                     absl::StrCat("recovery { replicas: 1 spare { address: \"",
                                                  holder.address(), "\" } }"));
  };
  SECTION("even if no slot's own process has it") {
    Program json({kPsctl, "stats", config(), "--format=json"});
    CHECK(json.Wait() == 0);
    const auto shards = nlohmann::json::parse(json.output(), nullptr, false)["shards"];
    for (int slot = 0; slot < 2; ++slot) {
      CHECK(shards[slot]["address"] == holder.address());
      CHECK(shards[slot]["stats"]["shard"] == slot);
      CHECK(shards[slot]["stats"]["pushes"] == "77");
    }
  }
  SECTION("and fails if a slot has none") {
    holder.Change([](auto* answers) { answers->view.mutable_slot(1)->clear_primary(); });
    Program table({kPsctl, "stats", config()});
    CHECK(table.Wait() == 1);
    CHECK(absl::StrContains(table.output(), "no process is primary of slot 1 (view 4)"));
  }
  SECTION("and the processes of the config if nobody follows a view") {
    behind.Change([](auto* answers) { answers->view.Clear(); });
    holder.Change([](auto* answers) { answers->view.Clear(); });
    Program table({kPsctl, "stats", config()});
    CHECK(table.Wait() == 1);
    CHECK(absl::StrContains(table.output(), "shard 1 (127.0.0.1:1) is unreachable"));
  }
}

TEST_CASE("psctl stats --watch repeats its report, with rates, until SIGINT") {
  FakeShard shard;
  const ScratchFolder folder;
  const std::string config = "--config=" + WriteConfig(folder, {shard.address()});
  SECTION("plain where the output is piped") {
    Program watch({kPsctl, "stats", config, "--watch=0.01"});
    watch.WaitFor("updates/s");
    kill(watch.pid(), SIGINT);
    CHECK(watch.Wait() == 0);
    CHECK_FALSE(absl::StrContains(watch.output(), "\033"));
  }
  SECTION("as a line of JSON each time") {
    Program watch({kPsctl, "stats", config, "--watch=0.01", "--format=json"});
    watch.WaitFor("\n{\"time\":");
    kill(watch.pid(), SIGINT);
    CHECK(watch.Wait() == 0);
    CHECK(absl::StartsWith(watch.output(), "{\"time\":"));
  }
  SECTION("redrawn on a terminal") {
    Program watch({kPsctl, "stats", config, "--watch=0.01"}, /*terminal_columns=*/120);
    watch.WaitFor("updates/s");
    kill(watch.pid(), SIGINT);
    CHECK(watch.Wait() == 0);
    CHECK(absl::StartsWith(watch.output(), "\033[H\033[2J"));
  }
}

TEST_CASE("psctl stats --watch ends at once although a shard does not answer") {
  const ScratchFolder folder;
  Program silent(
      {"/usr/bin/env", "python3", "-u", "-c",
       "import socket, time; s = socket.socket(); s.bind(('127.0.0.1', 0)); s.listen();"
       " print(s.getsockname()[1], 'is open'); c = s.accept(); print('asked'); time.sleep(1000)"});
  silent.WaitFor(" is open");
  const std::string address =
      absl::StrCat("127.0.0.1:", silent.output().substr(0, silent.output().find(' ')));
  // More than a test may take.
  Program watch({kPsctl, "stats", "--config=" + WriteConfig(folder, {address}), "--watch",
                 "--timeout=100000"});
  silent.WaitFor("asked");
  kill(watch.pid(), SIGTERM);
  CHECK(watch.Wait() == 1);
  CHECK(watch.output().empty());
}

TEST_CASE("psctl shutdown ends every shard and names those it cannot reach") {
  FakeShard first;
  FakeShard last;
  const ScratchFolder folder;
  Program shutdown(
      {kPsctl, "shutdown",
       "--config=" + WriteConfig(folder, {first.address(), "127.0.0.1:1", last.address()})});
  CHECK(shutdown.Wait() == 1);
  CHECK(first.shut_down);
  CHECK(last.shut_down);
  CHECK(absl::StrContains(shutdown.output(),
                          absl::StrCat("shard 0 (", first.address(), "): is shutting down\n")));
  CHECK(absl::StrContains(shutdown.output(), "shard 1 (127.0.0.1:1): unreachable: "));
}

TEST_CASE("psctl shutdown ends spares too") {
  FakeShard shard;
  FakeShard spare;
  const ScratchFolder folder;
  Program shutdown(
      {kPsctl, "shutdown",
       "--config=" + WriteConfig(folder, {shard.address()},
                                 absl::StrCat("recovery { replicas: 1 spare { ", "address: \"",
                                              spare.address(), "\" } }"))});
  CHECK(shutdown.Wait() == 0);
  CHECK(shard.shut_down);
  CHECK(spare.shut_down);
  CHECK(absl::StrContains(shutdown.output(),
                          absl::StrCat("spare 1 (", spare.address(), "): is shutting down\n")));
}

TEST_CASE("psctl needs neither the model nor the plan for what asks for none") {
  FakeShard shard;
  const ScratchFolder folder;
  const std::string config = WriteConfig(folder, {shard.address()},
                                         absl::StrCat("recovery { checkpoint { folder: \"",
                                                      folder.Path("."), "\" every_seconds: 1 } }"));
  const std::vector<std::string> more = {"--config=" + config, "--set=model={builtin: \"none\"}",
                                         "--set=partition.scheme=AUTO"};
  for (const std::string verb : {"checkpoints", "shutdown"}) {
    std::vector<std::string> command = {kPsctl, verb};
    command.insert(command.end(), more.begin(), more.end());
    Program program(command);
    CAPTURE(verb);
    CHECK(program.Wait() == 0);
  }
  CHECK(shard.shut_down);

  Program in_vain({kPsctl, "checkpoints", "--folder=" + folder.Path("."), "--set=workers=2"});
  CHECK(in_vain.Wait() == 2);
  CHECK(absl::StrContains(in_vain.output(), "--set: has no effect with --folder"));
}

TEST_CASE("psctl save fails with the reason and leaves no file if a shard is down") {
  const ScratchFolder folder;
  Program save({kPsctl, "save", "--config=" + WriteConfig(folder, {"127.0.0.1:1"}),
                "--out=" + folder.Path("model")});
  CHECK(save.Wait() == 1);
  CHECK(absl::StrContains(save.output(), "the model was not saved: shard 0 (127.0.0.1:1)"));
  CHECK(folder.Files() == std::vector<std::string>{"config"});
}

TEST_CASE("a run that no worker has joined yet is a failure, and no wrong usage") {
  const ScratchFolder folder;
  std::string text = R"pb(
    model { from_workers {} }
    partition { scheme: STRIPED }
    shard { address: "127.0.0.1:1" }
    workers: 2
    update { policy: SYNC })pb";
  const bool is_secured = GENERATE(false, true);
  if (is_secured) {
    absl::StrAppend(&text, R"pb(
      security {
        certificate: "keys/{name}.pem"
        key: "keys/{name}.key"
        authority: "keys/authority.pem"
      })pb");
  }
  const std::string config = folder.Write("config", text);
  if (is_secured) {
    Program keys({kPsctl, "certificates", "--config=" + config, "--out=" + folder.Path("keys")});
    REQUIRE(keys.Wait() == 0);
  }
  for (const std::vector<std::string>& verb :
       {std::vector<std::string>{"save", "--out=" + folder.Path("model")}, {"plan"}}) {
    std::vector<std::string> command = {kPsctl};
    command.insert(command.end(), verb.begin(), verb.end());
    command.push_back("--config=" + config);
    Program program(command);
    CHECK(program.Wait() == 1);
    INFO(program.output());
    CHECK(absl::StrContains(program.output(), "allowed: a run whose workers have joined"));
  }
}

}  // namespace
}  // namespace evenshard
