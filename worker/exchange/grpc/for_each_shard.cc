#include "worker/exchange/grpc/for_each_shard.h"

#include <thread>
#include <vector>

#include "absl/strings/str_join.h"
#include "absl/strings/string_view.h"
#include "common/base/error_kind.h"

namespace evenshard {

absl::Status ForEachShard(int shards, const std::function<absl::Status(int)>& call) {
  std::vector<absl::Status> results(shards, absl::UnknownError("the call did not run"));
  std::vector<std::thread> threads;
  for (int shard = 0; shard < shards; ++shard) {
    threads.emplace_back([&, shard] { results[shard] = call(shard); });
  }
  for (std::thread& thread : threads) thread.join();
  absl::Status first;
  std::vector<absl::string_view> messages;
  for (const absl::Status& result : results) {
    if (result.ok()) continue;
    first.Update(result);
    messages.push_back(result.message());
  }
  return first.ok() ? first : Reworded(first, absl::StrJoin(messages, "; "));
}

}  // namespace evenshard
