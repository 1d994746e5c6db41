#ifndef EVENSHARD_TESTS_WORKER_DATA_FORMATS_TEST_FILES_H_
#define EVENSHARD_TESTS_WORKER_DATA_FORMATS_TEST_FILES_H_

#include <cstdint>
#include <string>
#include <vector>

namespace evenshard {

// Each object makes an empty folder of its own and removes it in the end.
class TempFolder {
 public:
  TempFolder();
  ~TempFolder();
  TempFolder(const TempFolder&) = delete;
  TempFolder& operator=(const TempFolder&) = delete;

  std::string Path(const std::string& name) const { return path_ + "/" + name; }
  const std::string& path() const { return path_; }

  // Both write a file, make the folders above it, and return its path.
  std::string Write(const std::string& name, const std::string& bytes) const;
  std::string WriteGzip(const std::string& name, const std::string& bytes) const;

 private:
  std::string path_;
};

// Returns an IDX file: the magic number, the dimensions, and `elements` unchanged.
std::string IdxBytes(uint32_t magic, const std::vector<uint32_t>& dimensions,
                     const std::string& elements);
inline constexpr uint32_t kIdxImages = 0x00000803;
inline constexpr uint32_t kIdxLabels = 0x00000801;

}  // namespace evenshard

#endif  // EVENSHARD_TESTS_WORKER_DATA_FORMATS_TEST_FILES_H_
