#ifndef EVENSHARD_SERVER_STORE_REGISTERED_STATES_H_
#define EVENSHARD_SERVER_STORE_REGISTERED_STATES_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "common/checkpoint/states_by_name.h"

namespace evenshard {

// The latest registered states by exchange: what counts before the first push of that exchange.
// Every worker that registers gives its own before it pushes, and all must be the same. So a slot
// that has been pushed to at an exchange knows the state, if there is one. Thread-safe.
class RegisteredStates {
 public:
  // The most bytes of names and texts together.
  static constexpr size_t kMaxBytes = size_t{256} << 10;
  // How many exchanges are kept. A worker asks for that which comes next for it, a checkpoint for
  // the one at which it cuts, before any worker has come further than the next one.
  static constexpr size_t kKept = 2;

  // `worker` has this before `exchange`; nullopt: a checkpoint has it, and possibly nothing.
  // Errors: INVALID_ARGUMENT if it is too large; FAILED_PRECONDITION, with the name
  // (DifferingStateOf), if another worker's differs.
  absl::Status Keep(std::optional<uint32_t> worker, uint64_t exchange, StatesByName state);

  // What is kept for an exchange, or nullopt.
  std::optional<StatesByName> At(uint64_t exchange) const;

  // The same for a worker that has to go on from there. If every one of the ranks that `may_give`
  // it asks for it, nobody has it, and it is lost from now on. Errors: UNAVAILABLE then, since the
  // run has to go back.
  absl::StatusOr<std::optional<StatesByName>> Take(uint32_t worker, uint64_t exchange,
                                                   const std::vector<uint32_t>& may_give);

  // Whether nobody has what a worker has asked for.
  bool is_lost() const {
    absl::MutexLock lock(&mutex_);
    return is_lost_;
  }
  // Whether anything has been kept.
  bool is_used() const {
    absl::MutexLock lock(&mutex_);
    return is_used_;
  }

 private:
  struct Entry {
    std::optional<uint32_t> worker;  // who gave it first
    StatesByName state;
  };

  mutable absl::Mutex mutex_;                                 // no other lock is acquired under it
  std::map<uint64_t, Entry> states_ ABSL_GUARDED_BY(mutex_);  // by exchange
  bool is_used_ ABSL_GUARDED_BY(mutex_) = false;
  bool is_lost_ ABSL_GUARDED_BY(mutex_) = false;
  uint64_t asked_for_ ABSL_GUARDED_BY(mutex_) = 0;          // the exchange
  std::set<uint32_t> asking_ ABSL_GUARDED_BY(mutex_) = {};  // the workers that ask for it
};

}  // namespace evenshard

#endif  // EVENSHARD_SERVER_STORE_REGISTERED_STATES_H_
