#include "worker/reporting/progress.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <cstdio>
#include <cstdlib>
#include <string>

#include "tests/testing/fake_clock.h"

namespace evenshard {
namespace {

using Catch::Matchers::Contains;
using Catch::Matchers::EndsWith;

// A reporter that writes into memory.
struct Fixture {
  explicit Fixture(bool terminal, int columns = 80, int64_t total = 600) {
    options.output = open_memstream(&text, &size);
    options.terminal = terminal;
    options.columns = [columns] { return columns; };
    options.length = {.iterations = total,
                      .epoch = [](int64_t iteration) { return iteration / 120; }};
  }
  ~Fixture() {
    std::fclose(options.output);
    free(text);
  }

  // What was written since the last call.
  std::string Written() {
    std::fflush(options.output);
    const std::string all(text, size);
    const std::string fresh = all.substr(read);
    read = all.size();
    return fresh;
  }

  FakeClock clock;
  char* text = nullptr;
  size_t size = 0;
  size_t read = 0;
  ProgressReporter::Options options;
};

// One iteration of a second: 32 images, 0.75 s of computing, 0.2 s of waiting.
IterationProgress Iteration(int64_t iteration) {
  return {.iteration = iteration,
          .loss = 0.43125,
          .images = 32,
          .compute_seconds = 0.75,
          .exchange_wait_seconds = 0.2};
}

TEST_CASE("piped progress is one plain line every five seconds of the clock") {
  Fixture fixture(/*terminal=*/false);
  ProgressReporter reporter(fixture.options, &fixture.clock);
  std::string lines;
  for (int64_t i = 1; i <= 12; ++i) {
    fixture.clock.Advance(absl::Seconds(1));
    reporter.Report(Iteration(i));
    const std::string written = fixture.Written();
    INFO("iteration " << i);
    CHECK(written.empty() == (i % 5 != 0));
    lines += written;
  }
  CHECK(lines ==
        "epoch 1/5  iteration 5/600  loss 0.4313  32.0 images/s  compute 75 %  "
        "exchange wait 20 %  ETA 9m 55s\n"
        "epoch 1/5  iteration 10/600  loss 0.4313  32.0 images/s  compute 75 %  "
        "exchange wait 20 %  ETA 9m 50s\n");
}

TEST_CASE("the last iteration is shown however soon it comes") {
  const bool terminal = GENERATE(false, true);
  Fixture fixture(terminal);
  ProgressReporter reporter(fixture.options, &fixture.clock);
  fixture.clock.Advance(absl::Milliseconds(1));
  reporter.Report(Iteration(599));
  CHECK(fixture.Written().empty());
  fixture.clock.Advance(absl::Milliseconds(1));
  reporter.Report(Iteration(600));
  const std::string written = fixture.Written();
  CHECK_THAT(written, Contains("epoch 5/5"));
  CHECK_THAT(written, Contains("600/600"));
  CHECK_THAT(written, Contains("ETA 0s"));
}

TEST_CASE("flushing shows what is pending, once, and ends the line") {
  const bool terminal = GENERATE(false, true);
  Fixture fixture(terminal);
  {
    ProgressReporter reporter(fixture.options, &fixture.clock);
    fixture.clock.Advance(absl::Milliseconds(10));
    reporter.Report(Iteration(121));
    CHECK(fixture.Written().empty());
    reporter.Flush();
    const std::string written = fixture.Written();
    CHECK_THAT(written, Contains("epoch 2/5"));
    CHECK_THAT(written, EndsWith("\n"));
  }
  CHECK(fixture.Written().empty());
}

TEST_CASE("a terminal's line is redrawn at most ten times a second") {
  Fixture fixture(/*terminal=*/true);
  ProgressReporter reporter(fixture.options, &fixture.clock);
  int redrawn = 0;
  for (int64_t i = 1; i <= 100; ++i) {
    fixture.clock.Advance(absl::Milliseconds(10));
    reporter.Report(Iteration(i));
    const std::string written = fixture.Written();
    if (written.empty()) continue;
    ++redrawn;
    CHECK(written[0] == '\r');
    CHECK(written.find('\n') == std::string::npos);
  }
  CHECK(redrawn == 10);
}

TEST_CASE("a terminal's line shows a bar and every figure in 80 columns") {
  Fixture fixture(/*terminal=*/true);
  ProgressReporter reporter(fixture.options, &fixture.clock);
  fixture.clock.Advance(absl::Seconds(1));
  reporter.Report(Iteration(300));
  CHECK(fixture.Written() ==
        "\repoch 3/5 300/600 [==>  ] loss 0.431 32.0 img/s compute 75% wait 20% ETA 5m 00s");
}

TEST_CASE("a terminal's line always fills the terminal but for one column") {
  const int columns = GENERATE(1, 2, 40, 79, 80, 120, 300);
  INFO("columns " << columns);
  Fixture fixture(/*terminal=*/true, columns);
  ProgressReporter reporter(fixture.options, &fixture.clock);
  fixture.clock.Advance(absl::Seconds(1));
  reporter.Report(Iteration(300));
  const std::string written = fixture.Written();
  CHECK(static_cast<int>(written.size()) - 1 == std::max(columns - 1, 1));
  CHECK((written.find("[====") != std::string::npos) == (columns >= 120));
}

TEST_CASE("while an iteration waits, the line says so until the next report") {
  const bool terminal = GENERATE(false, true);
  Fixture fixture(terminal, /*columns=*/60);
  ProgressReporter reporter(fixture.options, &fixture.clock);
  fixture.clock.Advance(absl::Seconds(5));
  reporter.Report(Iteration(130));
  fixture.Written();
  std::string lines;
  for (int i = 1; i <= 11; ++i) {
    fixture.clock.Advance(absl::Seconds(1));
    reporter.ReportWait(130, absl::Seconds(i), "shard 1 (b:2) has not answered 14 of 320 chunks");
    const std::string written = fixture.Written();
    CHECK(written.empty() == (!terminal && i % 5 != 0));
    lines += written;
  }
  if (terminal) {
    CHECK_THAT(lines, EndsWith("\repoch 2/5 130/600 waits 11s: shard 1 (b:2) has not answered"));
  } else {
    CHECK(
        lines ==
        "epoch 2/5  iteration 130/600  waits 5s: shard 1 (b:2) has not answered 14 of 320 chunks\n"
        "epoch 2/5  iteration 130/600  waits 10s: shard 1 (b:2) has not answered 14 of 320 "
        "chunks\n");
  }
  fixture.clock.Advance(absl::Seconds(5));
  reporter.Report(Iteration(131));
  CHECK_THAT(fixture.Written(), Contains("131/600") && Contains("loss ") && !Contains("waits"));
}

TEST_CASE("a wait before the first report says what had been finished when the worker joined") {
  Fixture fixture(/*terminal=*/false);
  ProgressReporter reporter(fixture.options, &fixture.clock);
  fixture.clock.Advance(absl::Seconds(5));
  const int64_t finished = GENERATE(0, 480);
  reporter.ReportWait(finished, absl::Seconds(5), "a shard");
  const std::string epoch = finished == 0 ? "1" : "4";
  CHECK(fixture.Written() == "epoch " + epoch + "/5  iteration " + std::to_string(finished) +
                                 "/600  waits 5s: a shard\n");
}

TEST_CASE("the length of the training may change meanwhile") {
  Fixture fixture(/*terminal=*/false);
  ProgressReporter reporter(fixture.options, &fixture.clock);
  fixture.clock.Advance(absl::Seconds(5));
  reporter.Report(Iteration(5));
  CHECK_THAT(fixture.Written(), Contains("epoch 1/5  iteration 5/600"));
  reporter.SetLength({.iterations = 6, .epoch = [](int64_t iteration) { return iteration / 2; }});
  fixture.clock.Advance(absl::Milliseconds(1));
  reporter.Report(Iteration(6));
  CHECK_THAT(fixture.Written(), Contains("epoch 3/3  iteration 6/6") && Contains("ETA 0s"));
}

TEST_CASE("rates follow the recent iterations, not the slow start") {
  Fixture fixture(/*terminal=*/false, 80, 1000);
  ProgressReporter reporter(fixture.options, &fixture.clock);
  fixture.clock.Advance(absl::Seconds(60));
  reporter.Report(Iteration(1));
  CHECK_THAT(fixture.Written(), Contains(" 0.5 images/s"));
  for (int64_t i = 2; i <= 1000; ++i) {
    fixture.clock.Advance(absl::Milliseconds(100));
    reporter.Report(Iteration(i));
  }
  CHECK_THAT(fixture.Written(), Contains("320 images/s"));
}

TEST_CASE("figures are left out while no time has passed") {
  Fixture fixture(/*terminal=*/false, 80, 1);
  ProgressReporter reporter(fixture.options, &fixture.clock);
  reporter.Report(Iteration(1));
  CHECK_THAT(fixture.Written(), Contains("- images/s  compute - %  exchange wait - %  ETA -\n"));
}

TEST_CASE("a clock that is set back does no harm") {
  Fixture fixture(/*terminal=*/false, 80, 3);
  ProgressReporter reporter(fixture.options, &fixture.clock);
  fixture.clock.Advance(absl::Seconds(1));
  reporter.Report(Iteration(1));
  fixture.clock.Advance(-absl::Hours(1));
  reporter.Report(Iteration(2));
  fixture.clock.Advance(absl::Seconds(1));
  reporter.Report(Iteration(3));
  CHECK_THAT(fixture.Written(), Contains("ETA 0s"));
}

TEST_CASE("durations show their two largest units") {
  CHECK(ShortDuration(absl::ZeroDuration()) == "0s");
  CHECK(ShortDuration(absl::Milliseconds(8400)) == "8s");
  CHECK(ShortDuration(absl::Milliseconds(59600)) == "1m 00s");
  CHECK(ShortDuration(absl::Seconds(65)) == "1m 05s");
  CHECK(ShortDuration(absl::Minutes(127)) == "2h 07m");
  CHECK(ShortDuration(absl::Hours(76)) == "3d 04h");
}

TEST_CASE("a file is no terminal") {
  std::FILE* file = std::tmpfile();
  REQUIRE(file != nullptr);
  const ProgressReporter::Options options = ProgressReporter::ForOutput(file);
  CHECK_FALSE(options.terminal);
  CHECK(options.output == file);
  CHECK(options.columns() == 80);
  std::fclose(file);
}

}  // namespace
}  // namespace evenshard
