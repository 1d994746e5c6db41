#include "tools/launch/labelled_output.h"

#include <catch2/catch.hpp>

namespace evenshard {
namespace {

// What comes out of a LabelledOutput with two sources.
struct Output {
  explicit Output(bool terminal)
      : labelled(terminal,
                 [this](absl::string_view bytes) { text.append(bytes.data(), bytes.size()); }),
        shard(labelled.AddSource("ps 0")),
        worker(labelled.AddSource("worker 3")) {}

  std::string text;
  LabelledOutput labelled;
  int shard;
  int worker;
};

TEST_CASE("lines that arrive in interleaved parts are printed whole, each with its label") {
  Output output(/*terminal=*/false);
  output.labelled.Feed(output.shard, "listen");
  output.labelled.Feed(output.worker, "joi");
  output.labelled.Feed(output.shard, "ing\nsecond");
  CHECK(output.text == "[ps 0] listening\n");
  output.labelled.Feed(output.worker, "ned\n\n");
  output.labelled.Feed(output.shard, " line\n");
  CHECK(output.text == "[ps 0] listening\n[worker 3] joined\n[worker 3] \n[ps 0] second line\n");
}

TEST_CASE("a last line without a line break is printed when its source closes") {
  Output output(/*terminal=*/false);
  output.labelled.Feed(output.shard, "abort");
  output.labelled.Close(output.shard);
  output.labelled.Close(output.worker);
  CHECK(output.text == "[ps 0] abort\n");
}

TEST_CASE("an endless line is cut so that it does not fill the memory") {
  Output output(/*terminal=*/false);
  output.labelled.Feed(output.shard, std::string(100000, 'x'));
  CHECK(output.text.size() > 50000);
}

TEST_CASE("without a terminal each live line is a line, and a blank one is none") {
  Output output(/*terminal=*/false);
  SECTION("with the carriage return in front") {
    output.labelled.Feed(output.worker, "\r10 %");
    output.labelled.Feed(output.worker, "\r    \r90 %");
    output.labelled.Feed(output.worker, "\r100 %\n");
  }
  SECTION("with the carriage return behind") {
    output.labelled.Feed(output.worker, "10 %\r90 %\r");
    output.labelled.Feed(output.worker, "100 %\r\n");
  }
  SECTION("with a line break in a part of its own") {
    output.labelled.Feed(output.worker, "10 %\r90 %\r100 %\r");
    output.labelled.Feed(output.worker, "\n");
  }
  output.labelled.Feed(output.worker, "done\n\n");
  CHECK(output.text ==
        "[worker 3] 10 %\n[worker 3] 90 %\n[worker 3] 100 %\n[worker 3] done\n[worker 3] \n");
}

TEST_CASE("on a terminal a live line is replaced by the next and stays below other lines") {
  const std::string erase = "\r\033[K";
  const std::string shard = "\033[36m[ps 0] \033[0m";
  const auto live = [&](const std::string& text) {
    return erase + "\033[?7l\033[32m[worker 3] \033[0m" + text + "\033[?7h";
  };
  Output output(/*terminal=*/true);
  output.labelled.Feed(output.worker, "\r10 %");
  CHECK(output.text == live("10 %"));
  output.text.clear();
  output.labelled.Feed(output.worker, "\r20 %");
  CHECK(output.text == live("20 %"));
  output.text.clear();
  output.labelled.Feed(output.shard, "joined\n");
  CHECK(output.text == erase + shard + "joined\n" + live("20 %"));
}

TEST_CASE("a live line that becomes final is printed once and not drawn again") {
  Output output(/*terminal=*/true);
  output.labelled.Feed(output.worker, "\r99 %");
  output.text.clear();
  output.labelled.Feed(output.worker, "\r100 %\n");
  CHECK(output.text == "\r\033[K\033[32m[worker 3] \033[0m100 %\n");
  output.text.clear();
  output.labelled.Feed(output.shard, "left\n");
  CHECK(output.text == "\033[36m[ps 0] \033[0mleft\n");
}

}  // namespace
}  // namespace evenshard
