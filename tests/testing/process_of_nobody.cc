#include "tests/testing/process_of_nobody.h"

#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <catch2/catch.hpp>
#include <csignal>

namespace evenshard {

ProcessOfNobody::ProcessOfNobody(const std::function<std::string()>& act) {
  constexpr uid_t kNobody = 65534;
  std::array<int, 2> pipe_ends;
  REQUIRE(pipe(pipe_ends.data()) == 0);
  process_ = fork();
  if (process_ == 0) {
    if (setresuid(kNobody, kNobody, kNobody) != 0) _exit(1);
    const std::string result = "=" + act();
    if (write(pipe_ends[1], result.data(), result.size()) < 0) _exit(1);
    close(pipe_ends[1]);
    pause();
    _exit(0);
  }
  close(pipe_ends[1]);
  std::string read_bytes;
  std::array<char, 256> bytes;
  ssize_t count;
  while ((count = read(pipe_ends[0], bytes.data(), bytes.size())) > 0) {
    read_bytes.append(bytes.data(), count);
  }
  close(pipe_ends[0]);
  if (read_bytes.empty()) {
    WARN("skipped: only root, outside of a sandbox, can become another user");
  } else {
    result_ = read_bytes.substr(1);
  }
}

ProcessOfNobody::~ProcessOfNobody() {
  kill(process_, SIGKILL);
  waitpid(process_, nullptr, 0);
}

}  // namespace evenshard
