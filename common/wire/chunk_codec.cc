#include "common/wire/chunk_codec.h"

#include <algorithm>
#include <bit>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "common/base/status_macros.h"

namespace evenshard {
namespace {

// The wire types of Protocol Buffers, without the two for groups, which proto3 does not have.
enum WireType : uint32_t { kVarint = 0, kFixed64 = 1, kBytes = 2, kFixed32 = 5 };

constexpr uint32_t kChunkField = 1;  // of a list
constexpr uint32_t kDataField = 15;

// Generated code accepts at most this many bytes for a tag or a length; other numbers may have 10.
constexpr int kLongestTagOrLength = 5;

constexpr uint32_t Tag(uint32_t field, WireType type) { return field << 3 | type; }

}  // namespace

// Writes fields in ascending order and leaves out zeros, as generated code does.
class HeaderWriter {
 public:
  void Varint(uint32_t field, uint64_t value) {
    if (value == 0) return;
    RawVarint(Tag(field, kVarint));
    RawVarint(value);
  }
  // A negative number is written with 64 bits.
  void Enum(uint32_t field, int32_t value) { Varint(field, static_cast<uint64_t>(int64_t{value})); }
  void Fixed64(uint32_t field, uint64_t value) {
    if (value == 0) return;
    RawVarint(Tag(field, kFixed64));
    for (int shift = 0; shift < 64; shift += 8) Byte(value >> shift);
  }
  // Fields with presence.
  void Optional(uint32_t field, std::optional<uint32_t> value) {
    if (!value.has_value()) return;
    RawVarint(Tag(field, kVarint));
    RawVarint(*value);
  }
  void Float(uint32_t field, std::optional<float> value) {
    if (!value.has_value()) return;
    const auto bits = std::bit_cast<uint32_t>(*value);
    RawVarint(Tag(field, kFixed32));
    for (int shift = 0; shift < 32; shift += 8) Byte(bits >> shift);
  }
  void Data(size_t data_bytes) {
    if (data_bytes == 0) return;
    RawVarint(Tag(kDataField, kBytes));
    RawVarint(data_bytes);
  }
  const EncodedHeader& header() const { return out_; }
  // The header of a chunk in a list: with its tag and length before it.
  EncodedHeader Listed(size_t data_bytes) const {
    HeaderWriter frame;
    frame.out_.end_ = 0;
    frame.RawVarint(Tag(kChunkField, kBytes));
    frame.RawVarint(out_.size() + data_bytes);
    EncodedHeader listed = out_;
    listed.begin_ -= frame.out_.end_;
    std::copy_n(frame.out_.bytes_.begin(), frame.out_.end_, listed.bytes_.begin() + listed.begin_);
    return listed;
  }

 private:
  void RawVarint(uint64_t value) {
    for (; value >= 0x80; value >>= 7) Byte(value | 0x80);
    Byte(value);
  }
  void Byte(uint64_t value) { out_.bytes_[out_.end_++] = static_cast<char>(value); }

  EncodedHeader out_;
};

namespace {

// Reads the fields of a message that lies in pieces.
class MessageReader {
 public:
  explicit MessageReader(const Segments& message)
      : message_(message), left_(SegmentsSize(message)) {}

  bool AtEnd() const { return left_ == 0; }

  // Reads a number of at most `longest` bytes with 7 bits in each.
  absl::StatusOr<uint64_t> Varint(int longest = 10) {
    uint64_t value = 0;
    for (int i = 0; i < longest; ++i) {
      if (AtEnd()) return Malformed("ends inside a number");
      const uint64_t byte = Byte();
      // Bits beyond the 64th are dropped, as generated code does.
      value |= (byte & 0x7f) << (7 * i);
      if (byte < 0x80) return value;
    }
    return Malformed(absl::StrCat("has a number of more than ", longest, " bytes"));
  }

