#include "server/rpc/peers/replica_message.h"

#include <catch2/catch.hpp>
#include <random>
#include <string>

#include "common/wire/message_slices.h"

namespace evenshard {
namespace {

std::string BytesOf(const grpc::ByteBuffer& buffer) {
  std::vector<grpc::Slice> slices;
  REQUIRE(buffer.Dump(&slices).ok());
  std::string bytes;
  for (const grpc::Slice& slice : slices) {
    bytes.append(reinterpret_cast<const char*>(slice.begin()), slice.size());
  }
  return bytes;
}

std::string Joined(const Segments& segments) {
  std::string bytes;
  for (const auto& segment : segments) bytes.append(segment.data(), segment.size());
  return bytes;
}

ReplicaChunk SomeHeader() {
  ReplicaChunk header;
  header.set_view(3);
  header.set_chunk(70000);
  header.set_version(1u << 20);
  header.set_iteration(12345678901);
  header.set_encoding(BFLOAT16);
  header.set_scale(0.25f);
  header.set_rate_iteration(7);
  return header;
}

// Every kind of message.
std::vector<ReplicaChunk> SomeHeaders() {
  std::vector<ReplicaChunk> headers = {ReplicaChunk(), SomeHeader(), SomeHeader(), SomeHeader()};
  headers[2].set_worker(0);
  headers[3].set_is_state(true);
  for (int i = 0; i < 1024; ++i) headers[3].add_next_iteration(uint64_t{1} << (i % 64));
  return headers;
}

std::string Encoded(const ReplicaChunk& header, const std::string& data) {
  ReplicaMessage message{.header = header, .data = {}, .owner = nullptr};
  if (!data.empty()) message.data.emplace_back(data);
  return BytesOf(EncodeReplica(message));
}

TEST_CASE("an encoded change is what the generated code makes, and is decoded from any pieces") {
  const std::string data = GENERATE(std::string(), std::string(1, 'x'), std::string(70001, 'y'));
  for (const ReplicaChunk& header : SomeHeaders()) {
    ReplicaChunk whole = header;
    whole.set_data(data);
    const std::string bytes = Encoded(header, data);
    CHECK(bytes == whole.SerializeAsString());
    for (const size_t cut : {size_t{0}, size_t{1}, size_t{9}, bytes.size() / 2, bytes.size()}) {
      const size_t at = std::min(cut, bytes.size());
      const Segments segments = {{bytes.data(), at}, {bytes.data() + at, bytes.size() - at}};
      const absl::StatusOr<ReplicaMessage> decoded = DecodeReplica(segments);
      INFO(decoded.status().ToString());
      REQUIRE(decoded.ok());
      CHECK(decoded->header.SerializeAsString() == header.SerializeAsString());
      CHECK(Joined(decoded->data) == data);
    }
  }
}

TEST_CASE("an encoded change keeps the owner of its data until it has been sent") {
  auto owner = std::make_shared<std::string>("data");
  const std::weak_ptr<std::string> seen = owner;
  ReplicaMessage message{.header = SomeHeader(), .data = {}, .owner = owner};
  message.data.emplace_back(*owner);
  owner.reset();
  {
    const grpc::ByteBuffer encoded = EncodeReplica(message);
    message = ReplicaMessage();
    CHECK_FALSE(seen.expired());
  }
  CHECK(seen.expired());
}

TEST_CASE("a change that was cut off or goes on is refused") {
  const std::string data(300, 'z');
  for (const ReplicaChunk& header : SomeHeaders()) {
    const std::string bytes = Encoded(header, data);
    // A message that ends before the field `data` is one without data.
    const size_t header_bytes = header.ByteSizeLong();
    for (size_t size = header_bytes + 1; size < bytes.size(); ++size) {
      CAPTURE(size, header_bytes);
      CHECK(absl::IsInvalidArgument(DecodeReplica({{bytes.data(), size}}).status()));
    }
    const std::string more = bytes + '\x08';
    CHECK(absl::IsInvalidArgument(DecodeReplica({{more.data(), more.size()}}).status()));
  }
}

TEST_CASE("whatever bytes come, decoding reads none but these") {
  const auto seed = std::random_device()();
  CAPTURE(seed);
  std::mt19937 random(seed);
  const std::string valid = Encoded(SomeHeader(), std::string(40, 'd'));
  for (int i = 0; i < 20000; ++i) {
    // On the heap, so that AddressSanitizer sees what is read beyond the end.
    std::string bytes = valid.substr(0, random() % (valid.size() + 1));
    for (int change = random() % 4; change > 0 && !bytes.empty(); --change) {
      bytes[random() % bytes.size()] = static_cast<char>(random());
    }
    const std::vector<char> heap(bytes.begin(), bytes.end());
    const auto decoded = DecodeReplica({{heap.data(), heap.size()}});
    if (!decoded.ok()) continue;
    CHECK(SegmentsSize(decoded->data) <= heap.size());
    ReplicaChunk parsed;
    CHECK(parsed.ParseFromArray(heap.data(), static_cast<int>(heap.size())));
    CHECK(parsed.data() == Joined(decoded->data));
  }
}

}  // namespace
}  // namespace evenshard
