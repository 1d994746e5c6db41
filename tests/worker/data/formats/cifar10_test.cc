#include "worker/data/formats/cifar10.h"

#include <catch2/catch.hpp>
#include <string>

#include "tests/worker/data/formats/test_files.h"

namespace evenshard {
namespace {

using Catch::Matchers::Contains;

// Makes a record whose red, green and blue planes are filled with label + 1, + 2 and + 3.
std::string Record(char label) {
  std::string record(1, label);
  for (int channel = 1; channel <= 3; ++channel) {
    record += std::string(1024, static_cast<char>(label + channel));
  }
  return record;
}

TEST_CASE("CIFAR-10 files are read one after the other") {
  const TempFolder folder;
  for (int i = 0; i < 5; ++i) {
    folder.Write(std::string(kCifar10TrainFiles[i]), Record(i) + Record(i + 5));
  }
  const auto images = ReadCifar10(folder.path(), kCifar10TrainFiles);
  REQUIRE(images.ok());
  CHECK(images->shape == Shape3{3, 32, 32});
  REQUIRE(images->size() == 10);
  CHECK(images->labels == std::vector<uint8_t>{0, 5, 1, 6, 2, 7, 3, 8, 4, 9});
  for (int64_t image = 0; image < 10; ++image) {
    for (int64_t channel = 0; channel < 3; ++channel) {
      const uint8_t* plane = &images->pixels[image * 3072 + channel * 1024];
      const int expected = images->labels[image] + static_cast<int>(channel) + 1;
      CHECK(plane[0] == expected);
      CHECK(plane[1023] == expected);
    }
  }
}

TEST_CASE("bad CIFAR-10 files are refused with the file's name and the reason") {
  struct Case {
    std::string bytes, message;
  };
  const Case c = GENERATE(values<Case>({
      {"", "0 bytes are not a whole number of records"},
      {Record(1).substr(0, 3072), "3072 bytes are not a whole number of records"},
      {Record(1) + "x", "3074 bytes are not a whole number of records of 3073"},
      {Record(1) + Record(10), "label 10 of record 1 is outside the 10 classes"},
  }));
  const TempFolder folder;
  const std::string path = folder.Write("test_batch.bin", c.bytes);
  const auto images = ReadCifar10(folder.path(), kCifar10TestFiles);
  REQUIRE_FALSE(images.ok());
  CHECK_THAT(std::string(images.status().message()), Contains(path) && Contains(c.message));
}

TEST_CASE("a missing CIFAR-10 file is not found, by name") {
  const TempFolder folder;
  folder.Write("data_batch_1.bin", Record(1));
  const auto images = ReadCifar10(folder.path(), kCifar10TrainFiles);
  CHECK(images.status().code() == absl::StatusCode::kNotFound);
  CHECK_THAT(std::string(images.status().message()), Contains("data_batch_2.bin"));
}

}  // namespace
}  // namespace evenshard
