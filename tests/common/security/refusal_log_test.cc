#include "common/security/refusal_log.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <string>

#include "tests/testing/captured_log.h"

namespace evenshard {
namespace {

using Catch::Contains;

int64_t Lines(const std::string& text) { return std::count(text.begin(), text.end(), '\n'); }

TEST_CASE("those who are refused cannot fill the log") {
  const uint64_t before = Refusals();
  const CapturedLog log;
  for (int i = 0; i < 1000; ++i) LogRefusal("somebody");
  CHECK(Refusals() - before == 1000);
  CHECK(Lines(log.text()) == 10);
  CHECK_THAT(log.text(), Contains("warning: refused: somebody\n"));
}

TEST_CASE("what OpenSSL says is explained") {
  CHECK(ExplainTls("error:0A00010B:SSL routines::wrong version number") ==
        "error:0A00010B:SSL routines::wrong version number (the other end speaks plaintext; "
        "allowed: the same `security` at both ends)");
  CHECK_THAT(ExplainTls("certificate verify failed"), Contains("not signed by security.authority"));
  CHECK(ExplainTls("Socket closed") == "Socket closed");
}

}  // namespace
}  // namespace evenshard
