#include "tests/simulation/sim_disk.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "common/base/status_macros.h"

namespace evenshard {
namespace {

std::string Parent(const std::string& path) { return path.substr(0, path.rfind('/')); }

}  // namespace

class SimWritableFile final : public WritableFile {
 public:
  SimWritableFile(SimDisk* disk, NodeRef node, std::string path, int64_t bytes)
      : disk_(*disk), node_(node), path_(std::move(path)), contents_(bytes, '\0') {}

  absl::Status WriteAt(int64_t offset, absl::string_view bytes) override {
    RETURN_IF_ERROR(disk_.Check(node_.node, path_));
    if (contents_.size() < offset + bytes.size()) contents_.resize(offset + bytes.size());
    std::memcpy(contents_.data() + offset, bytes.data(), bytes.size());
    return absl::OkStatus();
  }

  absl::Status Commit() override {
    RETURN_IF_ERROR(disk_.Check(node_.node, path_));
    auto file = std::make_shared<SimDisk::File>();
    file->contents = std::move(contents_);
    file->synced = disk_.leaves_out_sync ? disk_.world_.loop().Now() + absl::Seconds(5)
                                         : disk_.world_.loop().Now();
    disk_.files_[path_] = std::move(file);
    disk_.on_commit(path_);
    // The crash may come between the change of the disk and the return.
    if (!disk_.world_.MayAct(node_.node)) return absl::AbortedError("the process has crashed");
    return absl::OkStatus();
  }

 private:
  SimDisk& disk_;
  const NodeRef node_;
  const std::string path_;
  std::string contents_;
};

class SimReadableFile final : public ReadableFile {
 public:
  SimReadableFile(std::string path, std::string contents)
      : path_(std::move(path)), contents_(std::move(contents)) {}

  int64_t size() const override { return static_cast<int64_t>(contents_.size()); }
  absl::Status ReadAt(int64_t offset, absl::Span<char> out) const override {
    if (offset + out.size() > contents_.size()) {
      return absl::DataLossError(absl::StrCat(path_, " ends early"));
    }
    std::memcpy(out.data(), contents_.data() + offset, out.size());
    return absl::OkStatus();
  }

 private:
  const std::string path_;
  const std::string contents_;
};

class SimFileLock final : public FileLock {
 public:
  SimFileLock(std::map<std::string, int>* locks, std::string path)
      : locks_(*locks), path_(std::move(path)) {}
  ~SimFileLock() override { locks_.erase(path_); }

 private:
  std::map<std::string, int>& locks_;
  const std::string path_;
};

class MountedDisk final : public Storage {
 public:
  MountedDisk(SimDisk* disk, NodeRef node) : disk_(*disk), node_(node) {}

  absl::StatusOr<std::unique_ptr<WritableFile>> CreateFile(const std::string& path,
                                                           int64_t bytes) override {
    RETURN_IF_ERROR(disk_.Check(node_.node, path));
    if (!disk_.folders_.contains(Parent(path))) {
      return absl::NotFoundError(absl::StrCat(path, ": No such file or directory"));
    }
    return std::make_unique<SimWritableFile>(&disk_, node_, path, bytes);
  }

  absl::StatusOr<std::unique_ptr<ReadableFile>> OpenFile(const std::string& path) override {
    RETURN_IF_ERROR(disk_.Check(node_.node, path));
    const auto found = disk_.files_.find(path);
    if (found == disk_.files_.end()) {
      return absl::NotFoundError(absl::StrCat(path, ": No such file or directory"));
    }
    return std::make_unique<SimReadableFile>(path, found->second->contents);
  }

  absl::StatusOr<std::vector<std::string>> ListFolder(const std::string& named) override {
    const std::string path(absl::StripSuffix(named, "/"));
    RETURN_IF_ERROR(disk_.Check(node_.node, path));
    if (!disk_.folders_.contains(path)) {
      return absl::NotFoundError(absl::StrCat(path, ": No such file or directory"));
    }
    std::vector<std::string> names;
    for (const auto& [file, contents] : disk_.files_) {
      if (Parent(file) == path) names.push_back(file.substr(path.size() + 1));
    }
    for (const std::string& folder : disk_.folders_) {
      if (Parent(folder) == path) names.push_back(folder.substr(path.size() + 1));
    }
    std::sort(names.begin(), names.end());
    return names;
  }

  absl::Status MakeFolder(const std::string& named) override {
    const std::string path(absl::StripSuffix(named, "/"));
    RETURN_IF_ERROR(disk_.Check(node_.node, path));
    for (std::string folder = path; !folder.empty(); folder = Parent(folder)) {
      disk_.folders_.insert(folder);
    }
    return absl::OkStatus();
  }

  absl::Status RemoveFile(const std::string& path) override {
    RETURN_IF_ERROR(disk_.Check(node_.node, path));
    disk_.files_.erase(path);
    return absl::OkStatus();
  }

  absl::Status RemoveFolder(const std::string& named) override {
    const std::string path(absl::StripSuffix(named, "/"));
    RETURN_IF_ERROR(disk_.Check(node_.node, path));
    const bool is_empty =
        std::none_of(disk_.files_.begin(), disk_.files_.end(),
                     [&](const auto& file) { return Parent(file.first) == path; });
    if (!is_empty) return absl::FailedPreconditionError(absl::StrCat(path, " is not empty"));
    disk_.folders_.erase(path);
    return absl::OkStatus();
  }

  absl::StatusOr<std::unique_ptr<FileLock>> LockFile(const std::string& path,
                                                     absl::string_view owner) override {
    RETURN_IF_ERROR(disk_.Check(node_.node, path));
    if (!disk_.locks_.emplace(path, node_.node).second) {
      return absl::AbortedError(absl::StrCat(path, " is locked"));
    }
    auto file = std::make_shared<SimDisk::File>();
    file->contents = std::string(owner);
    disk_.files_[path] = std::move(file);
    return std::make_unique<SimFileLock>(&disk_.locks_, path);
  }

 private:
  SimDisk& disk_;
  const NodeRef node_;
};

std::unique_ptr<Storage> SimDisk::Mount(NodeRef node) {
  return std::make_unique<MountedDisk>(this, node);
}

void SimDisk::FailUntil(absl::Time until, const absl::Status& status, int once) {
  failing_until_ = until;
  failure_ = status;
  once_ = once;
}

absl::Status SimDisk::Check(int node, const std::string& path) {
  if (!world_.MayAct(node)) return absl::AbortedError("the process has crashed");
  if (failing_until_ <= world_.loop().Now() || !world_.dice().Once(once_)) {
    return absl::OkStatus();
  }
  return absl::Status(failure_.code(), absl::StrCat(path, ": ", failure_.message()));
}

void SimDisk::LosePower() {
  for (const auto& [path, file] : files_) {
    if (file->synced <= world_.loop().Now()) continue;
    file->contents.resize(file->contents.size() / 2);
  }
}

}  // namespace evenshard
