// A short run of the fuzzer; docs/testing.md has the long one.

#include <catch2/catch.hpp>

#include "tests/testing/program.h"
#include "tests/testing/scratch_folder.h"

namespace evenshard {

TEST_CASE("20,000 strings of bytes are decoded as gradients in blocks") {
  const ScratchFolder found;
  Program fuzzer({"tests/fuzz/block_scaled_fuzzer", "-runs=20000", "-max_len=1024",
                  "-artifact_prefix=" + found.Path(""), found.Path("")});
  const int exit_code = fuzzer.Wait();
  INFO(fuzzer.output());
  CHECK(exit_code == 0);
  CHECK_THAT(fuzzer.output(), Catch::Contains("Done 20000 runs"));
}

}  // namespace evenshard
