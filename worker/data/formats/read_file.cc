#include "worker/data/formats/read_file.h"

#include <zlib.h>

#include <cerrno>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"

namespace evenshard {

absl::StatusOr<std::string> ReadFile(const std::string& path) {
  constexpr unsigned kBlockBytes = 256 * 1024;

  errno = 0;
  gzFile file = gzopen(path.c_str(), "rbe");
  if (file == nullptr) {
    return absl::ErrnoToStatus(errno != 0 ? errno : ENOMEM, absl::StrCat("cannot open ", path));
  }
  std::string content;
  int got = 0;
  do {
    const size_t size = content.size();
    content.resize(size + kBlockBytes);
    got = gzread(file, &content[size], kBlockBytes);
    content.resize(size + (got > 0 ? got : 0));
  } while (got > 0);

  absl::Status error;
  if (got < 0) {
    const int read_errno = errno;
    int code = Z_OK;
    const char* message = gzerror(file, &code);
    error = code == Z_ERRNO ? absl::ErrnoToStatus(read_errno, absl::StrCat("cannot read ", path))
                            : absl::DataLossError(absl::StrCat("cannot unpack ", message));
  }
  if (gzclose_r(file) == Z_BUF_ERROR && error.ok()) {
    error = absl::DataLossError(absl::StrCat("cannot unpack ", path, ": it ends early"));
  }
  RETURN_IF_ERROR(error);
  return content;
}

}  // namespace evenshard
