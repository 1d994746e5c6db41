#include "common/base/float_buffer.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <string>

#include "absl/algorithm/container.h"
#include "absl/cleanup/cleanup.h"
#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/base/incarnation.h"
#include "common/base/status_macros.h"

namespace evenshard {
namespace {

size_t BytesOf(int64_t floats) { return static_cast<size_t>(floats) * sizeof(float); }

absl::Status NoMemory(int64_t floats) {
  return absl::ResourceExhaustedError(absl::StrCat("the kernel has no ", BytesOf(floats),
                                                   " bytes of memory for ", floats, " floats"));
}

// Returns null if there is no memory.
float* MapFloats(int64_t floats, int flags, int file) {
  void* memory = mmap(nullptr, BytesOf(floats), PROT_READ | PROT_WRITE, flags, file, 0);
  if (memory == MAP_FAILED) return nullptr;
  madvise(memory, BytesOf(floats), MADV_HUGEPAGE);  // only advice; small pages work as well
  return static_cast<float*>(memory);
}

constexpr char kNamePrefix[] = "ps-";
constexpr size_t kNameLength = sizeof(kNamePrefix) - 1 + 16;

// Returns OK if `path`, an entry in some /proc/PID/fd, refers to the file that
// memfd_create(name) made.
absl::Status CheckMemoryFile(const std::string& path, const std::string& name) {
  std::array<char, 64> link;
  const ssize_t length = readlink(path.c_str(), link.data(), link.size());
  if (length < 0) return absl::NotFoundError(absl::ErrnoToStatus(errno, path).message());
  if (absl::string_view(link.data(), length) == absl::StrCat("/memfd:", name, " (deleted)")) {
    return absl::OkStatus();
  }
  return absl::NotFoundError(absl::StrCat(path, " is not the shared buffer ", name));
}

}  // namespace

absl::StatusOr<FloatBuffer> FloatBuffer::Allocate(int64_t floats) {
  if (floats == 0) return FloatBuffer();
  float* const data = MapFloats(floats, MAP_PRIVATE | MAP_ANONYMOUS, /*file=*/-1);
  if (data == nullptr) return NoMemory(floats);
  return FloatBuffer(data, floats);
}

absl::StatusOr<FloatBuffer> FloatBuffer::AllocateShared(int64_t floats) {
  if (floats == 0) return FloatBuffer();
  // Growing a file beyond the limit of ulimit -f would end the process with SIGXFSZ.
  rlimit limit;
  if (getrlimit(RLIMIT_FSIZE, &limit) != 0 || limit.rlim_cur < BytesOf(floats)) {
    return absl::ResourceExhaustedError(absl::StrCat("files, and so shared memory, may not have ",
                                                     BytesOf(floats), " bytes (ulimit -f)"));
  }
  const std::string name = absl::StrCat(kNamePrefix, absl::Hex(NewIncarnation(), absl::kZeroPad16));
  const int file = memfd_create(name.c_str(), MFD_CLOEXEC | MFD_ALLOW_SEALING);
  if (file < 0) return absl::ErrnoToStatus(errno, "memfd_create");
  absl::Cleanup close_file = [file] { close(file); };
  // The seals keep the file at this size, so that no process that maps it can find it shorter and
  // fail with SIGBUS.
  if (ftruncate(file, static_cast<off_t>(BytesOf(floats))) != 0) return NoMemory(floats);
  if (fcntl(file, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0) {
    return absl::ErrnoToStatus(errno, "sealing a shared buffer");
  }
  float* const data = MapFloats(floats, MAP_SHARED, file);
  if (data == nullptr) return NoMemory(floats);
  FloatBuffer buffer(data, floats);
  buffer.place_.set_process(getpid());
  buffer.place_.set_file(file);
  buffer.place_.set_name(name);
  std::move(close_file).Cancel();
  return buffer;
}

absl::StatusOr<FloatBuffer> FloatBuffer::Map(const SharedBuffer& place, int64_t floats) {
  if (place.name().size() != kNameLength || !absl::StartsWith(place.name(), kNamePrefix) ||
      !absl::c_all_of(place.name(), absl::ascii_isgraph)) {
    return absl::NotFoundError(
        "its name is not that of a shared buffer: ps- and 16 hexadecimal digits");
  }
  const std::string path = absl::StrCat("/proc/", place.process(), "/fd/", place.file());
  RETURN_IF_ERROR(CheckMemoryFile(path, place.name()));
  const int file = open(path.c_str(), O_RDWR | O_CLOEXEC);
  if (file < 0) return absl::NotFoundError(absl::ErrnoToStatus(errno, path).message());
  const absl::Cleanup close_file = [file] { close(file); };
  // The process may have opened another file at this number in the meantime.
  RETURN_IF_ERROR(CheckMemoryFile(absl::StrCat("/proc/self/fd/", file), place.name()));
  struct stat status;
  const int seals = fcntl(file, F_GET_SEALS);
  if (seals < 0 || (seals & F_SEAL_SHRINK) == 0 || fstat(file, &status) != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("the shared buffer ", place.name(), " could become shorter"));
  }
  // Root may open everybody's.
  if (status.st_uid != geteuid()) {
    return absl::NotFoundError(absl::StrCat("the shared buffer ", place.name(), " is of user ",
                                            status.st_uid, ", allowed: user ", geteuid()));
  }
  if (status.st_size != static_cast<off_t>(BytesOf(floats))) {
    return absl::InvalidArgumentError(absl::StrCat("the shared buffer ", place.name(), " has ",
                                                   status.st_size, " bytes, not ",
                                                   BytesOf(floats)));
  }
  float* const data = MapFloats(floats, MAP_SHARED, file);
  if (data == nullptr) return NoMemory(floats);
  return FloatBuffer(data, floats);
}

void FloatBuffer::GiveBack(int64_t begin) {
  const size_t page = sysconf(_SC_PAGESIZE);
  const size_t first = (BytesOf(begin) + page - 1) / page * page;
  if (first >= BytesOf(size_)) return;
  // A file keeps its pages unless they are removed from it.
  madvise(reinterpret_cast<char*>(data_) + first, BytesOf(size_) - first,
          place_.name().empty() ? MADV_DONTNEED : MADV_REMOVE);
}

FloatBuffer::~FloatBuffer() {
  if (data_ != nullptr) munmap(data_, BytesOf(size_));
  if (!place_.name().empty()) close(static_cast<int>(place_.file()));
}

}  // namespace evenshard