  absl::StatusOr<uint32_t> FieldTag() {
    ASSIGN_OR_RETURN(const uint64_t number, Varint(kLongestTagOrLength));
    const uint32_t tag = static_cast<uint32_t>(number);  // truncated as in generated code
    if (tag >> 3 == 0) return Malformed("has an impossible field number");
    return tag;
  }

  absl::StatusOr<uint64_t> Fixed(int bytes) {
    if (left_ < static_cast<size_t>(bytes)) return Malformed("ends inside a number");
    uint64_t value = 0;
    for (int i = 0; i < bytes; ++i) value |= uint64_t{Byte()} << (8 * i);
    return value;
  }

  // Reads the bytes of a length-delimited field, or skips them if `bytes` is null.
  absl::Status Bytes(Segments* bytes) {
    ASSIGN_OR_RETURN(const uint64_t length, Varint(kLongestTagOrLength));
    if (length > left_) {
      return Malformed(
          absl::StrCat("has a field of ", length, " bytes where ", left_, " bytes are left"));
    }
    if (bytes != nullptr) bytes->clear();
    size_t wanted = length;
    left_ -= wanted;
    while (wanted > 0) {
      SkipEmptySegments();
      const absl::Span<const char> piece = message_[segment_].subspan(offset_, wanted);
      if (bytes != nullptr) bytes->push_back(piece);
      offset_ += piece.size();
      wanted -= piece.size();
    }
    return absl::OkStatus();
  }

  absl::Status SkipField(uint32_t tag) {
    switch (tag & 7) {
      case kVarint:
        return Varint().status();
      case kFixed64:
        return Fixed(8).status();
      case kFixed32:
        return Fixed(4).status();
      case kBytes:
        return Bytes(nullptr);
      default:
        return Malformed(absl::StrCat("has field ", tag >> 3, " of wire type ", tag & 7,
                                      ", which proto3 does not have"));
    }
  }

 private:
  void SkipEmptySegments() {
    while (offset_ == message_[segment_].size()) {
      ++segment_;
      offset_ = 0;
    }
  }
  uint8_t Byte() {
    SkipEmptySegments();
    --left_;
    return static_cast<uint8_t>(message_[segment_][offset_++]);
  }
  absl::Status Malformed(absl::string_view problem) const {
    return absl::InvalidArgumentError(absl::StrCat("malformed chunk message: it ", problem,
                                                   " (at byte ", SegmentsSize(message_) - left_,
                                                   " of ", SegmentsSize(message_), ")"));
  }

