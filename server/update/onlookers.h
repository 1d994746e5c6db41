#ifndef EVENSHARD_SERVER_UPDATE_ONLOOKERS_H_
#define EVENSHARD_SERVER_UPDATE_ONLOOKERS_H_

#include <algorithm>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "server/update/reply_sinks.h"

namespace evenshard {

// The workers that take no part in an iteration of a chunk, and wait for the parameters after it.
// Not thread-safe: the chunk's lock guards it.
class Onlookers {
 public:
  // Adds a worker, or a further stream of one that waits already. One that waits for another
  // iteration waits for this one instead.
  void Add(uint32_t rank, uint64_t iteration, std::shared_ptr<ReplySink> sink) {
    auto onlooker = std::find_if(waiting_.begin(), waiting_.end(), [&](const Waiting& each) {
      return each.rank == rank && each.iteration == iteration;
    });
    if (onlooker == waiting_.end()) {
      std::erase_if(waiting_, [&](const Waiting& each) { return each.rank == rank; });
      onlooker = waiting_.insert(waiting_.end(), {.rank = rank, .iteration = iteration});
    }
    AddSink(std::move(sink), onlooker->sinks);
  }

  // Removes those that wait for an iteration up to this one. Calls `release(sinks, iteration)` for
  // each.
  template <typename Release>
  void EndThrough(uint64_t iteration, Release release) {
    const auto is_over = [&](const Waiting& each) { return each.iteration <= iteration; };
    for (Waiting& each : waiting_) {
      if (is_over(each)) release(each.sinks, each.iteration);
    }
    std::erase_if(waiting_, is_over);
  }

 private:
  struct Waiting {
    uint32_t rank;
    uint64_t iteration;
    ReplySinks sinks = {};
  };

  std::vector<Waiting> waiting_;
};

}  // namespace evenshard

#endif  // EVENSHARD_SERVER_UPDATE_ONLOOKERS_H_
