#ifndef EVENSHARD_COMMON_CHECKPOINT_SHARD_FILE_H_
#define EVENSHARD_COMMON_CHECKPOINT_SHARD_FILE_H_

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/checkpoint/checkpoint_record.h"
#include "common/checkpoint/storage/storage.h"

namespace evenshard {

// Opens the file that a record describes. Errors: DATA_LOSS if it is missing or does not have the
// recorded size; those of Storage.
absl::StatusOr<std::unique_ptr<ReadableFile>> OpenShardFile(Storage* storage,
                                                            const std::string& path,
                                                            const ShardRecord& record);

// Fills `out` with the bytes from `offset` on. Errors: DATA_LOSS if they do not have the checksum;
// those of ReadableFile.
absl::Status ReadChecked(const ReadableFile& file, const std::string& path, int64_t offset,
                         uint64_t checksum, absl::Span<char> out);

// Compares all checksums of the record with the file. Errors: as the functions above.
absl::Status VerifyShardFile(Storage* storage, const std::string& path, const ShardRecord& record);

}  // namespace evenshard

#endif  // EVENSHARD_COMMON_CHECKPOINT_SHARD_FILE_H_
