#ifndef EVENSHARD_COMMON_BASE_DOUBLING_NOTICE_H_
#define EVENSHARD_COMMON_BASE_DOUBLING_NOTICE_H_

#include <utility>

namespace evenshard {

// Decides when the log mentions something that grows, such as a wait or a number of errors: when it
// reaches a first size, whenever it has doubled since it was last mentioned, and when it is over.
// `T` is a number or an absl::Duration. Not thread-safe.
template <typename T>
class DoublingNotice {
 public:
  explicit DoublingNotice(T first) : next_(first) {}

  // Returns whether to mention that it has reached `size`, and assumes that the caller does so.
  bool Grew(T size) {
    if (size < next_) return false;
    next_ = 2 * size;
    return mentioned_ = true;
  }

  // Returns whether to mention that it is over: true if it was mentioned. The next growth is
  // mentioned only when it reaches twice the size of the last mention; a new object begins anew.
  bool Over() { return std::exchange(mentioned_, false); }

 private:
  T next_;  // the size of the next mention
  bool mentioned_ = false;
};

}  // namespace evenshard

#endif  // EVENSHARD_COMMON_BASE_DOUBLING_NOTICE_H_
