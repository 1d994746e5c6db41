#ifndef EVENSHARD_SERVER_UPDATE_ONLOOKERS_H_
#define EVENSHARD_SERVER_UPDATE_ONLOOKERS_H_

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <memory>
#include <utility>
#include <vector>

#include "server/update/reply_sinks.h"

namespace evenshard {

// The workers that take no part in an iteration of a chunk, and wait for the parameters after it.
// Not thread-safe: the chunk's lock guards it.
class Onlookers {
 public:
  struct Onlooker {
    uint32_t rank;
    uint64_t iteration;
    ReplySinks sinks = {};
  };

  // Adds a worker, or a further stream of one that waits already. One that waits for another
  // iteration waits for this one instead.
  void Add(uint32_t rank, uint64_t iteration, std::shared_ptr<ReplySink> sink) {
    auto onlooker = std::find_if(waiting_.begin(), waiting_.end(), [&](const Onlooker& each) {
      return each.rank == rank && each.iteration == iteration;
    });
    if (onlooker == waiting_.end()) {
      std::erase_if(waiting_, [&](const Onlooker& each) { return each.rank == rank; });
      onlooker = waiting_.insert(waiting_.end(), {.rank = rank, .iteration = iteration});
    }
    AddSink(std::move(sink), onlooker->sinks);
  }

  // Removes and returns those that wait for an iteration up to this one.
  std::vector<Onlooker> TakeThrough(uint64_t iteration) {
    const auto later =
        std::partition(waiting_.begin(), waiting_.end(),
                       [iteration](const Onlooker& each) { return each.iteration <= iteration; });
    std::vector<Onlooker> over(std::make_move_iterator(waiting_.begin()),
                               std::make_move_iterator(later));
    waiting_.erase(waiting_.begin(), later);
    return over;
  }

 private:
  std::vector<Onlooker> waiting_;
};

}  // namespace evenshard

#endif  // EVENSHARD_SERVER_UPDATE_ONLOOKERS_H_
