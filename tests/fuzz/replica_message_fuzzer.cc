// libFuzzer target: the decoder of messages to a replica against the code that protoc generates.
// What the decoder accepts has the same fields and the same data, in whatever pieces it comes; what
// it refuses is malformed, or has something behind its data.
//
// The first byte of the input says how long the pieces are; the rest is the message.

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "server/rpc/peers/replica_message.h"
#include "tests/fuzz/fuzzing.h"

namespace evenshard {
namespace {

void Check(const std::string& bytes, size_t piece) {
  // Each piece has memory of its own, so that AddressSanitizer sees a read beyond it.
  std::vector<std::vector<char>> memory;
  for (size_t begin = 0; begin < bytes.size(); begin += piece) {
    const size_t end = std::min(bytes.size(), begin + piece);
    memory.emplace_back(bytes.begin() + begin, bytes.begin() + end);
  }
  Segments segments;
  for (const std::vector<char>& each : memory) segments.emplace_back(each);
  const absl::StatusOr<ReplicaMessage> decoded = DecodeReplica(segments);
  ReplicaChunk expected;
  const bool is_valid = expected.ParseFromString(bytes);
  if (!decoded.ok()) return;
  Require(is_valid, "accepted by the decoder alone");
  std::string data;
  for (const auto& segment : decoded->data) data.append(segment.data(), segment.size());
  Require(data == expected.data(), "the data");
  expected.clear_data();
  Require(decoded->header.SerializeAsString() == expected.SerializeAsString(), "the fields");
}

}  // namespace
}  // namespace evenshard

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* input, size_t size) {
  if (size == 0) return 0;
  evenshard::Check(std::string(input + 1, input + size), 1 + input[0]);
  return 0;
}
