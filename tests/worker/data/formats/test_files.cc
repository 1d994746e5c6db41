#include "tests/worker/data/formats/test_files.h"

#include <zlib.h>

#include <catch2/catch.hpp>
#include <cstdlib>
#include <filesystem>
#include <fstream>

namespace evenshard {

TempFolder::TempFolder() {
  const char* parent = std::getenv("TEST_TMPDIR");
  path_ = std::string(parent != nullptr ? parent : "/tmp") + "/data_test_XXXXXX";
  REQUIRE(mkdtemp(path_.data()) != nullptr);
}

TempFolder::~TempFolder() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

std::string TempFolder::Write(const std::string& name, const std::string& bytes) const {
  const std::string path = Path(name);
  std::filesystem::create_directories(std::filesystem::path(path).parent_path());
  std::ofstream out(path, std::ios::binary);
  out << bytes;
  out.close();
  REQUIRE(out.good());
  return path;
}

std::string TempFolder::WriteGzip(const std::string& name, const std::string& bytes) const {
  const std::string path = Path(name);
  gzFile out = gzopen(path.c_str(), "wb");
  REQUIRE(out != nullptr);
  REQUIRE(gzwrite(out, bytes.data(), bytes.size()) == static_cast<int>(bytes.size()));
  REQUIRE(gzclose(out) == Z_OK);
  return path;
}

std::string IdxBytes(uint32_t magic, const std::vector<uint32_t>& dimensions,
                     const std::string& elements) {
  std::string bytes;
  const auto append = [&bytes](uint32_t value) {
    for (int shift = 24; shift >= 0; shift -= 8) bytes.push_back(static_cast<char>(value >> shift));
  };
  append(magic);
  for (const uint32_t dimension : dimensions) append(dimension);
  return bytes + elements;
}

}  // namespace evenshard
