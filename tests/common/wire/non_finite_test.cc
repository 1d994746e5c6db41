#include "common/wire/non_finite.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <bit>
#include <catch2/catch.hpp>
#include <limits>
#include <stop_token>
#include <thread>
#include <vector>

namespace evenshard {
namespace {

// Holds elements that start `shift` bytes after an aligned address.
template <typename Element>
class Shifted {
 public:
  Shifted(const std::vector<Element>& values, int shift)
      : bytes_(values.size() * sizeof(Element) + 64), shift_(shift) {
    const char* from = reinterpret_cast<const char*>(values.data());
    std::copy(from, from + values.size() * sizeof(Element), bytes_.begin() + shift);
  }
  const char* data() const { return bytes_.data() + shift_; }

 private:
  std::vector<char> bytes_;
  int shift_;
};

int64_t FindFloat(const std::vector<float>& values, int shift, int64_t n) {
  const Shifted<float> shifted(values, shift);
  return FindNonFinite(reinterpret_cast<const UnalignedFloat*>(shifted.data()), n);
}

constexpr uint16_t kFloat16Exponent = 0x7c00;

int64_t FindHalf(const std::vector<uint16_t>& values, int shift, int64_t n) {
  const Shifted<uint16_t> shifted(values, shift);
  return FindNonFinite(reinterpret_cast<const UnalignedHalf*>(shifted.data()), n, kFloat16Exponent);
}

TEST_CASE("finite values of every size are not taken for NaN or infinity") {
  using Limits = std::numeric_limits<float>;
  std::vector<float> values(5000);
  const float extremes[] = {
      0, -0.0f, Limits::max(), Limits::lowest(), Limits::min(), Limits::denorm_min()};
  for (size_t i = 0; i < values.size(); ++i) values[i] = extremes[i % 6];
  for (int shift = 0; shift < 5; ++shift) CHECK(FindFloat(values, shift, 5000) == -1);
  CHECK(FindFloat(values, 0, 0) == -1);

  std::vector<uint16_t> halves;
  for (int bits = 0; bits < 1 << 16; ++bits) {
    if ((bits & kFloat16Exponent) != kFloat16Exponent) halves.push_back(bits);
  }
  for (int shift = 0; shift < 3; ++shift) {
    CHECK(FindHalf(halves, shift, static_cast<int64_t>(halves.size())) == -1);
  }
}

TEST_CASE("the first NaN or infinity is found wherever it is") {
  using Limits = std::numeric_limits<float>;
  const float bad = GENERATE(Limits::quiet_NaN(), -Limits::quiet_NaN(), Limits::signaling_NaN(),
                             Limits::infinity(), -Limits::infinity());
  const uint16_t bad_half = std::bit_cast<uint32_t>(bad) >> 31 != 0 ? 0xfc00 : 0x7c01;
  const size_t n = 3000;
  for (const size_t first : {0, 1, 15, 1023, 1024, 1025, 2047, 2500, 2999}) {
    for (int shift = 0; shift < 4; ++shift) {
      CAPTURE(first, shift);
      std::vector<float> values(n, 1);
      values[first] = values[n - 1] = bad;
      CHECK(FindFloat(values, shift, n) == static_cast<int64_t>(first));
      CHECK(FindFloat(values, shift, first) == -1);  // nothing is found past the end

      std::vector<uint16_t> halves(n, 0x3c00);
      halves[first] = halves[n - 1] = bad_half;
      CHECK(FindHalf(halves, shift, n) == static_cast<int64_t>(first));
      CHECK(FindHalf(halves, shift, first) == -1);
    }
  }
}

// A page of memory, after which nothing may be read. Another process could write there.
class SharedPage {
 public:
  SharedPage() : file_(memfd_create("shared_page", 0)) {
    REQUIRE(file_ >= 0);
    REQUIRE(ftruncate(file_, size_) == 0);
    data_ = Map();
    other_ = Map();
  }
  ~SharedPage() {
    munmap(data_, 2 * size_);
    munmap(other_, 2 * size_);
    close(file_);
  }
  SharedPage(const SharedPage&) = delete;
  SharedPage& operator=(const SharedPage&) = delete;

  void* data() { return data_; }
  void* of_other() { return other_; }  // the same, as another process would have it
  int64_t size() const { return size_; }

 private:
  // The second page is past the end of the file.
  void* Map() const {
    void* const mapped = mmap(nullptr, 2 * size_, PROT_READ | PROT_WRITE, MAP_SHARED, file_, 0);
    REQUIRE(mapped != MAP_FAILED);
    return mapped;
  }

  const int64_t size_ = sysconf(_SC_PAGESIZE);
  const int file_;
  void* data_;
  void* other_;
};

// Finds often, by `find`, while `value` and 0 take turns in the middle of the page.
template <typename Element, typename Find>
void FindWhileItChanges(Element value, Find find) {
  SharedPage page;
  const int64_t n = page.size() / static_cast<int64_t>(sizeof(Element));
  const std::jthread other([&](const std::stop_token& stop) {
    std::atomic_ref changing(static_cast<Element*>(page.of_other())[n / 2]);
    for (int64_t i = 0; !stop.stop_requested(); ++i) {
      changing.store(i % 2 == 0 ? value : Element{0}, std::memory_order_relaxed);
    }
  });
  int64_t found = 0;
  for (int look = 0; look < 1000000 && found < 1000; ++look) {
    const int64_t at = find(static_cast<const Element*>(page.data()), n);
    if (at != -1) ++found;
    if (at < -1 || at >= n) FAIL(at << " of " << n);
  }
  CHECK(found > 0);
}

TEST_CASE("nothing past the end is read when what was found goes away meanwhile") {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  FindWhileItChanges(nan, [](const float* values, int64_t n) { return FindNonFinite(values, n); });
  const std::vector<float> zeros(sysconf(_SC_PAGESIZE) / sizeof(float));
  FindWhileItChanges(nan, [&](const float* values, int64_t n) {
    return FindNonFiniteSum(zeros.data(), values, n);
  });
  FindWhileItChanges(uint16_t{0x7c01}, [](const uint16_t* values, int64_t n) {
    return FindNonFinite(values, n, kFloat16Exponent);
  });
}

}  // namespace
}  // namespace evenshard
