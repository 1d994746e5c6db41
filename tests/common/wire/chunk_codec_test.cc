#include "common/wire/chunk_codec.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <random>
#include <string>
#include <vector>

#include "proto/parameter_server.pb.h"

namespace evenshard {
namespace {

// Cuts `bytes` into pieces of random length, some of which are empty.
Segments Cut(const std::string& bytes, std::mt19937_64& random, size_t largest = 40) {
  Segments segments;
  for (size_t begin = 0; begin < bytes.size();) {
    const size_t length = std::min<size_t>(random() % (largest + 1), bytes.size() - begin);
    segments.emplace_back(bytes.data() + begin, length);
    begin += length;
  }
  return segments;
}

std::string Join(const Segments& segments) {
  std::string bytes;
  for (const auto& segment : segments) bytes.append(segment.data(), segment.size());
  return bytes;
}

std::string RandomBytes(size_t size, std::mt19937_64& random) {
  std::string bytes(size, '\0');
  for (char& byte : bytes) byte = static_cast<char>(random());
  return bytes;
}

// Returns zero with probability 1/4, and otherwise a number of random width, up to 64 bits.
uint64_t RandomNumber(std::mt19937_64& random) {
  const uint64_t number = random();
  return random() % 4 == 0 ? 0 : number >> (random() % 64);
}

// A chunk of a message of Exchange.
template <typename Header>
std::string Listed(const Header& header, const std::string& data) {
  const EncodedHeader encoded = EncodeListed(header, data.size());
  return std::string(encoded.data(), encoded.size()) + data;
}

// A message of Exchange with one chunk, in these bytes.
std::string MessageOf(const std::string& chunk) {
  std::string message = "\x0a";
  size_t length = chunk.size();
  for (; length >= 0x80; length >>= 7) message += static_cast<char>(length | 0x80);
  message += static_cast<char>(length);
  return message + chunk;
}

// Returns a known encoding in most cases. The enum is open, so any other int32 is possible too.
Encoding RandomEncoding(std::mt19937_64& random) {
  const uint64_t number = random();
  return static_cast<Encoding>(random() % 4 == 0 ? static_cast<int32_t>(number)
                                                 : static_cast<int32_t>(number % 3));
}

GradientChunk RandomGradientChunk(std::mt19937_64& random) {
  GradientChunk message;
  message.set_worker(RandomNumber(random));
  message.set_incarnation(RandomNumber(random));
  message.set_iteration(RandomNumber(random));
  message.set_chunk(RandomNumber(random));
  message.set_base_version(RandomNumber(random));
  message.set_skip(random() % 2 == 0);
  message.set_absent(random() % 2 == 0);
  message.set_encoding(RandomEncoding(random));
  message.set_hold(random() % 2 == 0);
  message.set_view(RandomNumber(random));
  if (random() % 2 == 0) message.set_learning_rate((random() % 3) / 4.0f);
  if (random() % 2 == 0) message.set_momentum((random() % 3) / 4.0f);
  if (random() % 2 == 0) message.set_beta2((random() % 3) / 4.0f);
  if (random() % 2 == 0) message.set_weight_decay((random() % 3) / 4.0f);
  if (random() % 2 == 0) message.set_epsilon((random() % 3) / 4.0f);
  message.set_onlooks(random() % 2 == 0);
  message.set_data(RandomBytes(random() % 300, random));
  return message;
}

Hyperparameters HyperparametersOf(const GradientChunk& message) {
  const auto given = [](bool has, float number) {
    return has ? std::optional(number) : std::nullopt;
  };
  return {.learning_rate = given(message.has_learning_rate(), message.learning_rate()),
          .momentum = given(message.has_momentum(), message.momentum()),
          .beta2 = given(message.has_beta2(), message.beta2()),
          .weight_decay = given(message.has_weight_decay(), message.weight_decay()),
          .epsilon = given(message.has_epsilon(), message.epsilon())};
}

void RequireSame(const Decoded<GradientHeader>& decoded, const GradientChunk& message) {
  REQUIRE(decoded.header.worker == message.worker());
  REQUIRE(decoded.header.incarnation == message.incarnation());
  REQUIRE(decoded.header.iteration == message.iteration());
  REQUIRE(decoded.header.chunk == message.chunk());
  REQUIRE(decoded.header.base_version == message.base_version());
  REQUIRE(decoded.header.skip == message.skip());
  REQUIRE(decoded.header.absent == message.absent());
  REQUIRE(decoded.header.encoding == message.encoding());
  REQUIRE(decoded.header.hold == message.hold());
  REQUIRE(decoded.header.view == message.view());
  REQUIRE(decoded.header.onlooks == message.onlooks());
  REQUIRE(decoded.header.hyperparameters == HyperparametersOf(message));
  REQUIRE(Join(decoded.data) == message.data());
}

}  // namespace

TEST_CASE("encoded gradient chunks have the bytes of the generated code") {
  const uint64_t seed = std::random_device()();
  CAPTURE(seed);
  std::mt19937_64 random(seed);
  for (int i = 0; i < 300; ++i) {
    GradientChunks message;
    std::string encoded;
    for (uint64_t left = random() % (kMostChunks + 1); left > 0; --left) {
      GradientChunk& chunk = *message.add_chunk() = RandomGradientChunk(random);
      // The generated code writes these behind the data.
      chunk.clear_epsilon();
      chunk.clear_onlooks();
      const GradientHeader header{.worker = chunk.worker(),
                                  .incarnation = chunk.incarnation(),
                                  .iteration = chunk.iteration(),
                                  .chunk = chunk.chunk(),
                                  .base_version = chunk.base_version(),
                                  .skip = chunk.skip(),
                                  .encoding = chunk.encoding(),
                                  .hold = chunk.hold(),
                                  .view = chunk.view(),
                                  .hyperparameters = HyperparametersOf(chunk),
                                  .absent = chunk.absent()};
      encoded += Listed(header, chunk.data());
    }
    REQUIRE(encoded == message.SerializeAsString());
  }
}

TEST_CASE("encoded parameter chunks have the bytes of the generated code, alone and in a list") {
  const uint64_t seed = std::random_device()();
  CAPTURE(seed);
  std::mt19937_64 random(seed);
  for (int i = 0; i < 300; ++i) {
    ParameterChunks message;
    std::string encoded;
    for (uint64_t left = 1 + random() % kMostChunks; left > 0; --left) {
      ParameterChunk& chunk = *message.add_chunk();
      chunk.set_iteration(RandomNumber(random));
      chunk.set_chunk(RandomNumber(random));
      chunk.set_version(RandomNumber(random));
      chunk.set_encoding(RandomEncoding(random));
      chunk.set_view(RandomNumber(random));
      chunk.set_unchanged(random() % 2 == 0);
      chunk.set_all_absent(random() % 2 == 0);
      chunk.set_dropped(random() % 2 == 0);
      chunk.set_next_iteration(RandomNumber(random));
      chunk.set_is_difference(random() % 2 == 0);
      chunk.set_data(RandomBytes(random() % 300, random));
      const ParameterHeader header{.iteration = chunk.iteration(),
                                   .chunk = chunk.chunk(),
                                   .version = chunk.version(),
                                   .encoding = chunk.encoding(),
                                   .view = chunk.view(),
                                   .unchanged = chunk.unchanged(),
                                   .all_absent = chunk.all_absent(),
                                   .dropped = chunk.dropped(),
                                   .next_iteration = chunk.next_iteration(),
                                   .is_difference = chunk.is_difference()};
      const EncodedHeader alone = EncodeHeader(header, chunk.data().size());
      REQUIRE(std::string(alone.data(), alone.size()) + chunk.data() == chunk.SerializeAsString());
      encoded += Listed(header, chunk.data());
    }
    REQUIRE(encoded == message.SerializeAsString());

    const auto decoded = DecodeParameterChunks(Cut(encoded, random));
    REQUIRE(decoded.ok());
    REQUIRE(decoded->size() == static_cast<size_t>(message.chunk_size()));
    for (int c = 0; c < message.chunk_size(); ++c) {
      const Decoded<ParameterHeader>& chunk = (*decoded)[c];
      REQUIRE(chunk.header.iteration == message.chunk(c).iteration());
      REQUIRE(chunk.header.chunk == message.chunk(c).chunk());
      REQUIRE(chunk.header.version == message.chunk(c).version());
      REQUIRE(chunk.header.encoding == message.chunk(c).encoding());
      REQUIRE(chunk.header.view == message.chunk(c).view());
      REQUIRE(chunk.header.unchanged == message.chunk(c).unchanged());
      REQUIRE(chunk.header.all_absent == message.chunk(c).all_absent());
      REQUIRE(chunk.header.dropped == message.chunk(c).dropped());
      REQUIRE(chunk.header.next_iteration == message.chunk(c).next_iteration());
      REQUIRE(chunk.header.is_difference == message.chunk(c).is_difference());
      REQUIRE(Join(chunk.data) == message.chunk(c).data());
    }
  }
}

TEST_CASE("FLOAT32 and the view 0 are not on the wire, and the longest header fits") {
  GradientHeader header{1, 2, 3, 4, 5, true, FLOAT32};
  const std::string without = Listed(header, "data");
  header.encoding = BFLOAT16;
  CHECK(Listed(header, "data").size() == without.size() + 2);
  header.view = 7;
  CHECK(Listed(header, "data").size() == without.size() + 4);
  ParameterHeader reply{1, 2, 3, FLOAT32};
  const std::string viewless = Listed(reply, "data");
  reply.view = 7;
  CHECK(Listed(reply, "data").size() == viewless.size() + 2);
  header = {UINT32_MAX, UINT64_MAX, UINT64_MAX, UINT32_MAX, UINT64_MAX,
            true,       -1,         true,       UINT64_MAX, 0.0f};
  CHECK(EncodeListed(header, SIZE_MAX - 85).size() == 96);
}

TEST_CASE("gradient chunks are decoded from pieces of any length") {
  const uint64_t seed = std::random_device()();
  CAPTURE(seed);
  std::mt19937_64 random(seed);
  for (int i = 0; i < 300; ++i) {
    GradientChunks message;
    for (uint64_t left = 1 + random() % kMostChunks; left > 0; --left) {
      *message.add_chunk() = RandomGradientChunk(random);
    }
    const std::string bytes = message.SerializeAsString();
    const auto decoded = DecodeGradientChunks(Cut(bytes, random));
    REQUIRE(decoded.ok());
    REQUIRE(decoded->size() == static_cast<size_t>(message.chunk_size()));
    for (int c = 0; c < message.chunk_size(); ++c) RequireSame((*decoded)[c], message.chunk(c));
  }
}

TEST_CASE("a message without a chunk is refused, and one with too many before they take memory") {
  GradientChunks message;
  CHECK_THAT(std::string(DecodeGradientChunks({}).status().message()),
             Catch::Contains("it has no chunk"));
  for (size_t i = 0; i < kMostChunks; ++i) message.add_chunk();
  const std::string most = message.SerializeAsString();
  CHECK(DecodeGradientChunks({absl::MakeConstSpan(most)}).ok());
  message.add_chunk();
  const std::string more = message.SerializeAsString();
  CHECK(DecodeGradientChunks({absl::MakeConstSpan(more)}).status() ==
        absl::InvalidArgumentError("malformed chunk message: it has more than 64 chunks"));
}

TEST_CASE("decoding agrees with generated code on fields in any order, repeated and unknown") {
  const uint64_t seed = std::random_device()();
  CAPTURE(seed);
  std::mt19937_64 random(seed);
  for (int i = 0; i < 1000; ++i) {
    // Concatenated messages are one message in which later fields override earlier ones.
    std::string bytes;
    for (int part = 0; part < 4; ++part) {
      bytes += RandomGradientChunk(random).SerializeAsString();
      // Unknown fields: a varint 20, a fixed64 21, a string 22, a fixed32 23.
      if (random() % 2) bytes += std::string("\xa0\x01\x2a", 3);
      if (random() % 2) bytes += std::string("\xa9\x01", 2) + RandomBytes(8, random);
      if (random() % 2) bytes += std::string("\xb2\x01\x03", 3) + "xyz";
      if (random() % 2) bytes += std::string("\xbd\x01", 2) + RandomBytes(4, random);
      // A known field number with another wire type is an unknown field. This is worker as fixed32.
      if (random() % 2) bytes += std::string("\x0d", 1) + RandomBytes(4, random);
    }
    GradientChunk expected;
    REQUIRE(expected.ParseFromString(bytes));
    const std::string message = MessageOf(bytes);
    const auto decoded = DecodeGradientChunks(Cut(message, random));
    REQUIRE(decoded.ok());
    RequireSame(decoded->at(0), expected);
  }
}

TEST_CASE("what generated code refuses is refused, with the place") {
  const uint64_t seed = std::random_device()();
  CAPTURE(seed);
  std::mt19937_64 random(seed);
  int refused = 0;
  for (int i = 0; i < 4000; ++i) {
    std::string chunk = RandomGradientChunk(random).SerializeAsString();
    const auto damage = [&random](std::string& bytes) {
      if (random() % 2) bytes.resize(random() % (bytes.size() + 1));
      if (!bytes.empty() && random() % 2) bytes[random() % bytes.size()] = random();
    };
    if (random() % 2) damage(chunk);
    std::string bytes = MessageOf(chunk);
    if (random() % 2) damage(bytes);
    GradientChunks expected;
    const bool parses = expected.ParseFromString(bytes);
    const auto decoded = DecodeGradientChunks(Cut(bytes, random));
    if (decoded.ok()) {
      REQUIRE(parses);
      REQUIRE(decoded->size() == static_cast<size_t>(expected.chunk_size()));
      for (int c = 0; c < expected.chunk_size(); ++c) RequireSame((*decoded)[c], expected.chunk(c));
    } else {
      ++refused;
      REQUIRE(decoded.status().code() == absl::StatusCode::kInvalidArgument);
      const std::string text(decoded.status().message());
      // Only groups, which proto2 alone writes, and a message without a chunk are refused here and
      // taken by generated code.
      const bool is_empty = text.find("it has no chunk") != std::string::npos;
      REQUIRE((is_empty || text.find("at byte ") != std::string::npos));
      if (parses && !is_empty) REQUIRE(text.find("proto3") != std::string::npos);
      if (is_empty) REQUIRE((parses && expected.chunk_size() == 0));
    }
  }
  REQUIRE(refused > 100);
}

TEST_CASE("a field longer than the message says both lengths") {
  const std::string bytes =
      MessageOf(std::string("\x7a\x05"
                            "abc",
                            5));
  const auto decoded = DecodeGradientChunks({absl::MakeConstSpan(bytes)});
  REQUIRE_FALSE(decoded.ok());
  CHECK_THAT(std::string(decoded.status().message()),
             Catch::Contains("a field of 5 bytes where 3 bytes are left"));
}

TEST_CASE("floats are put together from pieces of any length, each once and in order") {
  const uint64_t seed = std::random_device()();
  CAPTURE(seed);
  std::mt19937_64 random(seed);
  for (int round = 0; round < 200; ++round) {
    std::vector<float> floats(random() % 200);
    for (float& f : floats) f = static_cast<float>(random() % 1000) - 500;
    const std::string bytes(reinterpret_cast<const char*>(floats.data()), floats.size() * 4);
    std::vector<float> out;
    ForEachFloatRun(Cut(bytes, random, 1 + random() % 60),
                    [&](int64_t first, const UnalignedFloat* run, int64_t count) {
                      REQUIRE(first == static_cast<int64_t>(out.size()));
                      for (int64_t i = 0; i < count; ++i) out.push_back(run[i]);
                    });
    REQUIRE(out == floats);
  }
}

}  // namespace evenshard
