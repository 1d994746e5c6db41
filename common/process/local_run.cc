#include "common/process/local_run.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "common/base/status_macros.h"

namespace evenshard {
namespace {

constexpr char kExtension[] = ".run";

std::string Folder() {
  const char* const runtime = std::getenv("XDG_RUNTIME_DIR");
  if (runtime != nullptr && *runtime != 0) return absl::StrCat(runtime, "/evenshard");
  return absl::StrCat("/tmp/evenshard-", getuid());
}

// Errors: FAILED_PRECONDITION if others could name runs in the folder; NOT_FOUND if there is none.
absl::Status CheckFolder(const std::string& folder) {
  struct stat found = {};
  if (lstat(folder.c_str(), &found) != 0) {
    return absl::ErrnoToStatus(errno, absl::StrCat("cannot look at the folder ", folder));
  }
  const bool is_own = S_ISDIR(found.st_mode) && found.st_uid == getuid();
  if (!is_own || (found.st_mode & (S_IWGRP | S_IWOTH)) != 0) {
    return absl::FailedPreconditionError(absl::StrCat(
        folder, is_own ? ": others may write to it" : ": is not a folder of this user",
        ", allowed: a folder of this user that nobody else may write to, or none yet"));
  }
  return absl::OkStatus();
}

absl::Status MakeFolder(const std::string& folder) {
  if (mkdir(folder.c_str(), 0700) != 0 && errno != EEXIST) {
    return absl::ErrnoToStatus(errno, absl::StrCat("cannot make the folder ", folder));
  }
  return CheckFolder(folder);
}

// How long the file of a run may be locked by one who only looks whether the run is over.
constexpr absl::Duration kLookTime = absl::Milliseconds(100);

// Opens the file and takes it, unless a run has it. Errors: ALREADY_EXISTS if one has.
absl::StatusOr<int> Take(const std::string& path) {
  const absl::Time until = absl::Now() + kLookTime;
  while (true) {
    const int file = open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (file < 0) return absl::ErrnoToStatus(errno, absl::StrCat("cannot write to ", path));
    struct stat taken = {};
    struct stat named = {};
    const bool is_taken = flock(file, LOCK_EX | LOCK_NB) == 0;
    // A run that ended meanwhile has removed the file.
    if (is_taken && fstat(file, &taken) == 0 && stat(path.c_str(), &named) == 0 &&
        taken.st_dev == named.st_dev && taken.st_ino == named.st_ino) {
      return file;
    }
    close(file);
    if (is_taken) continue;
    if (absl::Now() >= until) return absl::AlreadyExistsError("a run has it that goes on");
    absl::SleepFor(absl::Milliseconds(1));
  }
}

// Whether nobody has the file locked.
bool IsOver(const std::filesystem::path& path) {
  const int file = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (file < 0) return true;
  const bool over = flock(file, LOCK_SH | LOCK_NB) == 0;
  close(file);
  return over;
}

// The runs that go on, the latest first.
std::vector<std::filesystem::path> Runs() {
  std::vector<std::pair<std::filesystem::file_time_type, std::filesystem::path>> found;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(Folder(), error)) {
    if (entry.path().extension() == kExtension && !IsOver(entry.path())) {
      found.emplace_back(entry.last_write_time(error), entry.path());
    }
  }
  std::sort(found.rbegin(), found.rend());
  std::vector<std::filesystem::path> paths;
  for (auto& [time, path] : found) paths.push_back(std::move(path));
  return paths;
}

}  // namespace

absl::StatusOr<LocalRunEntry> LocalRunEntry::Write(const LocalRun& run) {
  if (run.name.empty() || run.name[0] == '.' || run.name.find('/') != std::string::npos) {
    return absl::InvalidArgumentError(absl::StrCat(
        "--name: is \"", run.name, "\", allowed: a name without / that does not begin with a dot"));
  }
  RETURN_IF_ERROR(MakeFolder(Folder()));
  const std::string path = absl::StrCat(Folder(), "/", run.name, kExtension);
  const absl::StatusOr<int> file = Take(path);
  if (absl::IsAlreadyExists(file.status())) {
    return absl::AlreadyExistsError(absl::StrCat(
        "--name: is \"", run.name, "\", which a run has that goes on, allowed: another name"));
  }
  RETURN_IF_ERROR(file.status());
  LocalRunEntry entry(path, *file);
  std::string text = run.config + "\n";
  for (const std::string& override : run.overrides) absl::StrAppend(&text, override, "\n");
  if (ftruncate(*file, 0) != 0 ||
      write(*file, text.data(), text.size()) != static_cast<ssize_t>(text.size())) {
    return absl::ErrnoToStatus(errno, absl::StrCat("cannot write to ", path));
  }
  return entry;
}

LocalRunEntry::LocalRunEntry(LocalRunEntry&& other) noexcept
    : path_(std::exchange(other.path_, "")), file_(std::exchange(other.file_, -1)) {}

LocalRunEntry::~LocalRunEntry() {
  if (!path_.empty()) unlink(path_.c_str());
  if (file_ >= 0) close(file_);
}

absl::StatusOr<LocalRun> FindLocalRun(const std::string& name) {
  const absl::Status folder = CheckFolder(Folder());
  if (!folder.ok() && !absl::IsNotFound(folder)) return folder;
  std::vector<std::string> names;
  for (const std::filesystem::path& path : Runs()) {
    names.push_back(path.stem().string());
    if (!name.empty() && names.back() != name) continue;
    LocalRun run{.name = names.back()};
    std::ifstream lines(path);
    std::getline(lines, run.config);
    for (std::string line; std::getline(lines, line);) run.overrides.push_back(line);
    if (run.config.empty()) continue;  // it is just being written
    return run;
  }
  return absl::NotFoundError(absl::StrCat(
      name.empty() ? "no run goes on that launch has started on this machine"
                   : absl::StrCat("--run: is \"", name, "\", which no run on this machine has"),
      "; allowed: --config=FILE",
      names.empty() ? "" : absl::StrCat(", or --run=", absl::StrJoin(names, ", --run="))));
}

}  // namespace evenshard
