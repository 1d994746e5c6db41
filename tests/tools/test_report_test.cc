#include <catch2/catch.hpp>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "tests/testing/program.h"
#include "tests/testing/scratch_folder.h"

namespace evenshard {
namespace {

// What tools/test_report.py makes of some test targets.
class Report {
 public:
  // A target //t:NAME with Bazel's status for it and what its log says.
  void Add(const std::string& name, const std::string& status, const std::string& log) {
    const std::string label = "//t:" + name;
    absl::StrAppend(&targets_, label, "\n");
    const std::string uri = "file://" + folder_.Write(name + ".log", log);
    absl::StrAppend(&events_, R"({"id":{"testResult":{"label":")", label,
                    R"(","run":1,"shard":1,"attempt":1}},"testResult":{"testActionOutput":[)",
                    R"({"name":"test.xml","uri":"file:///none"},{"name":"test.log","uri":")", uri,
                    "\"}]}}\n");
    absl::StrAppend(&events_, R"({"id":{"testSummary":{"label":")", label,
                    R"("}},"testSummary":{"overallStatus":")", status, "\"}}\n");
  }

  // A target of which Bazel says nothing: it was not built.
  void AddUnbuilt(const std::string& name) { absl::StrAppend(&targets_, "//t:", name, "\n"); }

  // One that Bazel passed over.
  void AddIncompatible(const std::string& name) {
    AddUnbuilt(name);
    absl::StrAppend(&events_, R"({"id":{"targetCompleted":{"label":"//t:)", name,
                    R"("}},"aborted":{"reason":"SKIPPED"}})", "\n");
  }

  // The exit code; afterwards, output() has what was printed.
  int Make(const std::vector<std::string>& failed = {}) {
    std::vector<std::string> command = {"/usr/bin/env", "python3", "tools/test_report.py",
                                        "--events=" + folder_.Write("events", events_),
                                        "--targets=" + folder_.Write("targets", targets_)};
    for (const std::string& what : failed) command.push_back("--failed=" + what);
    Program program(command);
    const int code = program.Wait();
    output_ = program.output();
    return code;
  }

  const std::string& output() const { return output_; }

 private:
  const ScratchFolder folder_;
  std::string events_;
  std::string targets_;
  std::string output_;
};

constexpr char kOnePassed[] = "===\nAll tests passed (1 assertion in 1 test case)\n\n";
constexpr char kFourPassed[] = "===\nAll tests passed (24 assertions in 4 test cases)\n\n";
constexpr char kTwoOfFiveFailed[] =
    "===\ntest cases:  5 |  3 passed | 2 failed\nassertions: 24 | 22 passed | 2 failed\n\n";

TEST_CASE("test cases are counted over all targets") {
  Report report;
  report.Add("one", "PASSED", kOnePassed);
  report.Add("four", "PASSED", kFourPassed);
  CHECK(report.Make() == 0);
  CHECK(report.output() == "5 passed, 0 failed\n");
}

TEST_CASE("failed test cases are counted and their target named") {
  Report report;
  report.Add("good", "PASSED", kFourPassed);
  report.Add("bad", "FAILED", kTwoOfFiveFailed);
  CHECK(report.Make() == 1);
  CHECK(report.output() == "FAILED //t:bad: 2 failed\n7 passed, 2 failed\n");
}

TEST_CASE("a fuzzer counts as one test case") {
  Report report;
  report.Add("fuzzer", "PASSED", "#20000\tDONE\nDone 20000 runs in 3 second(s)\n");
  report.Add("ended", "PASSED", "INFO: Seed: 1\n");
  CHECK(report.Make() == 1);
  CHECK(report.output() ==
        "FAILED //t:ended: no summary of its test cases in its log\n1 passed, 1 failed\n");
}

TEST_CASE("a test case that fails as expected counts as passed") {
  Report report;
  report.Add("odd", "PASSED", "test cases: 2 | 1 passed | 1 failed as expected\n");
  CHECK(report.Make() == 0);
  CHECK(report.output() == "2 passed, 0 failed\n");
}

