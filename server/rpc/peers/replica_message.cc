#include "server/rpc/peers/replica_message.h"

#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/wire_format_lite.h>

#include <algorithm>
#include <string>
#include <vector>

#include "common/wire/message_slices.h"
#include "grpcpp/support/slice.h"

namespace evenshard {
namespace {

using google::protobuf::internal::WireFormatLite;
using google::protobuf::io::CodedInputStream;
using google::protobuf::io::CodedOutputStream;

constexpr uint32_t kDataTag = WireFormatLite::MakeTag(ReplicaChunk::kDataFieldNumber,
                                                      WireFormatLite::WIRETYPE_LENGTH_DELIMITED);
// The fields before `data` have at most four numbers for each worker.
constexpr size_t kMaxHeaderBytes = 64 << 10;

}  // namespace

grpc::ByteBuffer EncodeReplica(const ReplicaMessage& message) {
  std::string header = message.header.SerializeAsString();
  std::vector<grpc::Slice> slices;
  if (!message.data.empty()) {
    uint8_t prefix[10];
    uint8_t* end = CodedOutputStream::WriteTagToArray(kDataTag, prefix);
    end = CodedOutputStream::WriteVarint32ToArray(static_cast<uint32_t>(SegmentsSize(message.data)),
                                                  end);
    header.append(reinterpret_cast<const char*>(prefix), end - prefix);
  }
  slices.emplace_back(header);
  for (const absl::Span<const char> piece : message.data) {
    slices.push_back(OwnedSlice(piece.data(), piece.size(), message.owner));
  }
  return grpc::ByteBuffer(slices.data(), slices.size());
}

absl::StatusOr<ReplicaMessage> DecodeReplica(const Segments& message) {
  // The header is contiguous, and the data stays where it is.
  const size_t total = SegmentsSize(message);
  std::string front;
  for (const absl::Span<const char> piece : message) {
    const size_t room = std::min(total, kMaxHeaderBytes) - front.size();
    front.append(piece.data(), std::min(piece.size(), room));
  }
  CodedInputStream input(reinterpret_cast<const uint8_t*>(front.data()),
                         static_cast<int>(front.size()));
  size_t header_bytes = 0;
  uint32_t data_bytes = 0;
  while (true) {
    const uint32_t tag = input.ReadTag();
    if (tag == kDataTag) {
      if (!input.ReadVarint32(&data_bytes) ||
          input.CurrentPosition() + size_t{data_bytes} != total) {
        return absl::InvalidArgumentError("`data` is not the last field of a ReplicaChunk");
      }
      break;
    }
    if (tag == 0 || !WireFormatLite::SkipField(&input, tag)) break;
    header_bytes = input.CurrentPosition();
  }
  ReplicaMessage decoded;
  if ((data_bytes == 0 && header_bytes != total) ||
      !decoded.header.ParseFromArray(front.data(), static_cast<int>(header_bytes))) {
    return absl::InvalidArgumentError("malformed ReplicaChunk");
  }
  size_t skipped = total - data_bytes;
  for (absl::Span<const char> piece : message) {
    const size_t skip = std::min(skipped, piece.size());
    skipped -= skip;
    piece.remove_prefix(skip);
    if (!piece.empty()) decoded.data.push_back(piece);
  }
  return decoded;
}

}  // namespace evenshard
