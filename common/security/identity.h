#ifndef EVENSHARD_COMMON_SECURITY_IDENTITY_H_
#define EVENSHARD_COMMON_SECURITY_IDENTITY_H_

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"

// Who the processes of a run are. A certificate says it by the URIs of its subject alternative name
// (RFC 5280, 4.2.1.6), of which each is one of
//
//   evenshard://RUN/worker/0-3,7   the workers of these ranks
//   evenshard://RUN/shard/0        the ps processes with these indices (ps --shard)
//   evenshard://RUN/operator       may end the run and save its model
//   evenshard://RUN/reader         may read the model and the statistics

namespace evenshard {

enum class Role { kWorker, kShard, kOperator, kReader };
inline constexpr Role kRoles[] = {Role::kWorker, Role::kShard, Role::kOperator, Role::kReader};

// "worker", "shard", "operator" or "reader".
absl::string_view RoleName(Role role);

inline constexpr char kAllowedRunNames[] = "1 to 100 letters, digits, '-', '_' and '.'";
bool IsRunName(absl::string_view text);

// One process: a worker or a shard by its number, or any operator or reader.
struct ProcessName {
  Role role = Role::kReader;
  int index = -1;  // of a worker or shard; -1: any of them

  // Parses "worker-3", "shard-2", "operator" or "reader".
  static std::optional<ProcessName> Parse(absl::string_view text);
  std::string ToString() const;
};
inline constexpr char kAllowedProcessNames[] =
    "worker-N, shard-N, operator or reader, with N from 0 to 999999";

// Which processes of a run somebody may be.
class Identity {
 public:
  // Reads the names of a certificate. URIs that do not begin with evenshard:// are passed over, and
  // those of other runs give nothing. Errors: INVALID_ARGUMENT for one of this run that is none of
  // the four above.
  static absl::StatusOr<Identity> Of(absl::Span<const std::string> uris, absl::string_view run);
  // `why`: it has no role, for ToString.
  static Identity Nobody(absl::string_view why);
  // May be every process: whoever reaches one that asks nobody who they are.
  static Identity Anybody();

  // Whether it has the role, of any number.
  bool Has(Role role) const;
  // Whether it may be this process; with index -1, any of the role.
  bool MayBe(const ProcessName& process) const;

  // "worker 0-3, operator", or "nobody", with the reason in brackets if there is one.
  std::string ToString() const;

 private:
  struct Entry {
    Role role;
    std::vector<std::pair<int, int>> ranges = {};  // first and last, of workers and shards
  };
  static std::optional<Entry> ParseEntry(absl::string_view path);

  bool is_anybody_ = false;
  std::string why_nobody_;
  std::vector<Entry> entries_;
};

// The URI for a certificate. REQUIRES: IsRunName(run), and an index for workers and shards.
std::string UriOf(absl::string_view run, const ProcessName& process);

}  // namespace evenshard

#endif  // EVENSHARD_COMMON_SECURITY_IDENTITY_H_
