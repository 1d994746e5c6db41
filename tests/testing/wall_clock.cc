// Linked into a program, lets the time of day that it reads differ from the kernel's, as if
// somebody set the clock meanwhile. Whoever waits until a time of day then waits too short, or for
// an hour.

#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#include <atomic>

namespace {

constexpr int kHour = 3600;

#ifdef EVENSHARD_WALL_CLOCK_LEAPS
// An hour later at every look: what has a deadline finds that it has passed.
int Difference() {
  static std::atomic<int> looks{0};
  return ++looks * kHour;
}
#else
// An hour behind the kernel's: a deadline for the kernel has passed before the wait begins.
int Difference() { return -kHour; }
#endif

}  // namespace

// In place of the C library's; Abseil's Mutex asks the second.
extern "C" int clock_gettime(clockid_t id, timespec* time) noexcept {
  const int result = static_cast<int>(syscall(SYS_clock_gettime, id, time));
  if (result == 0 && id == CLOCK_REALTIME) time->tv_sec += Difference();
  return result;
}

extern "C" int gettimeofday(timeval* time, void*) noexcept {
  timespec now = {};
  const int result = clock_gettime(CLOCK_REALTIME, &now);
  *time = {.tv_sec = now.tv_sec, .tv_usec = now.tv_nsec / 1000};
  return result;
}
