#include "worker/reporting/nvml.h"

#include <dlfcn.h>

#include <catch2/catch.hpp>

namespace evenshard {
namespace {

constexpr char kFake[] = "tests/worker/reporting/libfake_nvml.so";
constexpr char kGpu[] = "0000:65:00.0";

bool AllAbsent(const WorkerUsage& usage) {
  return !usage.has_device_utilization_percent() && !usage.has_device_memory_used_bytes() &&
         !usage.has_device_memory_total_bytes();
}

}  // namespace

TEST_CASE("a GPU's utilisation and memory are read by its PCI bus id") {
  const WorkerUsage usage = Nvml(kFake).Read(kGpu);
  CHECK(usage.device_utilization_percent() == 98u);
  CHECK(usage.device_memory_used_bytes() == 21'000'000'000u);
  CHECK(usage.device_memory_total_bytes() == 150'000'000'000u);
}

TEST_CASE("NVML is shut down in the end") {
  void* const fake = dlopen(kFake, RTLD_NOW);  // stays in memory
  REQUIRE(fake != nullptr);
  const auto users = reinterpret_cast<int (*)()>(dlsym(fake, "FakeNvmlUsers"));
  REQUIRE(users != nullptr);
  {
    const Nvml nvml(kFake);
    CHECK(users() == 1);
  }
  CHECK(users() == 0);
  dlclose(fake);
}

TEST_CASE("without NVML a GPU has no values") {
  CHECK(AllAbsent(Nvml("/nowhere/libnvidia-ml.so.1").Read(kGpu)));
  // A function is missing; initialising fails.
  CHECK(AllAbsent(Nvml("tests/worker/reporting/libfake_nvml_old.so").Read(kGpu)));
  CHECK(AllAbsent(Nvml("tests/worker/reporting/libfake_nvml_no_driver.so").Read(kGpu)));
}

TEST_CASE("a GPU that NVML does not know has no values") {
  const Nvml nvml(kFake);
  CHECK(AllAbsent(nvml.Read("0000:66:00.0")));
  CHECK(AllAbsent(nvml.Read("")));
  CHECK_FALSE(AllAbsent(nvml.Read(kGpu)));
}

TEST_CASE("a value that a GPU does not report is absent, the others are present") {
  const WorkerUsage usage =
      Nvml("tests/worker/reporting/libfake_nvml_no_utilization.so").Read(kGpu);
  CHECK_FALSE(usage.has_device_utilization_percent());
  CHECK(usage.device_memory_used_bytes() == 21'000'000'000u);
}

}  // namespace evenshard
