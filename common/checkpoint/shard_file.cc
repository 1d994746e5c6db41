#include "common/checkpoint/shard_file.h"

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/checkpoint/checksum.h"

namespace evenshard {

absl::StatusOr<std::unique_ptr<ReadableFile>> OpenShardFile(Storage* storage,
                                                            const std::string& path,
                                                            const ShardRecord& record) {
  absl::StatusOr<std::unique_ptr<ReadableFile>> file = storage->OpenFile(path);
  if (absl::IsNotFound(file.status())) return absl::DataLossError(file.status().message());
  RETURN_IF_ERROR(file.status());
  if ((*file)->size() != record.file_bytes) {
    return absl::DataLossError(absl::StrCat(path, " is damaged: it has ", (*file)->size(),
                                            " bytes in place of ", record.file_bytes));
  }
  return file;
}

absl::Status ReadChecked(const ReadableFile& file, const std::string& path, int64_t offset,
                         uint64_t checksum, absl::Span<char> out) {
  RETURN_IF_ERROR(file.ReadAt(offset, out));
  if (Checksum(absl::string_view(out.data(), out.size())) == checksum) return absl::OkStatus();
  return absl::DataLossError(absl::StrCat(path, " is damaged: the ", out.size(),
                                          " bytes from byte ", offset,
                                          " on do not have their checksum"));
}

absl::Status VerifyShardFile(Storage* storage, const std::string& path, const ShardRecord& record) {
  ASSIGN_OR_RETURN(const std::unique_ptr<ReadableFile> file, OpenShardFile(storage, path, record));
  std::string buffer;
  const auto check = [&](int64_t offset, int64_t bytes, uint64_t checksum) {
    buffer.resize(bytes);
    return ReadChecked(*file, path, offset, checksum, absl::MakeSpan(buffer.data(), bytes));
  };
  RETURN_IF_ERROR(check(0, record.header_bytes, record.header_checksum));
  for (const RecordedSlice& slice : record.slices) {
    for (size_t array = 0; array < slice.offsets.size(); ++array) {
      int64_t offset = slice.offsets[array];
      for (size_t chunk = 0; chunk < slice.chunk_sizes.size(); ++chunk) {
        const int64_t bytes = slice.chunk_sizes[chunk] * static_cast<int64_t>(sizeof(float));
        RETURN_IF_ERROR(check(offset, bytes, slice.checksums[array][chunk]));
        offset += bytes;
      }
    }
  }
  return absl::OkStatus();
}

}  // namespace evenshard
