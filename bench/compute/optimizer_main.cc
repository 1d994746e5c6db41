// bench:optimizer measures how much of the memory bandwidth a shard's arithmetic uses. Each
// optimizer and each pass over a gradient runs on one thread, in turn with a plain copy (memcpy) of
// the gradient to the parameters, so that both meet the machine in the same state.
//
// The counters are the GB/s that the kernel and the copy read and write, the ratio of the two, and
// the ratio of the elements per second.

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <functional>
#include <iostream>
#include <limits>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "benchmark/benchmark.h"
#include "common/base/element_loop.h"
#include "common/base/float_buffer.h"
#include "common/base/status_macros.h"
#include "common/optimizer/aggregate.h"
#include "common/optimizer/optimizer.h"
#include "common/wire/encoding.h"

namespace evenshard {
namespace {

constexpr int64_t kChunkFloats = (1 << 20) / sizeof(float);
constexpr int64_t kMemoryFloats = 64 << 20;  // far more than any cache
constexpr int64_t kCheckedFloats = 1003;     // not a multiple of any vector's length
// The offset of received data after a message header of odd length, in bytes.
constexpr int64_t kUnalignedOffset = 13;

// The memory that all benchmarks share, laid out as in a shard.
struct Memory {
  FloatBuffer parameters, slots[kMaxSlots], sum, received;

