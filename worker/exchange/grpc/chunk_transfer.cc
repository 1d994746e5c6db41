#include "worker/exchange/grpc/chunk_transfer.h"

#include <cstring>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/optimizer/aggregate.h"
#include "common/wire/encoding.h"
#include "common/wire/message_slices.h"

namespace evenshard {

ChunkTransfer::ChunkTransfer(const PlannedConfig* config, ExchangeCore* core,
                             std::unique_ptr<GradientEncoder> encoder,
                             OnWritten on_parameters_written)
    : config_(*config),
      core_(*core),
      encoder_(std::move(encoder)),
      on_parameters_written_(std::move(on_parameters_written)),
      shares_(config->shards()) {}

void ChunkTransfer::SetBuffers(absl::Span<const float> gradients, absl::Span<float> parameters) {
  gradients_ = gradients;
  parameters_ = parameters;
}

bool ChunkTransfer::Append(const GradientHeader& header, std::vector<grpc::Slice>* message) {
  const Chunk& chunk = config_.plan().chunks()[header.chunk];
  const bool shares = shares_[chunk.shard].load(std::memory_order_relaxed);
  std::optional<grpc::Slice> data;
  if (header.has_data() && !shares) {
    const auto encoding = static_cast<Encoding>(header.encoding);
    const char* const gradients = reinterpret_cast<const char*>(gradients_.data());
    const PlannedConfig::Place place = config_.GradientPlace(header.assigned.has_value(), chunk);
    if (!encoder_->Encodes(header)) {
      data = lent_.Lend({gradients + place.begin, static_cast<size_t>(place.bytes)});
    } else {
      data.emplace(static_cast<size_t>(EncodedBytes(encoding, chunk.size)));
      // Writing is safe because nobody else refers to the slice yet.
      char* const bytes = reinterpret_cast<char*>(const_cast<uint8_t*>(data->begin()));
      if (!encoder_->Encode(header, gradients, bytes)) return false;
    }
  }
  const EncodedHeader encoded = EncodeListed(header, data.has_value() ? data->size() : 0);
  message->emplace_back(encoded.data(), encoded.size());
  if (data.has_value()) message->push_back(*std::move(data));
  return true;
}

std::vector<GradientHeader> ChunkTransfer::NextGradients(int slot, int stream,
                                                         grpc::ByteBuffer* message) {
  // The answer to an earlier push of the chunks may come at any time. Until this one is encoded or
  // lent, it must not let the gradients change.
  const LentMemory::Hold hold(&lent_);
  const bool shares = shares_[slot].load(std::memory_order_relaxed);
  std::vector<GradientHeader> headers;
  std::vector<grpc::Slice> slices;
  do {
    headers = core_.round().Take(slot, stream, /*has_data=*/!shares);
    if (headers.empty()) break;
    std::erase_if(headers, [&](const GradientHeader& header) { return !Append(header, &slices); });
  } while (headers.empty());
  *message = grpc::ByteBuffer(slices.data(), slices.size());
  return headers;
}

void ChunkTransfer::GradientsSent(absl::Span<const GradientHeader> headers) {
  core_.round().Sent(headers);
}

absl::Status ChunkTransfer::CheckAnswer(const Chunk& chunk,
                                        const Decoded<ParameterHeader>& answer) const {
  const Encoding encoding = answer.header.is_difference ? config_.AnswerEncoding(chunk)
                                                        : config_.ParameterEncoding(chunk);
  const bool may_differ = config_.proto().exchange().has_update_encoding();
  if (answer.header.encoding != encoding || (answer.header.is_difference && !may_differ)) {
    return absl::InternalError(absl::StrCat(
        "it answered chunk ", chunk.id, " as ", EncodingName(answer.header.encoding),
        "; the run's encoding of its ", answer.header.is_difference ? "updates" : "parameters",
        " is ", EncodingName(encoding)));
  }
  const size_t bytes = SegmentsSize(answer.data);
  const bool shares = shares_[chunk.shard].load(std::memory_order_relaxed);
  const size_t expected =
      shares || !answer.header.has_data() ? 0 : EncodedBytes(encoding, chunk.size);
  if (bytes != expected) {
    return absl::InternalError(absl::StrCat("it answered chunk ", chunk.id, " with ", bytes,
                                            " bytes instead of ", expected));
  }
  return absl::OkStatus();
}

absl::Status ChunkTransfer::CheckRange(const Chunk& chunk, Encoding encoding,
                                       const Segments& data) const {
  if (encoding == FLOAT32 || !config_.MustBeFinite(chunk)) return absl::OkStatus();
  // The shard encodes any value, so a parameter that the encoding cannot represent shows up here as
  // one that is not finite.
  const int64_t bad = FindNonFinite(encoding, data, chunk.size);
  if (bad < 0) return absl::OkStatus();
  return absl::OutOfRangeError(absl::StrCat(
      "it answered with a parameter that is not finite", RangeOf(encoding), ": ",
      config_.TensorOf(chunk).name, " element ", chunk.begin + bad, " (chunk ", chunk.id, ")"));
}

absl::Status ChunkTransfer::TakeParameters(int slot, const Segments& message) {
  ASSIGN_OR_RETURN(const std::vector<Decoded<ParameterHeader>> answers,
                   DecodeParameterChunks(message));
  for (const Decoded<ParameterHeader>& answer : answers) {
    RETURN_IF_ERROR(TakeAnswer(slot, answer));
  }
  return absl::OkStatus();
}

absl::Status ChunkTransfer::TakeAnswer(int slot, const Decoded<ParameterHeader>& answer) {
  ASSIGN_OR_RETURN(const bool counts, core_.round().Claim(slot, answer.header));
  if (!counts) return absl::OkStatus();
  const Chunk& chunk = config_.plan().chunks()[answer.header.chunk];
  RETURN_IF_ERROR(CheckAnswer(chunk, answer));
  if (answer.header.has_data()) {
    const auto encoding = static_cast<Encoding>(answer.header.encoding);
    const PlannedConfig::Place place = config_.ParameterPlace(chunk);
    char* const to = reinterpret_cast<char*>(parameters_.data()) + place.begin;
    const bool shares = shares_[chunk.shard].load(std::memory_order_relaxed);
    RETURN_IF_ERROR(CheckRange(
        chunk, encoding, shares ? Segments{{to, static_cast<size_t>(place.bytes)}} : answer.data));
    if (answer.header.is_difference) {
      ForEachDecodedRun(encoding, answer.data, chunk.size,
                        [&](int64_t first, const UnalignedFloat* changes, int64_t count) {
                          AddGradient(reinterpret_cast<float*>(to) + first, changes, count);
                        });
    } else if (place.type == encoding) {
      Copy(answer.data, to);
    } else {
      Decode(encoding, answer.data,
             {reinterpret_cast<float*>(to), static_cast<size_t>(chunk.size)});
    }
    on_parameters_written_(chunk.model_offset, chunk.size);
  }
  if (!gradients_.empty()) {
    encoder_->Settle(chunk, answer.header.iteration,
                     reinterpret_cast<const char*>(gradients_.data()), answer.header.dropped);
  }
  if (answer.header.dropped) {
    core_.round().Dropped(chunk.id);
  } else {
    core_.round().Answered(chunk.id, answer.header.version);
  }
  return absl::OkStatus();
}

absl::Status ChunkTransfer::TakePulled(const Chunk& chunk, const ParameterChunk& message,
                                       absl::Span<float> parameters) {
  const PlannedConfig::Place place = config_.ParameterPlace(chunk);
  char* const to = reinterpret_cast<char*>(parameters.data()) + place.begin;
  absl::Span<float> floats;
  if (place.type == FLOAT32) {
    floats = {reinterpret_cast<float*>(to), static_cast<size_t>(chunk.size)};
    std::memcpy(to, message.data().data(), message.data().size());
  } else {
    std::vector<float> masters(chunk.size);
    std::memcpy(masters.data(), message.data().data(), message.data().size());
    Encode(place.type, masters, to);
    RETURN_IF_ERROR(CheckRange(chunk, place.type, {{to, static_cast<size_t>(place.bytes)}}));
  }
  core_.round().TakePulled(chunk.id, message.version(), message.iteration(), floats);
  on_parameters_written_(chunk.model_offset, chunk.size);
  return absl::OkStatus();
}

void ChunkTransfer::Joined(int slot, uint64_t attempt, const JoinResponse& response) {
  shares_[slot] = response.shared_buffers();
  core_.Connected(slot, attempt, response);
}

void ChunkTransfer::Ended(int slot, uint64_t attempt, const absl::Status& status) {
  core_.Broken(slot, attempt, status);
}

}  // namespace evenshard
