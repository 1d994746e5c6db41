#ifndef EVENSHARD_TESTS_TESTING_UNIX_SHARDS_H_
#define EVENSHARD_TESTS_TESTING_UNIX_SHARDS_H_

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "tests/testing/scratch_folder.h"

namespace evenshard {

// Addresses of shards that are known before the shards are up, which port 0 is not: unix sockets in
// a folder of this object's.
class UnixShards {
 public:
  explicit UnixShards(int shards) {
    std::vector<std::string> each;
    for (int i = 0; i < shards; ++i) {
      each.push_back(absl::StrCat("{address: 'unix:", folder_.Path(absl::StrCat(i)), "'}"));
    }
    overrides_ = {absl::StrCat("shard=[", absl::StrJoin(each, ", "), "]")};
  }

  const std::vector<std::string>& overrides() const { return overrides_; }

 private:
  const ScratchFolder folder_;
  std::vector<std::string> overrides_;
};

}  // namespace evenshard

#endif  // EVENSHARD_TESTS_TESTING_UNIX_SHARDS_H_
