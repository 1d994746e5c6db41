#include "tools/launch/supervisor.h"

#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <cstdlib>
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "tests/testing/scratch_folder.h"
#include "tools/launch/child_process.h"

namespace evenshard {

// Linked with a time of day that leaps. Supervise can be called once in a process; launch_test has
// the rest of it.
TEST_CASE("the time limit for processes to end does not follow the time of day") {
  const ScratchFolder folder;
  std::string text;
  LabelledOutput output(/*terminal=*/false,
                        [&](absl::string_view more) { text.append(more.data(), more.size()); });
  const auto shell = [&](const std::string& label, const std::string& script) {
    const std::string whole = absl::StrCat("cd ", folder.Path(""), "; ", script);
    return ProcessSpec{.label = label, .command = {"/bin/bash", "-c", whole}};
  };
  // Gives the supervisor many occasions to look at the clock before it ends.
  const auto ends_slowly = [&](const std::string& label) {
    return shell(label, absl::StrCat("trap 'for ((i = 0; i < 20; ++i)); do echo ending; sleep 0.01;"
                                     " done; exit 0' TERM; touch ",
                                     label, "; while :; do sleep infinity & wait; done"));
  };
  const SupervisedRun run = {
      .services = {ends_slowly("service")},
      .stages = {{.processes = {ends_slowly("slow"),
                                shell("failing",
                                      "until [[ -e slow && -e service ]]; do sleep 0.01; done; "
                                      "exit 3")}}},
      .grace = absl::Minutes(10)};
  CHECK(Supervise(run, &output) == 3);
  INFO(text);
  CHECK(absl::StrContains(text, "failing failed with exit code 3; ending the others"));
  CHECK(absl::StrContains(text, "[slow] ending"));
  CHECK(absl::StrContains(text, "[service] ending"));
  CHECK_FALSE(absl::StrContains(text, "which did not end"));
}

TEST_CASE("what a process is given takes the place of what this one has, also for a shell") {
  setenv("EVENSHARD_TEST_RANK", "7", /*overwrite=*/1);
  const absl::StatusOr<ChildProcess> child =
      StartChild({"/bin/sh", "-c", "echo rank $EVENSHARD_TEST_RANK; env | grep -c TEST_RANK"},
                 {"EVENSHARD_TEST_RANK=0"});
  unsetenv("EVENSHARD_TEST_RANK");
  REQUIRE(child.ok());
  std::string text;
  pollfd end = {.fd = child->output, .events = POLLIN, .revents = 0};
  char buffer[100];
  ssize_t size = 1;
  while (size > 0 && poll(&end, 1, /*timeout=*/-1) == 1) {
    size = read(child->output, buffer, sizeof(buffer));
    if (size > 0) text.append(buffer, size);
  }
  close(child->output);
  waitpid(child->pid, nullptr, 0);
  CHECK(text == "rank 0\n1\n");
}

}  // namespace evenshard
