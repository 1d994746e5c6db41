// Does all arithmetic on gradients and parameters with numbers that follow from a seed, and prints
// a checksum of the bits of each result: arithmetic SEED

#include <algorithm>
#include <bit>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "common/optimizer/aggregate.h"
#include "common/optimizer/optimizer.h"
#include "common/optimizer/square_sum.h"
#include "common/optimizer/squared_norm.h"
#include "common/wire/block_scaled.h"
#include "common/wire/half_width.h"
#include "common/wire/non_finite.h"
#include "server/store/correction.h"

namespace evenshard {
namespace {

constexpr int64_t kElements = 4099;  // no multiple of any vector's length

using Floats = std::vector<float>;

// FNV-1a
class Digest {
 public:
  template <typename T>
  void Add(const std::vector<T>& values) {
    const auto* bytes = reinterpret_cast<const unsigned char*>(values.data());
    for (size_t i = 0; i < values.size() * sizeof(T); ++i) Mix(bytes[i]);
  }
  void Mix(uint64_t value) { state_ = (state_ ^ value) * 1099511628211u; }
  void Print(const std::string& name) const {
    std::printf("%s: %016llx\n", name.c_str(), static_cast<unsigned long long>(state_));
  }

 private:
  uint64_t state_ = 14695981039346656037u;
};

// Finite numbers of every size: ordinary ones, subnormal ones, huge ones, zeros of both signs, and
// any other bits.
Floats Numbers(std::mt19937& random, bool huge = true) {
  std::normal_distribution<float> normal;
  Floats numbers(kElements);
  for (float& number : numbers) {
    switch (random() % 8) {
      case 0:
        number = normal(random) * 1e-39f;  // subnormal
        break;
      case 1:
        number = random() % 2 == 0 ? 0.0f : -0.0f;
        break;
      case 2:
        number = huge ? normal(random) * 1e37f : normal(random) * 1e9f;
        break;
      case 3:
        do {
          number = std::bit_cast<float>(static_cast<uint32_t>(random()));
        } while (!(number > -1e38f && number < 1e38f) || (!huge && number * number > 1e30f));
        break;
      default:
        number = normal(random);
    }
  }
  return numbers;
}

void RunOptimizers(std::mt19937& random) {
  for (int kind = 0; kind <= OptimizerConfig::Kind_MAX; ++kind) {
    for (const bool has_sum : {false, true}) {
      for (const float clip_value : {0.0f, 0.5f}) {
        OptimizerConfig config;
        config.set_kind(static_cast<OptimizerConfig::Kind>(kind));
        config.set_learning_rate(0.37f);
        config.set_weight_decay(0.013f);
        const auto optimizer = Optimizer::Create(config, clip_value);
        Floats parameters = Numbers(random, /*huge=*/false);
        Floats slots[kMaxSlots];
        for (Floats& slot : slots) slot.resize(kElements);
        Digest digest;
        for (int update = 1; update <= 4; ++update) {
          const Floats gradient = Numbers(random, /*huge=*/false);
          const Floats sum = Numbers(random, /*huge=*/false);
          OptimizerSpan span{.parameters = absl::MakeSpan(parameters),
                             .slots = {slots[0].data(), slots[1].data(), slots[2].data()},
                             .sum = has_sum ? sum.data() : nullptr};
          optimizer->Apply(span, gradient.data(), 1.0f / 3, optimizer->NumbersOf(update - 1),
                           update);
          digest.Add(parameters);
          for (const Floats& slot : slots) digest.Add(slot);
        }
        digest.Print(OptimizerConfig::Kind_Name(config.kind()) + (has_sum ? " with a sum" : "") +
                     (clip_value > 0 ? ", clipped" : ""));
      }
    }
  }
}

void RunSum(std::mt19937& random) {
  Floats sum = Numbers(random);
  Digest digest;
  for (int i = 0; i < 4; ++i) {
    AddGradient(sum.data(), Numbers(random).data(), kElements);
    digest.Add(sum);
  }
  digest.Print("sum");
}

void RunCorrections(std::mt19937& random) {
  for (int kind = 1; kind <= Asynchrony::Correction_MAX; ++kind) {
    const auto correction = static_cast<Asynchrony::Correction>(kind);
    Floats mean_square(kElements);
    Floats corrected(kElements);
    Digest digest;
    for (int update = 0; update < 4; ++update) {
      const Floats before = Numbers(random, /*huge=*/false), after = Numbers(random, false);
      const Floats gradient = Numbers(random, false), sent = Numbers(random, false);
      const Correction rule(correction, /*lambda=*/0.37f);
      rule.Correct(gradient.data(), 1.0f / 3, before.data(), sent.data(), mean_square.data(),
                   corrected.data(), kElements);
      if (rule.needs_steps()) {
        Correction::TakeSteps(before.data(), after.data(), mean_square.data(), kElements);
      }
      digest.Add(corrected);
      digest.Add(mean_square);
    }
    digest.Print(Asynchrony::Correction_Name(correction));
  }
}

void RunSquares(std::mt19937& random) {
  Digest digest;
  for (const bool huge :
       {false, true}) {  // with elements that are added up one by one, and without
    for (const double max_norm : {1e-3, 1.0, 1e20}) {
      Floats numbers = Numbers(random, huge);
      if (!huge) {
        for (float& number : numbers) number = std::clamp(number, -1e-3f, 1e-3f);
      }
      SquareSum sum;
      SquareRule(max_norm, kElements).Add(numbers.data(), kElements, 1.0f / 3, &sum);
      for (const uint64_t limb : sum.limbs()) digest.Mix(limb);
    }
  }
  digest.Print("squares");
}

void RunNorms(std::mt19937& random) {
  Digest digest;
  for (const int64_t first_run : {int64_t{0}, int64_t{1}, kElements / 2}) {
    const Floats numbers = Numbers(random);
    SquaredNorm norm;
    norm.Add(0, numbers.data(), first_run);
    norm.Add(first_run, numbers.data() + first_run, kElements - first_run);
    digest.Mix(std::bit_cast<uint64_t>(norm.value()));
  }
  digest.Print("norms");
}

void RunFormat(const std::string& name, const HalfWidth& format, uint32_t seed) {
  std::mt19937 random(seed);
  Floats numbers = Numbers(random);
  for (float& number : numbers) {  // NaNs and infinities too
    if (random() % 4 == 0) number = std::bit_cast<float>(static_cast<uint32_t>(random()));
  }
  std::vector<uint16_t> encoded(kElements);
  format.encode(numbers.data(), kElements, encoded.data());
  Digest digest;
  digest.Add(encoded);
  digest.Print(name + " encode");
  std::vector<uint16_t> all(1 << 16);
  for (size_t i = 0; i < all.size(); ++i) all[i] = static_cast<uint16_t>(i);
  Floats decoded(all.size());
  format.decode(all.data(), static_cast<int64_t>(all.size()), decoded.data());
  Digest decode;
  decode.Add(decoded);
  decode.Print(name + " decode");
  Digest found;
  for (int64_t n = 0; n < kElements; n += 97) {
    found.Mix(FindNonFinite(encoded.data() + n, kElements - n, format.exponent_bits));
  }
  found.Print(name + " not finite");
}

void RunBlocks(const std::string& name, const BlockScaled& format, uint32_t seed) {
  std::mt19937 random(seed);
  for (const bool is_stochastic : {false, true}) {
    Digest encode;
    for (const bool huge : {false, true}) {
      Floats numbers = Numbers(random, huge);
      numbers[random() % kElements] = std::numeric_limits<float>::infinity();
      const Rounding rounding = {.is_stochastic = is_stochastic,
                                 .key = static_cast<uint32_t>(random()),
                                 .first = static_cast<uint32_t>(random())};
      std::vector<char> encoded(format.Bytes(kElements));
      format.encode(numbers.data(), kElements, rounding, encoded.data());
      encode.Add(encoded);
    }
    encode.Print(name + (is_stochastic ? " encode by chance" : " encode"));
  }
  std::vector<char> encoded(format.Bytes(kElements));
  for (char& byte : encoded) byte = static_cast<char>(random());
  Floats decoded(kElements);
  format.decode(encoded.data(), kElements, decoded.data());
  Digest decode;
  decode.Add(decoded);
  decode.Mix(FindNonFinite(format, encoded.data(), kElements));
  decode.Print(name + " decode");
}

void RunSearch(std::mt19937& random) {
  Digest digest;
  const Floats addend = Numbers(random);
  for (int i = 0; i < 30; ++i) {
    Floats numbers = Numbers(random);
    if (i % 2 == 0) numbers[random() % kElements] = std::numeric_limits<float>::infinity();
    digest.Mix(FindNonFinite(numbers.data(), kElements));
    digest.Mix(FindNonFiniteSum(numbers.data(), addend.data(), kElements));
  }
  digest.Print("not finite");
}

}  // namespace
}  // namespace evenshard

int main(int argc, char** argv) {
  const uint32_t seed = argc > 1 ? std::strtoul(argv[1], nullptr, 10) : 0;
  std::mt19937 random(seed);
  evenshard::RunOptimizers(random);
  evenshard::RunSum(random);
  evenshard::RunSquares(random);
  evenshard::RunNorms(random);
  evenshard::RunCorrections(random);
  evenshard::RunSearch(random);
  evenshard::RunFormat("BFLOAT16", evenshard::Bfloat16(), seed);
  evenshard::RunBlocks("INT8", evenshard::Int8(), seed);
  evenshard::RunBlocks("INT4", evenshard::Int4(), seed);
  evenshard::RunBlocks("E3M0", evenshard::E3m0(), seed);
  evenshard::RunFormat("FLOAT16", evenshard::Float16(), seed);
  evenshard::RunFormat("FLOAT16 without instructions", evenshard::PortableFloat16(), seed);
}
