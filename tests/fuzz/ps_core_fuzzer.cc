// libFuzzer target: sequences of what workers, readers, other shards and the coordinator say to a
// ps process, each message wrong in a few fields. Whatever they were, sensible workers can train
// afterwards, or are told why the run has failed.
//
// The first byte of the input selects the config.

#include <cstddef>
#include <cstdint>

#include "tests/fuzz/ps_core.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* bytes, size_t size) {
  using evenshard::FuzzedRuns;
  constexpr int kMostSteps = 60;
  FuzzedDataProvider input(bytes, size);
  const size_t run = input.ConsumeIntegralInRange<size_t>(0, FuzzedRuns().size() - 1);
  evenshard::FuzzedPs ps(&FuzzedRuns()[run], &input);
  for (int step = 0; step < kMostSteps && input.remaining_bytes() > 0; ++step) ps.Step();
  ps.TrainOnceMore();
  return 0;
}