  OptimizerSpan Span(int64_t begin, int64_t n) {
    return {parameters.span().subspan(begin, n),
            {slots[0].data() + begin, slots[1].data() + begin, slots[2].data() + begin}};
  }
  char* Gradient(int64_t offset) { return reinterpret_cast<char*>(received.data()) + offset; }
};

absl::StatusOr<Memory> Allocate() {
  Memory memory;
  for (FloatBuffer* buffer : {&memory.parameters, &memory.slots[0], &memory.slots[1],
                              &memory.slots[2], &memory.sum, &memory.received}) {
    ASSIGN_OR_RETURN(*buffer, FloatBuffer::Allocate(kMemoryFloats + 16));
    // Pages that were never written would all be read from one.
    std::fill(buffer->span().begin(), buffer->span().end(), 1.0f);
  }
  return memory;
}

// Writes small values of both signs. Slots are not negative, because some hold sums of squares.
void Fill(Memory& memory, int64_t n) {
  for (int64_t i = 0; i < n; ++i) {
    memory.parameters.data()[i] = static_cast<float>(i % 101 - 50) * 1e-2f;
    memory.slots[0].data()[i] = static_cast<float>(i % 7) * 1e-3f;
    memory.slots[1].data()[i] = static_cast<float>(i % 11) * 1e-3f;
    memory.slots[2].data()[i] = static_cast<float>(i % 5) * 1e-3f;
    memory.sum.data()[i] = static_cast<float>(i % 13 - 6) * 1e-3f;
  }
}

const UnalignedFloat* Floats(const char* received) {
  return reinterpret_cast<const UnalignedFloat*>(received);
}

void FillGradient(Encoding encoding, char* gradient, int64_t n) {
  std::vector<float> values(kBlockElements);
  for (int64_t begin = 0; begin < n; begin += kBlockElements) {
    values.resize(std::min(kBlockElements, n - begin));
    for (size_t i = 0; i < values.size(); ++i) {
      values[i] = static_cast<float>((begin + static_cast<int64_t>(i)) % 17 - 8) * 1e-3f;
    }
    Encode(encoding, values, gradient + EncodedBytes(encoding, begin));
  }
}

struct Kernel {
  std::string name;
  double read, written;  // bytes per element
  // Processes `n` elements from element `begin` on. Returns false if the result is wrong.
  std::function<bool(Memory& memory, int64_t begin, const char* gradient, int64_t n)> run;
  Encoding encoding = FLOAT32;  // the gradient's encoding
  int64_t alone = 1;            // elements that give the same bits alone as among others
};

// Adds the kernels that process gradients or parameters in one encoding.
void AddEncodingKernels(Encoding encoding, std::vector<Kernel>* kernels) {
  const BlockScaled* const blocks = BlockScaledOf(encoding);
  const int64_t alone = blocks == nullptr ? 1 : blocks->block;
  const auto segments = [encoding](const char* gradient, int64_t n) {
    return Segments{{gradient, static_cast<size_t>(EncodedBytes(encoding, n))}};
  };
  const auto add = [&](const std::string& name, double read, double written, auto run) {
    kernels->push_back(
        {absl::StrCat(name, "/", EncodingName(encoding)), read, written, run, encoding, alone});
  };
  const double size = static_cast<double>(EncodedBytes(encoding, kBlockElements)) / kBlockElements;
  add("Encode", sizeof(float), size,
      [encoding](Memory& memory, int64_t begin, const char*, int64_t n) {
        char* const out = reinterpret_cast<char*>(memory.parameters.data());
        Encode(encoding, memory.slots[0].span().subspan(begin, n),
               out + EncodedBytes(encoding, begin));
        return true;
      });
  if (blocks != nullptr) {
    add("EncodeStochastic", sizeof(float), size,
        [encoding](Memory& memory, int64_t begin, const char*, int64_t n) {
          char* const out = reinterpret_cast<char*>(memory.parameters.data());
          Encode(encoding, memory.slots[0].span().subspan(begin, n),
                 out + EncodedBytes(encoding, begin),
                 {.is_stochastic = true, .key = 1, .first = static_cast<uint32_t>(begin)});
          return true;
        });
  }
  add("Decode", size, sizeof(float),
      [=](Memory& memory, int64_t begin, const char* gradient, int64_t n) {
        Decode(encoding, segments(gradient, n), memory.parameters.span().subspan(begin, n));
        return true;
      });
  add("AddGradient", size + sizeof(float), sizeof(float),
      [=](Memory& memory, int64_t begin, const char* gradient, int64_t n) {
        float* const sum = memory.parameters.data() + begin;
        ForEachDecodedRun(encoding, segments(gradient, n), n,
                          [&](int64_t first, const UnalignedFloat* floats, int64_t count) {
                            AddGradient(sum + first, floats, count);
                          });
        return true;
      });
  add("FindNonFinite", size, 0, [=](Memory&, int64_t, const char* gradient, int64_t n) {
    return FindNonFinite(encoding, segments(gradient, n), n) == -1;
  });
}

std::vector<Kernel> Kernels() {
  std::vector<Kernel> kernels;
  for (const Encoding encoding : {FLOAT32, FLOAT16, BFLOAT16, INT8, INT4, E3M0}) {
    AddEncodingKernels(encoding, &kernels);
  }
  for (int kind = OptimizerConfig::Kind_MIN; kind <= OptimizerConfig::Kind_MAX; ++kind) {
    OptimizerConfig config;
    config.set_kind(static_cast<OptimizerConfig::Kind>(kind));
    config.set_weight_decay(1e-4f);
    const std::shared_ptr<const Optimizer> optimizer =
        Optimizer::Create(config, /*clip_value=*/1.0f);
    const int floats = 1 + optimizer->slots();  // parameters and slots; the gradient is read too
    for (const bool has_sum : {false, true}) {
      kernels.push_back(
          {absl::StrCat(OptimizerConfig::Kind_Name(config.kind()), has_sum ? "+sum" : ""),
           static_cast<int>(sizeof(float)) * (floats + 1 + has_sum),
           static_cast<int>(sizeof(float)) * floats,
           [optimizer, has_sum](Memory& memory, int64_t begin, const char* gradient, int64_t n) {
             OptimizerSpan span = memory.Span(begin, n);
             if (has_sum) span.sum = memory.sum.data() + begin;
             optimizer->Apply(span, Floats(gradient), /*scale=*/0.5f,
                              optimizer->NumbersOf(0, {.learning_rate = 0.01f}),
                              /*update=*/10);
             return true;
           }});
    }
  }
  return kernels;
}

// Returns the bytes of the first elements of everything that a kernel may change.
std::string State(Memory& memory) {
  std::string bits;
  for (FloatBuffer* buffer :
       {&memory.parameters, &memory.slots[0], &memory.slots[1], &memory.slots[2]}) {
    bits.append(reinterpret_cast<const char*>(buffer->data()), kCheckedFloats * sizeof(float));
  }
  return bits;
}

// Returns whether a kernel that only looks sees what it looks for.
bool SeesNonFinite(const Kernel& kernel, Memory& memory, char* gradient) {
  std::vector<float> values(kernel.alone, 1e-3f);
  values.back() = std::numeric_limits<float>::quiet_NaN();
  Encode(kernel.encoding, values, gradient);
  return !kernel.run(memory, 0, gradient, kernel.alone);
}

// Returns whether a kernel gives the same bits for all elements at once as in parts, and whether it
// has any effect.
bool Verify(const Kernel& kernel, Memory& memory, int64_t offset) {
  char* const gradient = memory.Gradient(offset);
  FillGradient(kernel.encoding, gradient, kCheckedFloats);
  Fill(memory, kCheckedFloats);
  const std::string before = State(memory);
  if (!kernel.run(memory, 0, gradient, kCheckedFloats)) return false;
  const std::string whole = State(memory);
  Fill(memory, kCheckedFloats);
  for (int64_t i = 0; i < kCheckedFloats; i += kernel.alone) {
    const int64_t n = std::min(kernel.alone, kCheckedFloats - i);
    if (!kernel.run(memory, i, gradient + EncodedBytes(kernel.encoding, i), n)) return false;
  }
  if (State(memory) != whole) return false;
  return kernel.written == 0 ? SeesNonFinite(kernel, memory, gradient) : whole != before;
}

template <typename Run>
double Seconds(Run run) {
  const auto start = std::chrono::steady_clock::now();
  run();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

void Measure(benchmark::State& state, const Kernel& kernel, Memory& memory, int64_t n,
             int64_t offset) {
  char* const gradient = memory.Gradient(offset);
  FillGradient(kernel.encoding, gradient, n);
  Fill(memory, n);
  double kernel_seconds = 0, copy_seconds = 0;
  for (auto _ : state) {
    copy_seconds += Seconds([&] {
      std::memcpy(memory.parameters.data(), gradient, n * sizeof(float));
      benchmark::ClobberMemory();
    });
    const double seconds = Seconds([&] {
      benchmark::DoNotOptimize(kernel.run(memory, 0, gradient, n));
      benchmark::ClobberMemory();
    });
    state.SetIterationTime(seconds);
    kernel_seconds += seconds;
  }
  const double elements = 1e-9 * n * state.iterations();
  const double copied_gb = elements * 2 * sizeof(float);
  const double moved_gb = elements * (kernel.read + kernel.written);
  state.counters["elements_of_copy"] = copy_seconds / kernel_seconds;
  state.counters["GB_per_s"] = moved_gb / kernel_seconds;
  state.counters["copy_GB_per_s"] = copied_gb / copy_seconds;
  state.counters["of_copy"] = moved_gb / kernel_seconds / (copied_gb / copy_seconds);
}

int Main(int argc, char** argv) {
  // The defaults precede the caller's flags, which therefore override them.
  std::vector<std::string> defaults = {"--benchmark_min_time=0.05", "--benchmark_repetitions=5",
                                       "--benchmark_report_aggregates_only=true"};
  std::vector<char*> arguments = {argv[0]};
  for (std::string& flag : defaults) arguments.push_back(flag.data());
  arguments.insert(arguments.end(), argv + 1, argv + argc);
  argc = static_cast<int>(arguments.size());
  benchmark::Initialize(&argc, arguments.data());
  if (benchmark::ReportUnrecognizedArguments(argc, arguments.data())) return 2;
  absl::StatusOr<Memory> memory = Allocate();
  if (!memory.ok()) {
    std::cerr << memory.status().message() << "\n";
    return 1;
  }
  const std::vector<Kernel> kernels = Kernels();
  for (const Kernel& kernel : kernels) {
    for (const int64_t offset : {int64_t{0}, kUnalignedOffset}) {
      if (!Verify(kernel, *memory, offset)) {
        std::cerr << kernel.name << " gives a wrong result; nothing was measured\n";
        return 1;
      }
      for (const auto& [size, n] :
           {std::pair("chunk_1MiB", kChunkFloats), std::pair("memory_256MiB", kMemoryFloats)}) {
        benchmark::RegisterBenchmark(
            absl::StrCat(kernel.name, "/", size, "/", offset == 0 ? "aligned" : "unaligned")
                .c_str(),
            [&kernel, &memory, n = n, offset](benchmark::State& state) {
              Measure(state, kernel, *memory, n, offset);
            })
            ->UseManualTime();
      }
    }
  }
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}

}  // namespace
}  // namespace evenshard

int main(int argc, char** argv) { return evenshard::Main(argc, argv); }
