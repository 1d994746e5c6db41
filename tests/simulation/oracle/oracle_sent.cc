// What is checked where stale gradients are corrected. That the update is the right one follows
// from the bits, like any other; here is whether it is corrected by what the worker had read.

#include <cstring>

#include "absl/strings/str_cat.h"
#include "common/wire/encoding.h"
#include "tests/simulation/oracle/oracle.h"

namespace evenshard {
namespace {

// Whether a worker that was sent `sent`, in an encoding or by a pull, has read `read`.
bool MayHaveRead(absl::Span<const float> sent, Encoding encoding, const std::vector<float>& read) {
  const size_t bytes = sent.size() * sizeof(float);
  if (std::memcmp(sent.data(), read.data(), bytes) == 0) return true;
  std::string data(EncodedBytes(encoding, static_cast<int64_t>(sent.size())), '\0');
  Encode(encoding, sent, data.data());
  std::vector<float> decoded(sent.size());
  Decode(encoding, {absl::MakeConstSpan(data)}, absl::MakeSpan(decoded));
  return std::memcmp(decoded.data(), read.data(), bytes) == 0;
}

}  // namespace

std::string Oracle::CheckSent(const ChunkState& before, const ChangeRecord& record,
                              const PushRecord& push, const SentParameters& sent) {
  const uint32_t rank = record.workers[0];
  const uint64_t version = record.rate.base_version;
  if (sent.Find(rank, version) == nullptr) {
    if (version != before.clock.version) ++coverage_.uncorrected;
    return "";
  }
  ++coverage_.corrected;
  const Encoding encoding = config_.proto().exchange().parameter_encoding();
  if (MayHaveRead(sent.copy(rank), encoding, push.read)) return "";
  return absl::StrCat("what is kept as version ", version, " for worker ", rank,
                      " is not what it has read");
}

}  // namespace evenshard
