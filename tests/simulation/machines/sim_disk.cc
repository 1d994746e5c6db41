#include "tests/simulation/machines/sim_disk.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "common/base/status_macros.h"

namespace evenshard {
namespace {

// For how long a loss of power may bring back what was removed.
constexpr absl::Duration kWriteBack = absl::Seconds(5);

std::string Parent(const std::string& path) { return path.substr(0, path.rfind('/')); }

}  // namespace

class SimWritableFile final : public WritableFile {
 public:
  SimWritableFile(SimDisk* disk, NodeRef node, std::string path, int64_t bytes)
      : disk_(*disk), node_(node), path_(std::move(path)), contents_(bytes, '\0') {}

  ~SimWritableFile() override {
    // A process that has crashed leaves what it was writing.
    if (committed_ || disk_.world_.IsRunning(node_) || !disk_.world_.dice().Once(2)) return;
    auto torn = std::make_shared<SimDisk::File>();
    torn->contents = contents_.substr(0, contents_.size() / 2);
    disk_.files_[absl::StrCat(Parent(path_), "/.", path_.substr(Parent(path_).size() + 1))] = torn;
  }

  absl::Status WriteAt(int64_t offset, absl::string_view bytes) override {
    RETURN_IF_ERROR(disk_.Check(node_.node, path_));
    if (contents_.size() < offset + bytes.size()) contents_.resize(offset + bytes.size());
    std::memcpy(contents_.data() + offset, bytes.data(), bytes.size());
    return absl::OkStatus();
  }

  absl::Status Commit() override {
    RETURN_IF_ERROR(disk_.Check(node_.node, path_));
    committed_ = true;
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
  bool committed_ = false;
};

class SimReadableFile final : public ReadableFile {
 public:
  SimReadableFile(const SimDisk* disk, std::string path, std::string contents)
      : disk_(*disk), path_(std::move(path)), contents_(std::move(contents)) {}

  int64_t size() const override { return static_cast<int64_t>(contents_.size()); }
  absl::Status ReadAt(int64_t offset, absl::Span<char> out) const override {
    RETURN_IF_ERROR(disk_.CheckRead(path_));
    if (offset + out.size() > contents_.size()) {
      return absl::DataLossError(absl::StrCat(path_, " ends early"));
    }
    std::memcpy(out.data(), contents_.data() + offset, out.size());
    return absl::OkStatus();
  }

 private:
  const SimDisk& disk_;
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
    return std::make_unique<SimReadableFile>(&disk_, path, found->second->contents);
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
    if (const auto found = disk_.files_.find(path); found != disk_.files_.end()) {
      disk_.Forget(path, found->second);
    }
    return absl::OkStatus();
  }

  absl::Status RemoveFolder(const std::string& named) override {
    const std::string path(absl::StripSuffix(named, "/"));
    RETURN_IF_ERROR(disk_.Check(node_.node, path));
    const bool is_empty =
        std::none_of(disk_.files_.begin(), disk_.files_.end(),
                     [&](const auto& file) { return Parent(file.first) == path; });
    if (!is_empty) return absl::FailedPreconditionError(absl::StrCat(path, " is not empty"));
    if (disk_.keeps_all) return absl::OkStatus();
    disk_.folders_.erase(path);
    disk_.removed_.clear();  // the folder above is synced
    return absl::OkStatus();
  }

  absl::StatusOr<std::unique_ptr<FileLock>> LockFile(const std::string& path,
                                                     absl::string_view owner) override {
    RETURN_IF_ERROR(disk_.Check(node_.node, path));
    if (refused_ || !disk_.locks_.emplace(path, node_.node).second) {
      refused_ = disk_.locks_once;
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
  bool refused_ = false;
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

absl::Status SimDisk::CheckRead(const std::string& path) const {
  if (!has_read_errors() || path != unreadable_) return absl::OkStatus();
  return absl::UnknownError(absl::StrCat(path, ": Input/output error"));
}

void SimDisk::Forget(const std::string& path, std::shared_ptr<File> file) {
  if (keeps_all) return;
  while (!removed_.empty() && removed_.front().at + kWriteBack < world_.loop().Now()) {
    removed_.pop_front();
  }
  files_.erase(path);
  removed_.push_back({path, std::move(file), world_.loop().Now()});
}

void SimDisk::LosePower() {
  lost_power_ = world_.loop().Now();
  for (const auto& [path, file] : files_) {
    if (file->synced <= world_.loop().Now()) continue;
    file->contents.resize(file->contents.size() / 2);
  }
  // A file system forgets the latest changes of its folders, and none before these.
  const size_t lost =
      removed_.empty() ? 0 : world_.dice().Int(0, static_cast<int>(removed_.size()));
  for (size_t i = 0; i < lost; ++i) {
    const Removed removed = std::move(removed_.back());
    removed_.pop_back();
    if (removed.at + kWriteBack < world_.loop().Now()) break;
    if (folders_.contains(Parent(removed.path))) {
      files_.emplace(removed.path, removed.file);
    }
  }
  removed_.clear();
}

bool SimDisk::is_slow() const {
  return std::any_of(slow_until_.begin(), slow_until_.end(), [this](const auto& node_and_until) {
    return node_and_until.second > world_.loop().Now();
  });
}

absl::Duration SimDisk::Lag(int node) {
  const auto found = slow_until_.find(node);
  if (found == slow_until_.end() || found->second <= world_.loop().Now()) {
    return absl::ZeroDuration();
  }
  return absl::Seconds(world_.dice().Scale(0.05, 1));
}

std::string SimDisk::FileOf(const std::string& folder) {
  std::vector<std::string> files;
  for (const auto& [path, file] : files_) {
    // The shards' records are not read any more when there is a manifest.
    const bool is_read = absl::EndsWith(path, "/manifest.json") || !absl::EndsWith(path, ".json");
    if (Parent(path) == folder && is_read) files.push_back(path);
  }
  return files.empty() ? "" : files[world_.dice().Int(0, static_cast<int>(files.size()) - 1)];
}

bool SimDisk::FailReadsUntil(const std::string& folder, absl::Time until) {
  unreadable_ = FileOf(folder);
  unreadable_until_ = until;
  return !unreadable_.empty();
}

bool SimDisk::Rot(const std::string& folder) {
  const std::string path = FileOf(folder);
  if (path.empty() || files_[path]->contents.empty()) return false;
  std::string& contents = files_[path]->contents;
  contents[world_.dice().Int(0, static_cast<int>(contents.size()) - 1)] ^=
      static_cast<char>(1 << world_.dice().Int(0, 7));
  return true;
}

std::vector<std::string> SimDisk::FoldersOf(const std::string& path) const {
  std::vector<std::string> names;
  for (const std::string& folder : folders_) {
    if (Parent(folder) == path) names.push_back(folder.substr(path.size() + 1));
  }
  return names;
}

}  // namespace evenshard
