// A short run of the fuzzer; docs/testing.md has the long one.

#include <catch2/catch.hpp>

#include "tests/testing/program.h"
#include "tests/testing/scratch_folder.h"

namespace evenshard {

TEST_CASE("100,000 mutations of chunk messages are decoded as generated code decodes them") {
  const ScratchFolder found;
  Program fuzzer({"tests/fuzz/chunk_codec_fuzzer", "-runs=100000", "-max_len=512",
                  "-artifact_prefix=" + found.Path(""), found.Path(""), "tests/fuzz/corpus"});
  const int exit_code = fuzzer.Wait();
  INFO(fuzzer.output());
  CHECK(exit_code == 0);
  CHECK_THAT(fuzzer.output(), Catch::Contains("Done 100000 runs"));
}

}  // namespace evenshard
