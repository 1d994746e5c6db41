#ifndef EVENSHARD_TESTS_WORKER_COMPUTE_CPU_GOLDEN_FILE_H_
#define EVENSHARD_TESTS_WORKER_COMPUTE_CPU_GOLDEN_FILE_H_

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace evenshard {

// The contents of a file that tests/golden/make_golden.py writes, which explains each part.
struct GoldenFile {
  std::string model;
  double loss = 0;
  int64_t correct = 0;
  double evaluation_loss = 0;
  int64_t evaluation_correct = 0;
  std::vector<int32_t> labels;
  std::map<std::string, std::vector<float>> tensors;
};

// Fails the test if tests/golden/`name`.golden cannot be read.
GoldenFile ReadGoldenFile(const std::string& name);

}  // namespace evenshard

#endif  // EVENSHARD_TESTS_WORKER_COMPUTE_CPU_GOLDEN_FILE_H_