TEST_CASE("Python's test cases are counted like Catch2's, except that skipped ones do not count") {
  Report report;
  report.Add("catch", "PASSED", kOnePassed);
  report.Add("python", "PASSED", "...\nRan 3 tests in 0.001s\n\nOK\n");
  report.Add("skips", "PASSED", "s.\nRan 2 tests in 1.100s\n\nOK (skipped=1)\n");
  SECTION("all passed") {
    CHECK(report.Make() == 0);
    CHECK(report.output() == "test cases skipped: 1\n5 passed, 0 failed\n");
  }
  SECTION("some failed") {
    report.Add("bad", "FAILED",
               "FE.\nFAIL: test_a (t.T.test_a)\n---\nERROR: test_b (t.T.test_b)\n---\n"
               "Ran 4 tests in 0.1s\n\nFAILED (failures=1, errors=1)\n");
    CHECK(report.Make() == 1);
    CHECK(report.output() ==
          "FAILED //t:bad: 2 failed\ntest cases skipped: 1\n7 passed, 2 failed\n");
  }
  SECTION("several parts of one, and what sets up a class") {
    report.Add("bad", "FAILED",
               "FAIL: test_a (t.T.test_a) (n=1)\n---\nFAIL: test_a (t.T.test_a) (n=2)\n---\n"
               "ERROR: setUpClass (t.Other)\n---\n"
               "Ran 4 tests in 0.1s\n\nFAILED (failures=2, errors=1)\n");
    CHECK(report.Make() == 1);
    CHECK(report.output() ==
          "FAILED //t:bad: 2 failed\ntest cases skipped: 1\n8 passed, 2 failed\n");
  }
}

TEST_CASE("skipped test cases do not count as passed") {
  Report report;
  report.Add("four", "PASSED", kFourPassed);
  report.Add("gpu", "PASSED",
             "SKIPPED: no device\nSKIPPED: no device\n===\ntest cases: 3 | 3 passed\n"
             "assertions: 1 | 1 passed\n");
  CHECK(report.Make() == 0);
  CHECK(report.output() == "test cases skipped: 2\n5 passed, 0 failed\n");
}

TEST_CASE("a target that this machine cannot build does not count") {
  Report report;
  report.Add("four", "PASSED", kFourPassed);
  report.AddIncompatible("gpu");
  CHECK(report.Make() == 0);
  CHECK(report.output() == "targets that this machine cannot build: 1\n4 passed, 0 failed\n");
}

TEST_CASE("a target without a result counts as one failure, and is named") {
  Report report;
  report.Add("good", "PASSED", kOnePassed);
  SECTION("it crashed") { report.Add("bad", "FAILED", "Segmentation fault\n"); }
  SECTION("it ran out of time") { report.Add("bad", "TIMEOUT", "some output\n"); }
  SECTION("it passed but ran no test case") { report.Add("bad", "PASSED", "No tests ran\n"); }
  SECTION("it was not built") { report.AddUnbuilt("bad"); }
  CHECK(report.Make() == 1);
  CHECK(absl::StrContains(report.output(), "FAILED //t:bad: "));
  CHECK(absl::EndsWith(report.output(), "\n1 passed, 1 failed\n"));
}

TEST_CASE("a target that fails after its test cases have passed is a failure") {
  Report report;
  report.Add("bad", "FAILED", kFourPassed);
  CHECK(report.Make() == 1);
  CHECK(report.output() == "FAILED //t:bad: FAILED\n4 passed, 1 failed\n");
}

TEST_CASE("what else has failed is a failure even if every test has passed") {
  Report report;
  report.Add("good", "PASSED", kOnePassed);
  CHECK(report.Make({"the build", "the style"}) == 1);
  CHECK(report.output() == "FAILED the build\nFAILED the style\n1 passed, 2 failed\n");
}

TEST_CASE("a run without any test is not a success") {
  Report report;
  CHECK(report.Make() == 1);
  CHECK(absl::EndsWith(report.output(), "\n0 passed, 0 failed\n"));
}

}  // namespace
}  // namespace evenshard
