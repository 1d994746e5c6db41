// Tests what is chosen, and how it is put into words, from made-up predictions.

#include "tools/psctl/advice/advice.h"

#include <catch2/catch.hpp>
#include <string>
#include <vector>

namespace evenshard {
namespace {

using Kind = Candidate::Kind;

Choice Made(Kind kind, const std::string& name, double images_per_second, int server_hosts = 0,
            const std::string& difference = "") {
  Choice choice;
  choice.candidate.kind = kind;
  choice.candidate.name = name;
  choice.candidate.difference = difference;
  choice.candidate.server_hosts = server_hosts;
  choice.candidate.config.set_workers(kind == Kind::kAlone ? 1 : 8);
  choice.candidate.config.mutable_exchange()->set_schedule(ExchangeConfig::FULL);
  choice.images_per_second = images_per_second;
  choice.iteration_seconds = 0.1;
  choice.bottleneck = kind == Kind::kAlone ? Bottleneck::kComputing : Bottleneck::kWorkerLink;
  return choice;
}

std::vector<std::string> Names(const std::vector<Choice>& choices) {
  std::vector<std::string> names;
  for (const Choice& choice : choices) names.push_back(NameOf(choice.candidate));
  return names;
}

TEST_CASE("choices are ranked by images per second, apart from what computes something else") {
  Choice refused = Made(Kind::kRing, "ring", 0, 0, "INT8");
  refused.refused = "no";
  const Advice advice =
      Rank({Made(Kind::kAlone, "one worker alone", 100), Made(Kind::kRing, "ring", 400), refused,
            Made(Kind::kRing, "ring", 900, 0, "local steps"),
            Made(Kind::kServers, "striped on 8 servers", 500, 8)});
  CHECK(Names(advice.same) ==
        std::vector<std::string>{"striped on 8 servers", "ring", "one worker alone"});
  CHECK(Names(advice.changed) == std::vector<std::string>{"ring, local steps"});
  CHECK(Names(advice.refused) == std::vector<std::string>{"ring, INT8"});
  CHECK(advice.chosen == 0);
  CHECK(
      advice.sentence ==
      "Take striped on 8 servers with the schedule FULL: 500 images/s, 5.00 times one worker "
      "alone, limited by workers' links. It needs 8 hosts beside the workers'. ring gets 80% of "
      "that, on 8 hosts in place of 16. With local steps, ring would get 900 images/s, 1.80 times "
      "as many, but that computes something else.");
}

TEST_CASE("another number of connections than the default is said") {
  Choice colocated = Made(Kind::kColocated, "striped on all workers", 500);
  colocated.candidate.config.mutable_limits()->set_connections(1);
  CHECK(Rank({colocated, Made(Kind::kAlone, "one worker alone", 100)}).sentence ==
        "Take striped on all workers with the schedule FULL and limits.connections: 1: 500 "
        "images/s, 5.00 times one worker alone, limited by workers' links.");
  CHECK_THAT(Rank({colocated, Made(Kind::kRing, "ring", 499)}).sentence,
             Catch::Contains("Take striped on all workers with limits.connections: 1: 500 images"));
}

TEST_CASE("what is as fast with fewer hosts is taken") {
  const auto chosen = [](double ring) {
    const Advice advice =
        Rank({Made(Kind::kServers, "striped on 8 servers", 500, 8),
              Made(Kind::kServers, "striped on 4 servers", 495, 4), Made(Kind::kRing, "ring", ring),
              Made(Kind::kAlone, "one worker alone", 100)});
    return advice.same[advice.chosen].candidate.name;
  };
  CHECK(chosen(491) == "ring");
  CHECK(chosen(480) == "striped on 4 servers");
}

TEST_CASE("one worker alone is taken if it is as fast") {
  const Advice slower = Rank({Made(Kind::kAlone, "one worker alone", 100),
                              Made(Kind::kRing, "ring", 50), Made(Kind::kServers, "one server", 20),
                              Made(Kind::kRing, "ring", 700, 0, "local steps")});
  CHECK(slower.same[slower.chosen].candidate.kind == Kind::kAlone);
  CHECK(slower.sentence ==
        "Take one worker alone: 100 images/s. 8 workers are slower: ring gets 50 images/s, limited "
        "by workers' links. With local steps, ring would get 700 images/s, 7.00 times as many, but "
        "that computes something else.");
  const Advice equal =
      Rank({Made(Kind::kRing, "ring", 101), Made(Kind::kAlone, "one worker alone", 100)});
  CHECK(equal.same[equal.chosen].candidate.kind == Kind::kAlone);
  CHECK(equal.sentence ==
        "Take one worker alone: 100 images/s. 8 workers are no faster: ring gets 101 images/s, "
        "limited by workers' links.");
  CHECK(Rank({Made(Kind::kAlone, "one worker alone", 100)}).sentence ==
        "Take one worker alone: 100 images/s. There are no others to exchange with.");
  Choice refused = Made(Kind::kRing, "ring", 0);
  refused.refused = "recovery.min_workers: is 3";
  CHECK(Rank({Made(Kind::kAlone, "one worker alone", 100), refused}).sentence ==
        "Take one worker alone: 100 images/s. With several nothing is possible under SYNC with "
        "this config: ring: recovery.min_workers: is 3.");
}

TEST_CASE("it is said if the model is so small that a device's own overhead decides") {
  Choice alone = Made(Kind::kAlone, "one worker alone", 7e6);
  alone.iteration_seconds = 4e-6;
  CHECK(Rank({alone}).sentence ==
        "Take one worker alone: 7,000,000 images/s. There are no others to exchange with. The "
        "model is so small that it hardly matters: an iteration of one worker alone takes 4us, and "
        "a device's own overhead is not counted.");
  alone.iteration_seconds = 4e-7;
  CHECK_THAT(Rank({alone}).sentence, Catch::Contains("one worker alone takes less than 1us, and"));
}

TEST_CASE("it is said if it hardly matters where the parameters are") {
  std::vector<Choice> choices = {Made(Kind::kAlone, "one worker alone", 100),
                                 Made(Kind::kServers, "striped on 8 servers", 790, 8),
                                 Made(Kind::kServers, "layer-based on 8 servers", 300, 8),
                                 Made(Kind::kRing, "ring", 780),
                                 Made(Kind::kRing, "ring", 800, 0, "BFLOAT16")};
  const Advice advice = Rank(choices);
  CHECK(advice.same[advice.chosen].candidate.name == "ring");
  // A change that gains next to nothing is not mentioned.
  CHECK(advice.sentence ==
        "It hardly matters where the parameters are: the fastest of 2 kinds of places are within "
        "5%, limited by workers' links. Take ring: 780 images/s, 7.80 times one worker alone.");
  choices.push_back(Made(Kind::kOneMaster, "one master, worker 0", 700));
  CHECK_THAT(Rank(choices).sentence, Catch::StartsWith("Take ring "));
}

TEST_CASE("the config as it is given is not said to be a change of itself") {
  const Advice advice = Rank({Made(Kind::kAlone, "one worker alone", 100),
                              Made(Kind::kAsGiven, "as in f", 700, 2, "as it says"),
                              Made(Kind::kRing, "ring", 300, 0, "INT8")});
  CHECK(advice.sentence ==
        "Take one worker alone: 100 images/s. There are no others to exchange with. The config as "
        "it is would get 700 images/s, 7.00 times as many, but computes something else than SYNC "
        "in float32.");
}

TEST_CASE("the config as it is given stands beside the others, and is taken if it is the best") {
  const Advice also = Rank({Made(Kind::kServers, "striped on 4 servers", 500, 4),
                            Made(Kind::kAsGiven, "as in f", 500, 4)});
  CHECK(also.same[also.chosen].candidate.name == "striped on 4 servers");
  const Advice best = Rank({Made(Kind::kServers, "striped on 4 servers", 400, 4),
                            Made(Kind::kAsGiven, "as in f", 500, 4)});
  CHECK(best.same[best.chosen].candidate.name == "as in f");
  // More hosts are no better, and fewer are.
  const auto chosen = [](int given_hosts, double given_rate) {
    const Advice advice = Rank({Made(Kind::kServers, "striped on 4 servers", 500, 4),
                                Made(Kind::kAsGiven, "as in f", given_rate, given_hosts)});
    return advice.same[advice.chosen].candidate.name;
  };
  CHECK(chosen(3, 505) == "as in f");
  CHECK(chosen(3, 495) == "as in f");
  CHECK(chosen(5, 505) == "striped on 4 servers");
}

}  // namespace
}  // namespace evenshard
