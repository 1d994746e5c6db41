#include "common/base/float_buffer.h"

#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <cstdint>
#include <string>
#include <utility>

#include "tests/testing/process_of_nobody.h"

namespace evenshard {

TEST_CASE("a float buffer is zero, page-aligned and writable") {
  absl::StatusOr<FloatBuffer> buffer = FloatBuffer::Allocate(100'000);
  REQUIRE(buffer.ok());
  REQUIRE(buffer->span().size() == 100'000);
  CHECK(reinterpret_cast<uintptr_t>(buffer->data()) % 4096 == 0);
  CHECK(std::all_of(buffer->span().begin(), buffer->span().end(), [](float f) { return f == 0; }));
  buffer->span().back() = 1;

  FloatBuffer moved = *std::move(buffer);
  CHECK(moved.span().back() == 1);
}

TEST_CASE("more memory than there can be is refused with its size") {
  const absl::StatusOr<FloatBuffer> buffer = FloatBuffer::Allocate(int64_t{1} << 58);
  REQUIRE(absl::IsResourceExhausted(buffer.status()));
  CHECK_THAT(std::string(buffer.status().message()), Catch::Contains("1152921504606846976 bytes"));
}

TEST_CASE("an empty float buffer needs no memory") {
  const absl::StatusOr<FloatBuffer> buffer = FloatBuffer::Allocate(0);
  REQUIRE(buffer.ok());
  CHECK(buffer->span().empty());
}

TEST_CASE("a shared buffer is the same memory for whoever maps it") {
  absl::StatusOr<FloatBuffer> buffer = FloatBuffer::AllocateShared(100'000);
  REQUIRE(buffer.ok());
  CHECK(reinterpret_cast<uintptr_t>(buffer->data()) % 4096 == 0);
  CHECK(std::all_of(buffer->span().begin(), buffer->span().end(), [](float f) { return f == 0; }));
  CHECK(buffer->place().process() == static_cast<uint32_t>(getpid()));
  absl::StatusOr<FloatBuffer> mapped = FloatBuffer::Map(buffer->place(), 100'000);
  REQUIRE(mapped.ok());
  CHECK(mapped->place().name().empty());
  buffer->span().front() = 1;
  mapped->span().back() = 2;
  CHECK(mapped->span().front() == 1);
  CHECK(buffer->span().back() == 2);

  // A mapping outlives the original buffer, but the buffer cannot be mapped again.
  const SharedBuffer place = buffer->place();
  *buffer = FloatBuffer();
  CHECK(mapped->span().front() == 1);
  CHECK(absl::IsNotFound(FloatBuffer::Map(place, 100'000).status()));
}

TEST_CASE("pages that are given back are zero, and those before them stay") {
  const int64_t floats = 1 << 20;
  absl::StatusOr<FloatBuffer> own = FloatBuffer::Allocate(floats);
  absl::StatusOr<FloatBuffer> shared = FloatBuffer::AllocateShared(floats);
  for (absl::StatusOr<FloatBuffer>* const buffer : {&own, &shared}) {
    REQUIRE(buffer->ok());
    FloatBuffer& given = **buffer;
    std::fill(given.span().begin(), given.span().end(), 1.0f);
    given.GiveBack(1025);
    const int64_t page = sysconf(_SC_PAGESIZE) / static_cast<int64_t>(sizeof(float));
    const int64_t kept = (1025 + page - 1) / page * page;
    CHECK(std::count(given.span().begin(), given.span().end(), 1.0f) == kept);
    CHECK(std::count(given.span().begin(), given.span().end(), 0.0f) == floats - kept);
    given.span().back() = 2;
    given.GiveBack(floats);
    CHECK(given.span().back() == 2);
  }
}

TEST_CASE("what is not the shared buffer is not mapped") {
  const absl::StatusOr<FloatBuffer> buffer = FloatBuffer::AllocateShared(1024);
  REQUIRE(buffer.ok());
  const absl::Status size = FloatBuffer::Map(buffer->place(), 1025).status();
  CHECK(absl::IsInvalidArgument(size));
  CHECK_THAT(std::string(size.message()), Catch::Contains("has 4096 bytes, not 4100"));
  SharedBuffer place = buffer->place();
  place.set_name("ps-0000000000000000");
  CHECK(absl::IsNotFound(FloatBuffer::Map(place, 1024).status()));
  place = buffer->place();
  place.set_process(0);
  CHECK(absl::IsNotFound(FloatBuffer::Map(place, 1024).status()));
  place = buffer->place();
  for (const std::string name : {"another", "ps-\n[error] forged!"}) {
    place.set_name(name);
    CHECK(FloatBuffer::Map(place, 1024).status().message() ==
          "its name is not that of a shared buffer: ps- and 16 hexadecimal digits");
  }
  place = buffer->place();
  place.set_file(1 << 20);
  CHECK(absl::IsNotFound(FloatBuffer::Map(place, 1024).status()));

  // This file has the right name and size, but it could be cut shorter while it is mapped.
  const std::string name = "ps-0123456789abcdef";
  const int file = memfd_create(name.c_str(), MFD_CLOEXEC | MFD_ALLOW_SEALING);
  REQUIRE(ftruncate(file, 4096) == 0);
  place.set_file(file);
  place.set_name(name);
  const absl::Status unsealed = FloatBuffer::Map(place, 1024).status();
  close(file);
  CHECK(absl::IsInvalidArgument(unsealed));
  CHECK_THAT(std::string(unsealed.message()), Catch::Contains("could become shorter"));
}

TEST_CASE("memory of another user is not mapped, though root could") {
  FloatBuffer theirs;  // of the other process
  const ProcessOfNobody nobody([&] {
    theirs = *FloatBuffer::AllocateShared(1024);
    return theirs.place().SerializeAsString();
  });
  if (!nobody.result().has_value()) return;
  SharedBuffer place;
  REQUIRE(place.ParseFromString(*nobody.result()));
  const absl::Status refused = FloatBuffer::Map(place, 1024).status();
  CHECK(absl::IsNotFound(refused));
  CHECK_THAT(std::string(refused.message()), Catch::Contains("is of user 65534, allowed: user 0"));
}

TEST_CASE("shared memory beyond the limit of files is refused, and the process lives") {
  rlimit limit;
  REQUIRE(getrlimit(RLIMIT_FSIZE, &limit) == 0);
  const rlimit tight = {4096, limit.rlim_max};
  REQUIRE(setrlimit(RLIMIT_FSIZE, &tight) == 0);
  const absl::Status refused = FloatBuffer::AllocateShared(1025).status();
  REQUIRE(setrlimit(RLIMIT_FSIZE, &limit) == 0);
  CHECK(absl::IsResourceExhausted(refused));
  CHECK_THAT(std::string(refused.message()), Catch::Contains("4100 bytes (ulimit -f)"));
}

TEST_CASE("more shared memory than there can be is refused with its size") {
  const absl::StatusOr<FloatBuffer> buffer = FloatBuffer::AllocateShared(int64_t{1} << 58);
  CHECK(absl::IsResourceExhausted(buffer.status()));
}

}  // namespace evenshard
