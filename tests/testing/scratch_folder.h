#ifndef EVENSHARD_TESTS_TESTING_SCRATCH_FOLDER_H_
#define EVENSHARD_TESTS_TESTING_SCRATCH_FOLDER_H_

#include <stdlib.h>
#include <sys/stat.h>

#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

namespace evenshard {

// A temporary folder, empty at first, which the destructor removes with its contents.
class ScratchFolder {
 public:
  ScratchFolder() {
    std::string path = std::filesystem::temp_directory_path() / "tools_test.XXXXXX";
    REQUIRE(mkdtemp(path.data()) != nullptr);
    path_ = path;
  }
  ~ScratchFolder() { std::filesystem::remove_all(path_); }

  std::string Path(const std::string& name) const { return path_ / name; }

  std::string Write(const std::string& name, const std::string& text) const {
    std::ofstream(path_ / name, std::ios::binary) << text;
    return Path(name);
  }

  std::string Read(const std::string& name) const {
    std::ifstream file(path_ / name, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
  }

  // Returns the names of all files, including hidden ones.
  std::vector<std::string> Files() const {
    std::vector<std::string> names;
    for (const auto& entry : std::filesystem::directory_iterator(path_)) {
      names.push_back(entry.path().filename());
    }
    return names;
  }

 private:
  std::filesystem::path path_;
};

}  // namespace evenshard

#endif  // EVENSHARD_TESTS_TESTING_SCRATCH_FOLDER_H_
