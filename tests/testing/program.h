#ifndef EVENSHARD_TESTS_TESTING_PROGRAM_H_
#define EVENSHARD_TESTS_TESTING_PROGRAM_H_

#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <cerrno>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <utility>
#include <vector>

#include "absl/time/time.h"
#include "tests/testing/patience.h"
#include "tools/launch/child_process.h"

namespace evenshard {

// A running program whose output the test collects. The destructor kills it if it still runs.
class Program {
 public:
  explicit Program(const std::vector<std::string>& command, int terminal_columns = 0) {
    signal(SIGINT, SIG_DFL);  // which a shell has the jobs in its background ignore
    auto started = StartChild(command, {}, terminal_columns);
    INFO(started.status().message());
    REQUIRE(started.ok());
    process_ = *started;
  }
  ~Program() {
    if (process_.pid > 0) {
      kill(process_.pid, SIGKILL);
      waitpid(process_.pid, nullptr, 0);
    }
    close(process_.output);
  }
  Program(const Program&) = delete;
  Program& operator=(const Program&) = delete;

  pid_t pid() const { return process_.pid; }
  const std::string& output() const { return output_; }

  // Collects output until it contains `text`. The test fails if the output ends first.
  void WaitFor(const std::string& text) {
    while (output_.find(text) == std::string::npos) {
      INFO("waits for \"" << text << "\" in:\n" << output_);
      REQUIRE(Collect());
    }
  }

  // Collects output to its end. Returns the exit code, or 128 + n if signal n ended the program.
  int Wait() {
    while (Collect()) {
    }
    int status = 0;
    REQUIRE(waitpid(std::exchange(process_.pid, -1), &status, 0) > 0);
    return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
  }

 private:
  // Waits for output. Returns false at its end.
  bool Collect() {
    pollfd fd = {process_.output, POLLIN, 0};
    INFO("no output, and no end, for too long; so far:\n" << output_);
    REQUIRE(poll(&fd, 1, static_cast<int>(absl::ToInt64Milliseconds(kPatience))) == 1);
    char buffer[4096];
    const ssize_t size = read(process_.output, buffer, sizeof(buffer));
    if (size > 0) output_.append(buffer, size);
    return size > 0;
  }

  ChildProcess process_;
  std::string output_;
};

// The processes of this machine that have all of `words` in their command lines.
inline std::vector<pid_t> FindProcesses(const std::vector<std::string>& words) {
  std::vector<pid_t> found;
  for (const auto& entry : std::filesystem::directory_iterator("/proc")) {
    std::ifstream file(entry.path() / "cmdline", std::ios::binary);
    const std::string line{std::istreambuf_iterator<char>(file), {}};
    const bool has_all = std::all_of(words.begin(), words.end(), [&](const std::string& word) {
      return line.find(word) != std::string::npos;
    });
    if (!line.empty() && has_all) found.push_back(std::stoi(entry.path().filename()));
  }
  return found;
}

}  // namespace evenshard

#endif  // EVENSHARD_TESTS_TESTING_PROGRAM_H_
