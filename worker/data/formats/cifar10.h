#ifndef EVENSHARD_WORKER_DATA_FORMATS_CIFAR10_H_
#define EVENSHARD_WORKER_DATA_FORMATS_CIFAR10_H_

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "worker/data/formats/in_memory.h"

namespace evenshard {

// Reads `files` in `folder`, one after the other, in the binary format of CIFAR-10 (Krizhevsky,
// "Learning Multiple Layers of Features from Tiny Images", 2009): records of a label byte and 32x32
// pixels, with separate planes for red, green and blue. Errors: as for ReadFile; DATA_LOSS if a
// file does not consist of whole records; INVALID_ARGUMENT for a label above 9.
absl::StatusOr<ByteImages> ReadCifar10(const std::string& folder,
                                       absl::Span<const absl::string_view> files);

// The names of the published files.
inline constexpr absl::string_view kCifar10TrainFiles[] = {"data_batch_1.bin", "data_batch_2.bin",
                                                           "data_batch_3.bin", "data_batch_4.bin",
                                                           "data_batch_5.bin"};
inline constexpr absl::string_view kCifar10TestFiles[] = {"test_batch.bin"};
inline constexpr int kCifar10Classes = 10;

}  // namespace evenshard

#endif  // EVENSHARD_WORKER_DATA_FORMATS_CIFAR10_H_
