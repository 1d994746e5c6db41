#ifndef EVENSHARD_TESTS_TESTING_PROCESS_OF_NOBODY_H_
#define EVENSHARD_TESTS_TESTING_PROCESS_OF_NOBODY_H_

#include <sys/types.h>

#include <functional>
#include <optional>
#include <string>

namespace evenshard {

// A process of another user. It calls a function, and stays until this object's end. Only root,
// outside of a sandbox, can start one. The function must not wait for a thread of this process.
class ProcessOfNobody {
 public:
  explicit ProcessOfNobody(const std::function<std::string()>& act);
  ProcessOfNobody(const ProcessOfNobody&) = delete;
  ~ProcessOfNobody();

  // What the function has returned, or nullopt if there is no such process.
  const std::optional<std::string>& result() const { return result_; }

 private:
  pid_t process_ = -1;
  std::optional<std::string> result_;
};

}  // namespace evenshard

#endif  // EVENSHARD_TESTS_TESTING_PROCESS_OF_NOBODY_H_