  const Segments& message_;
  size_t segment_ = 0;
  size_t offset_ = 0;
  size_t left_;
};

// Calls `set(tag, reader)` for each field. `set` returns an error, or false for a field whose
// number or wire type it does not know.
template <typename Set>
absl::Status ForEachField(const Segments& message, Set set) {
  MessageReader reader(message);
  while (!reader.AtEnd()) {
    ASSIGN_OR_RETURN(const uint32_t tag, reader.FieldTag());
    ASSIGN_OR_RETURN(const bool known, set(tag, reader));
    if (known) continue;
    RETURN_IF_ERROR(reader.SkipField(tag));
  }
  return absl::OkStatus();
}

template <typename T>
absl::StatusOr<bool> Store(const absl::StatusOr<uint64_t>& value, T* field) {
  if (!value.ok()) return value.status();
  *field = static_cast<T>(*value);
  return true;
}

absl::StatusOr<bool> Store(const absl::StatusOr<uint64_t>& value, std::optional<uint32_t>* field) {
  if (!value.ok()) return value.status();
  *field = static_cast<uint32_t>(*value);
  return true;
}

template <typename Float>  // a float, or an optional one
absl::StatusOr<bool> StoreFloat(const absl::StatusOr<uint64_t>& bits, Float* field) {
  if (!bits.ok()) return bits.status();
  *field = std::bit_cast<float>(static_cast<uint32_t>(*bits));
  return true;
}

absl::StatusOr<bool> StoreBytes(MessageReader& reader, Segments* data) {
  RETURN_IF_ERROR(reader.Bytes(data));
  return true;
}

HeaderWriter Written(const GradientHeader& header, size_t data_bytes) {
  HeaderWriter writer;
  writer.Varint(1, header.worker);
  writer.Fixed64(2, header.incarnation);
  writer.Varint(3, header.iteration);
  writer.Varint(4, header.chunk);
  writer.Varint(5, header.base_version);
  writer.Varint(6, header.skip);
  writer.Enum(7, header.encoding);
  writer.Varint(8, header.hold);
  writer.Varint(9, header.view);
  const Hyperparameters& given = header.hyperparameters;
  writer.Float(10, given.learning_rate);
  writer.Varint(11, header.absent);
  writer.Float(12, given.momentum);
  writer.Float(13, given.beta2);
  writer.Float(14, given.weight_decay);
  writer.Float(16, given.epsilon);
  writer.Optional(17, header.assigned);
  writer.Varint(18, header.steps);
  writer.Varint(19, header.staleness);
  writer.Varint(20, header.onlooks);
  if (header.weight != 1) writer.Float(21, header.weight);
  writer.Data(data_bytes);
  return writer;
}

HeaderWriter Written(const ParameterHeader& header, size_t data_bytes) {
  HeaderWriter writer;
  writer.Varint(1, header.iteration);
  writer.Varint(2, header.chunk);
  writer.Varint(3, header.version);
  writer.Enum(4, header.encoding);
  writer.Varint(5, header.view);
  writer.Varint(6, header.unchanged);
  writer.Varint(7, header.all_absent);
  writer.Varint(8, header.assignments);
  writer.Varint(9, header.recent_assignments);
  writer.Varint(10, header.steps);
  writer.Varint(11, header.dropped);
  writer.Varint(12, header.next_iteration);
  writer.Varint(13, header.is_difference);
  writer.Data(data_bytes);
  return writer;
}

absl::StatusOr<Decoded<GradientHeader>> DecodeGradientChunk(const Segments& message) {
  Decoded<GradientHeader> out;
  GradientHeader& header = out.header;
  const auto set = [&](uint32_t tag, MessageReader& reader) -> absl::StatusOr<bool> {
    switch (tag) {
      case Tag(1, kVarint):
        return Store(reader.Varint(), &header.worker);
      case Tag(2, kFixed64):
        return Store(reader.Fixed(8), &header.incarnation);
      case Tag(3, kVarint):
        return Store(reader.Varint(), &header.iteration);
      case Tag(4, kVarint):
        return Store(reader.Varint(), &header.chunk);
      case Tag(5, kVarint):
        return Store(reader.Varint(), &header.base_version);
      case Tag(6, kVarint):
        return Store(reader.Varint(), &header.skip);
      case Tag(7, kVarint):
        return Store(reader.Varint(), &header.encoding);
      case Tag(8, kVarint):
        return Store(reader.Varint(), &header.hold);
      case Tag(9, kVarint):
        return Store(reader.Varint(), &header.view);
      case Tag(10, kFixed32):
        return StoreFloat(reader.Fixed(4), &header.hyperparameters.learning_rate);
      case Tag(11, kVarint):
        return Store(reader.Varint(), &header.absent);
      case Tag(12, kFixed32):
        return StoreFloat(reader.Fixed(4), &header.hyperparameters.momentum);
      case Tag(13, kFixed32):
        return StoreFloat(reader.Fixed(4), &header.hyperparameters.beta2);
      case Tag(14, kFixed32):
        return StoreFloat(reader.Fixed(4), &header.hyperparameters.weight_decay);
      case Tag(16, kFixed32):
        return StoreFloat(reader.Fixed(4), &header.hyperparameters.epsilon);
      case Tag(17, kVarint):
        return Store(reader.Varint(), &header.assigned);
      case Tag(18, kVarint):
        return Store(reader.Varint(), &header.steps);
      case Tag(19, kVarint):
        return Store(reader.Varint(), &header.staleness);
      case Tag(20, kVarint):
        return Store(reader.Varint(), &header.onlooks);
      case Tag(21, kFixed32):
        return StoreFloat(reader.Fixed(4), &header.weight);
      case Tag(kDataField, kBytes):
        return StoreBytes(reader, &out.data);
      default:
        return false;
    }
  };
  RETURN_IF_ERROR(ForEachField(message, set));
  return out;
}

absl::StatusOr<Decoded<ParameterHeader>> DecodeParameterChunk(const Segments& message) {
  Decoded<ParameterHeader> out;
  ParameterHeader& header = out.header;
  const auto set = [&](uint32_t tag, MessageReader& reader) -> absl::StatusOr<bool> {
    switch (tag) {
      case Tag(1, kVarint):
        return Store(reader.Varint(), &header.iteration);
      case Tag(2, kVarint):
        return Store(reader.Varint(), &header.chunk);
      case Tag(3, kVarint):
        return Store(reader.Varint(), &header.version);
      case Tag(4, kVarint):
        return Store(reader.Varint(), &header.encoding);
      case Tag(5, kVarint):
        return Store(reader.Varint(), &header.view);
      case Tag(6, kVarint):
        return Store(reader.Varint(), &header.unchanged);
      case Tag(7, kVarint):
        return Store(reader.Varint(), &header.all_absent);
      case Tag(8, kVarint):
        return Store(reader.Varint(), &header.assignments);
      case Tag(9, kVarint):
        return Store(reader.Varint(), &header.recent_assignments);
      case Tag(10, kVarint):
        return Store(reader.Varint(), &header.steps);
      case Tag(11, kVarint):
        return Store(reader.Varint(), &header.dropped);
      case Tag(12, kVarint):
        return Store(reader.Varint(), &header.next_iteration);
      case Tag(13, kVarint):
        return Store(reader.Varint(), &header.is_difference);
      case Tag(kDataField, kBytes):
        return StoreBytes(reader, &out.data);
      default:
        return false;
    }
  };
  RETURN_IF_ERROR(ForEachField(message, set));
  return out;
}

// Decodes a list of chunks. `decode` decodes one of them.
template <typename Header>
absl::StatusOr<std::vector<Decoded<Header>>> DecodeList(
    const Segments& message, absl::StatusOr<Decoded<Header>> (*decode)(const Segments&)) {
  std::vector<Decoded<Header>> out;
  const auto add = [&](uint32_t tag, MessageReader& reader) -> absl::StatusOr<bool> {
    if (tag != Tag(kChunkField, kBytes)) return false;
    if (out.size() == kMostChunks) {
      return absl::InvalidArgumentError(
          absl::StrCat("malformed chunk message: it has more than ", kMostChunks, " chunks"));
    }
    Segments chunk;
    RETURN_IF_ERROR(reader.Bytes(&chunk));
    ASSIGN_OR_RETURN(out.emplace_back(), decode(chunk));
    return true;
  };
  RETURN_IF_ERROR(ForEachField(message, add));
  if (out.empty()) return absl::InvalidArgumentError("malformed chunk message: it has no chunk");
  return out;
}

}  // namespace

size_t SegmentsSize(const Segments& segments) {
  size_t size = 0;
  for (const auto& segment : segments) size += segment.size();
  return size;
}

EncodedHeader EncodeHeader(const ParameterHeader& header, size_t data_bytes) {
  return Written(header, data_bytes).header();
}

EncodedHeader EncodeListed(const GradientHeader& header, size_t data_bytes) {
  return Written(header, data_bytes).Listed(data_bytes);
}

EncodedHeader EncodeListed(const ParameterHeader& header, size_t data_bytes) {
  return Written(header, data_bytes).Listed(data_bytes);
}

absl::StatusOr<std::vector<Decoded<GradientHeader>>> DecodeGradientChunks(const Segments& message) {
  return DecodeList(message, DecodeGradientChunk);
}

absl::StatusOr<std::vector<Decoded<ParameterHeader>>> DecodeParameterChunks(
    const Segments& message) {
  return DecodeList(message, DecodeParameterChunk);
}

}  // namespace evenshard
