#ifndef EVENSHARD_TESTS_TESTING_DICE_H_
#define EVENSHARD_TESTS_TESTING_DICE_H_

#include <cmath>
#include <cstdint>
#include <random>
#include <vector>

namespace evenshard {

// Random numbers that a seed gives alike everywhere. The generators of <random> do, but its
// distributions do not.
class Dice {
 public:
  explicit Dice(uint64_t seed) : random_(seed) {}
  double Between(double low, double high) {
    return low + (high - low) * (random_() >> 11) * 0x1p-53;
  }
  // A number whose logarithm is uniform.
  double Scale(double low, double high) { return std::exp(Between(std::log(low), std::log(high))); }
  int Int(int low, int high) { return low + random_() % (high - low + 1); }
  bool Once(int times) { return Int(1, times) == 1; }
  const char* Pick(const std::vector<const char*>& from) { return from[Int(0, from.size() - 1)]; }

 private:
  std::mt19937_64 random_;
};

}  // namespace evenshard

#endif  // EVENSHARD_TESTS_TESTING_DICE_H_
