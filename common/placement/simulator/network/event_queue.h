#ifndef EVENSHARD_COMMON_PLACEMENT_SIMULATOR_NETWORK_EVENT_QUEUE_H_
#define EVENSHARD_COMMON_PLACEMENT_SIMULATOR_NETWORK_EVENT_QUEUE_H_

#include <cstdint>
#include <queue>
#include <vector>

namespace evenshard {

// The queue of events in simulated time, in seconds. Events happen one after another. Those of one
// instant happen in the order in which they were scheduled, so that equal runs give equal results.
// Not thread-safe.
class EventQueue {
 public:
  class Target {
   public:
    virtual ~Target() = default;
    // `kind` and `index` are those that the target passed when it scheduled the event.
    virtual void OnEvent(int kind, int index) = 0;
  };

  double now() const { return now_; }

  // Schedules an event. `target` must live until it has happened. REQUIRES: time >= now().
  void At(double time, Target* target, int kind, int index) {
    events_.push({time, sequence_++, target, kind, index});
  }

  // Schedules an event that happens after all other events of this instant.
  void AtEndOfInstant(Target* target, int kind, int index) {
    last_.push_back({now_, 0, target, kind, index});
  }

  // Lets the next event happen. Returns false if there is none.
  bool RunNext() {
    if (!last_.empty() && (events_.empty() || events_.top().time > now_)) {
      std::vector<Event> last;
      last.swap(last_);
      for (const Event& event : last) event.target->OnEvent(event.kind, event.index);
      return true;
    }
    if (events_.empty()) return false;
    const Event event = events_.top();
    events_.pop();
    now_ = event.time;
    event.target->OnEvent(event.kind, event.index);
    return true;
  }

 private:
  struct Event {
    double time;
    uint64_t sequence;
    Target* target;
    int kind;
    int index;

    bool operator<(const Event& other) const {  // puts the first event at the top of the queue
      return time > other.time || (time == other.time && sequence > other.sequence);
    }
  };

  double now_ = 0;
  uint64_t sequence_ = 0;
  std::priority_queue<Event> events_;
  std::vector<Event> last_;
};

}  // namespace evenshard

#endif  // EVENSHARD_COMMON_PLACEMENT_SIMULATOR_NETWORK_EVENT_QUEUE_H_
