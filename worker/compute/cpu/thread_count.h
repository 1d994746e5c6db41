#ifndef EVENSHARD_WORKER_COMPUTE_CPU_THREAD_COUNT_H_
#define EVENSHARD_WORKER_COMPUTE_CPU_THREAD_COUNT_H_

// Entry points of the OpenMP run-time library, as the OpenMP specification defines them. They are
// declared here because <omp.h> belongs to a compiler, while the run-time library must be the one
// that oneDNN is linked against (libgomp).
extern "C" {
void omp_set_num_threads(int threads);
int omp_get_max_threads(void);
}

namespace evenshard {

// Makes oneDNN use `threads` threads in calls from the current thread during the scope.
//
// Debian's oneDNN uses OpenMP, whose setting belongs to the calling thread and defaults to the
// number of processors. A primitive divides its work when it is made, so it must run with the
// number of threads that it was made with.
class ThreadCountScope {
 public:
  explicit ThreadCountScope(int threads) : before_(omp_get_max_threads()) {
    omp_set_num_threads(threads);
  }
  ~ThreadCountScope() { omp_set_num_threads(before_); }
  ThreadCountScope(const ThreadCountScope&) = delete;
  ThreadCountScope& operator=(const ThreadCountScope&) = delete;

 private:
  const int before_;
};

}  // namespace evenshard

#endif  // EVENSHARD_WORKER_COMPUTE_CPU_THREAD_COUNT_H_
