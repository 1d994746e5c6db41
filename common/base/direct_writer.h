#ifndef EVENSHARD_COMMON_BASE_DIRECT_WRITER_H_
#define EVENSHARD_COMMON_BASE_DIRECT_WRITER_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/synchronization/mutex.h"
#include "common/base/float_buffer.h"

namespace evenshard {

// Writes large pieces of a file past the page cache (O_DIRECT), in a thread of its own, so that the
// caller prepares the next piece meanwhile. The pages of the cache would cost the processors more
// than the write, and crowd out what is read again.
//
// Direct writes are of whole blocks of the disk. What a piece has of a block at either end is kept
// until a neighbour brings the rest, and is written through the cache. One thread uses it.
class DirectWriter {
 public:
  // Returns null if the file system has no direct writes. `fd`, the file that is open for writing,
  // must outlive the writer. Errors: RESOURCE_EXHAUSTED without memory.
  static absl::StatusOr<std::unique_ptr<DirectWriter>> Create(int fd);
  // Discards what is not written yet.
  ~DirectWriter();

  // Takes the bytes. Blocks while the disk is behind. Returns 0, or the errno of an earlier piece.
  // REQUIRES: no byte of the file comes twice.
  int Write(int64_t offset, absl::string_view bytes);

  // Waits until all pieces are written, though not yet synced. Returns 0 or the first errno.
  int Finish();

 private:
  // What direct writes are aligned to, in the file and in memory: the largest block of a disk.
  static constexpr int64_t kAlignment = 4096;
  static constexpr int64_t kBufferBytes = int64_t{1} << 20;
  static constexpr int kBuffers = 4;

  // Bytes in a buffer, at the place there that they have in a block of the file.
  struct Piece {
    int buffer = 0;
    int64_t offset = 0;
    int64_t size = 0;
  };
  // A block of the file of which some bytes have come.
  struct Edge {
    std::array<char, kAlignment> bytes;
    int64_t covered = 0;
    std::vector<std::pair<int64_t, int64_t>> parts;  // begin and size
  };

  DirectWriter(int fd, int direct_fd, FloatBuffer memory);

  char* BufferOf(const Piece& piece);  // where its first byte is
  void Run();
  // These return 0 or an errno.
  int WritePiece(const Piece& piece);
  int AddEdge(int64_t offset, const char* bytes, int64_t size);
  int WriteEdge(int64_t block, const Edge& edge) const;

  const int fd_;
  const int direct_fd_;
  FloatBuffer memory_;  // the buffers

  // Used by the thread, and by Finish() when the thread has nothing to do.
  std::map<int64_t, Edge> edges_;  // by offset of the block

  absl::Mutex mutex_;
  std::vector<int> free_ ABSL_GUARDED_BY(mutex_);
  std::deque<Piece> queue_ ABSL_GUARDED_BY(mutex_);
  int error_ ABSL_GUARDED_BY(mutex_) = 0;
  bool ends_ ABSL_GUARDED_BY(mutex_) = false;

  std::thread thread_;
};

}  // namespace evenshard

#endif  // EVENSHARD_COMMON_BASE_DIRECT_WRITER_H_
