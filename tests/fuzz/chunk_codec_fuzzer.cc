// libFuzzer target: the chunk decoder against the code that protoc generates. Both must
// accept the same bytes with the same result, in whatever pieces the decoder receives them.
//
// The first byte of the input, n modulo 8, says how many bytes with the lengths of pieces
// follow it (taken in turn, again and again); the rest is the message.

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "common/wire/chunk_codec.h"
#include "proto/parameter_server.pb.h"
#include "tests/fuzz/fuzzing.h"

namespace evenshard {
namespace {

// Pieces of a message, each in memory of its own, so that AddressSanitizer sees a read
// beyond any of them.
class Pieces {
 public:
  Pieces(const std::string& message, const std::vector<uint8_t>& lengths) {
    size_t turn = 0;
    for (size_t begin = 0; begin < message.size();) {
      const size_t length = lengths.empty() ? message.size() : lengths[turn++ % lengths.size()];
      const std::string piece = message.substr(begin, length);
      memory_.emplace_back(piece.begin(), piece.end());
      memory_.back().shrink_to_fit();
      begin += piece.size();
    }
    for (const std::vector<char>& piece : memory_) segments_.push_back(piece);
  }
  const Segments& segments() const { return segments_; }

 private:
  std::vector<std::vector<char>> memory_;
  Segments segments_;
};

std::string Join(const Segments& segments) {
  std::string bytes;
  for (const auto& segment : segments) bytes.append(segment.data(), segment.size());
  return bytes;
}

template <size_t kBytes>
void CheckElements(const Segments& data, const std::string& expected) {
  if (expected.size() % kBytes != 0) return;
  std::string elements(expected.size(), '\0');
  size_t next = 0;
  ForEachElementRun<kBytes>(data, [&](int64_t first, const char* run, int64_t count) {
    Require(first * kBytes == next, "a run of elements begins elsewhere");
    std::memcpy(elements.data() + next, run, count * kBytes);
    next += count * kBytes;
  });
  Require(next == expected.size() && elements == expected, "the elements");
}

// A weight of 1 says nothing, and is not encoded.
void LeaveOutDefaults(GradientChunks* message) {
  for (GradientChunk& chunk : *message->mutable_chunk()) {
    if (chunk.weight() == 1) chunk.clear_weight();
  }
}
void LeaveOutDefaults(ParameterChunks* message) {}

template <typename Message, typename Decode>
void Check(const std::string& bytes, const Pieces& pieces, Decode decode) {
  Message expected;
  const bool accepted = expected.ParseFromString(bytes);
  const auto decoded = decode(pieces.segments());
  if (!decoded.ok()) {
    const std::string error(decoded.status().message());
    // Groups, which only proto2 writes, and messages with no chunk or with too many are refused
    // here alone.
    const bool wrong_count =
        expected.chunk_size() == 0 || static_cast<size_t>(expected.chunk_size()) > kMostChunks;
    Require(!accepted || wrong_count || error.find("proto3 does not have") != std::string::npos,
            error);
    return;
  }
  Require(accepted, "accepted here alone");
  expected.DiscardUnknownFields();
  std::string encoded;
  for (const auto& chunk : *decoded) {
    const std::string data = Join(chunk.data);
    const EncodedHeader header = EncodeListed(chunk.header, data.size());
    encoded.append(header.data(), header.size()).append(data);
    CheckElements<sizeof(float)>(chunk.data, data);
    CheckElements<sizeof(uint16_t)>(chunk.data, data);
  }
  // Here `data` comes last, and there before the fields of larger numbers.
  Message again;
  Require(again.ParseFromString(encoded), "what is encoded");
  LeaveOutDefaults(&expected);
  Require(again.SerializeAsString() == expected.SerializeAsString(), "the fields");
}

}  // namespace
}  // namespace evenshard

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* input, size_t size) {
  if (size == 0) return 0;
  const size_t lengths = input[0] % 8;
  if (size < 1 + lengths) return 0;
  std::vector<uint8_t> cuts(input + 1, input + 1 + lengths);
  // Pieces of length 0 alone would never end.
  bool advances = cuts.empty();
  for (const uint8_t length : cuts) advances |= length > 0;
  if (!advances) return 0;
  const std::string message(input + 1 + lengths, input + size);
  const evenshard::Pieces pieces(message, cuts);
  evenshard::Check<evenshard::GradientChunks>(message, pieces, evenshard::DecodeGradientChunks);
  evenshard::Check<evenshard::ParameterChunks>(message, pieces, evenshard::DecodeParameterChunks);
  return 0;
}
