#include "common/base/direct_writer.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"

namespace evenshard {
namespace {

// Returns 0 or an errno; EINVAL also if a direct write has left an offset that is not aligned.
int WriteAll(int fd, int64_t offset, const char* bytes, int64_t size) {
  while (size > 0) {
    const ssize_t written = pwrite(fd, bytes, size, offset);
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return errno;
    bytes += written;
    size -= written;
    offset += written;
  }
  return 0;
}

}  // namespace

absl::StatusOr<std::unique_ptr<DirectWriter>> DirectWriter::Create(int fd) {
  const std::string path = absl::StrCat("/proc/self/fd/", fd);
  ASSIGN_OR_RETURN(FloatBuffer memory,
                   FloatBuffer::Allocate(kBuffers * kBufferBytes / sizeof(float)));
  const int direct_fd = open(path.c_str(), O_WRONLY | O_DIRECT | O_CLOEXEC);
  if (direct_fd < 0) return nullptr;
  return std::unique_ptr<DirectWriter>(new DirectWriter(fd, direct_fd, std::move(memory)));
}

DirectWriter::DirectWriter(int fd, int direct_fd, FloatBuffer memory)
    : fd_(fd), direct_fd_(direct_fd), memory_(std::move(memory)) {
  for (int i = 0; i < kBuffers; ++i) free_.push_back(i);
  thread_ = std::thread([this] { Run(); });
}

DirectWriter::~DirectWriter() {
  {
    absl::MutexLock lock(&mutex_);
    ends_ = true;
  }
  thread_.join();
  close(direct_fd_);
}

char* DirectWriter::BufferOf(const Piece& piece) {
  return reinterpret_cast<char*>(memory_.data()) + piece.buffer * kBufferBytes +
         piece.offset % kAlignment;
}

int DirectWriter::Write(int64_t offset, absl::string_view bytes) {
  while (!bytes.empty()) {
    Piece piece{.offset = offset};
    piece.size = std::min<int64_t>(bytes.size(), kBufferBytes - offset % kAlignment);
    {
      absl::MutexLock lock(&mutex_);
      mutex_.Await(absl::Condition(
          +[](DirectWriter* writer)
               ABSL_EXCLUSIVE_LOCKS_REQUIRED(writer->mutex_) { return !writer->free_.empty(); },
          this));
      if (error_ != 0) return error_;
      piece.buffer = free_.back();
      free_.pop_back();
    }
    std::memcpy(BufferOf(piece), bytes.data(), piece.size);
    bytes.remove_prefix(piece.size);
    offset += piece.size;
    absl::MutexLock lock(&mutex_);
    queue_.push_back(piece);
  }
  return 0;
}

int DirectWriter::Finish() {
  {
    absl::MutexLock lock(&mutex_);
    mutex_.Await(absl::Condition(
        +[](DirectWriter* writer) ABSL_EXCLUSIVE_LOCKS_REQUIRED(writer->mutex_) {
          return writer->free_.size() == kBuffers;
        },
        this));
    if (error_ != 0) return error_;
  }
  for (const auto& [block, edge] : edges_) {
    if (const int error = WriteEdge(block, edge); error != 0) return error;
  }
  edges_.clear();
  return 0;
}

void DirectWriter::Run() {
  while (true) {
    Piece piece;
    bool failed;
    {
      absl::MutexLock lock(&mutex_);
      mutex_.Await(absl::Condition(
          +[](DirectWriter* writer) ABSL_EXCLUSIVE_LOCKS_REQUIRED(writer->mutex_) {
            return !writer->queue_.empty() || writer->ends_;
          },
          this));
      if (ends_) return;
      piece = queue_.front();
      queue_.pop_front();
      failed = error_ != 0;
    }
    const int error = failed ? 0 : WritePiece(piece);
    absl::MutexLock lock(&mutex_);
    if (error_ == 0) error_ = error;
    free_.push_back(piece.buffer);
  }
}

int DirectWriter::WritePiece(const Piece& piece) {
  const char* const bytes = BufferOf(piece);
  const int64_t end = piece.offset + piece.size;
  const int64_t body_begin = (piece.offset + kAlignment - 1) / kAlignment * kAlignment;
  const int64_t body_end = std::max(body_begin, end / kAlignment * kAlignment);
  const int64_t head = std::min(body_begin, end) - piece.offset;
  if (const int error = AddEdge(piece.offset, bytes, head); error != 0) return error;
  const char* const body = bytes + (body_begin - piece.offset);
  int error = WriteAll(direct_fd_, body_begin, body, body_end - body_begin);
  // The file system has other needs, or was left in the middle of a block.
  if (error == EINVAL) error = WriteAll(fd_, body_begin, body, body_end - body_begin);
  if (error != 0) return error;
  return AddEdge(body_end, bytes + (body_end - piece.offset), end - body_end);
}

int DirectWriter::AddEdge(int64_t offset, const char* bytes, int64_t size) {
  if (size <= 0) return 0;
  const int64_t block = offset / kAlignment * kAlignment;
  Edge& edge = edges_[block];
  std::memcpy(edge.bytes.data() + (offset - block), bytes, size);
  edge.parts.emplace_back(offset - block, size);
  edge.covered += size;
  if (edge.covered < kAlignment) return 0;
  const int error = WriteAll(fd_, block, edge.bytes.data(), kAlignment);
  edges_.erase(block);
  return error;
}

int DirectWriter::WriteEdge(int64_t block, const Edge& edge) const {
  for (const auto& [begin, size] : edge.parts) {
    const int error = WriteAll(fd_, block + begin, edge.bytes.data() + begin, size);
    if (error != 0) return error;
  }
  return 0;
}

}  // namespace evenshard
