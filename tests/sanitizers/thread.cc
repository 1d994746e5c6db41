// What ThreadSanitizer has to be told of Abseil and gRPC. The system's libraries are not compiled
// for it, so it sees neither their locks nor how gRPC hands objects from one thread to another, and
// would report a race wherever the two threads are ours. The functions in this file take the place
// of the libraries' own, which they call, and say what happens before what, as the libraries
// promise it and no further: what we ourselves leave unordered is still reported.

#include <dlfcn.h>
#include <grpc/grpc.h>
#include <link.h>
#include <sanitizer/tsan_interface.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>
#include <functional>
#include <thread>
#include <utility>

#include "absl/synchronization/blocking_counter.h"
#include "absl/synchronization/mutex.h"
#include "absl/synchronization/notification.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "grpcpp/alarm.h"
#include "grpcpp/support/server_callback.h"

namespace {

// The library's function that `function`, of this file, stands before.
void* Overridden(void* function) {
  Dl_info info;
  dladdr(function, &info);
  return dlsym(RTLD_NEXT, info.dli_sname);
}

// Abseil makes the lock of its time zones when they are first used. Here that is before there is
// any other thread, which would seem to use the lock while it is made.
[[maybe_unused]] const absl::TimeZone kLocalTime = absl::LocalTimeZone();

template <typename Function>
Function* Overridden(Function* function) {
  return reinterpret_cast<Function*>(Overridden(reinterpret_cast<void*>(function)));
}

// A method as the function that it is to a linker.
template <typename Method>
struct AsFunction;
template <typename Result, typename Class, typename... Parameters>
struct AsFunction<Result (Class::*)(Parameters...)> {
  using Type = Result(Class*, Parameters...);
};
template <typename Result, typename Class, typename... Parameters>
struct AsFunction<Result (Class::*)(Parameters...) const> {
  using Type = Result(const Class*, Parameters...);
};

// Calls the library's `method`, which is not virtual.
template <auto method, typename Object, typename... Arguments>
auto Call(Object* object, const Arguments&... arguments) {
  static auto* const overridden = [] {
    auto copy = method;
    typename AsFunction<decltype(method)>::Type* function = nullptr;
    std::memcpy(&function, &copy, sizeof(function));
    return Overridden(function);
  }();
  return overridden(object, arguments...);
}

}  // namespace

namespace absl {
ABSL_NAMESPACE_BEGIN
namespace {

// Runs `wait`, which gives `mutex` back and takes it again. What it reads in the meantime does not
// count: a Condition may be evaluated by whichever thread holds the mutex.
template <typename Wait>
auto Waiting(void* mutex, const Wait& wait) {
  struct Scope {
    explicit Scope(void* mutex) : mutex(mutex) { __tsan_mutex_pre_unlock(mutex, 0); }
    ~Scope() {
      __tsan_mutex_post_unlock(mutex, 0);
      __tsan_mutex_pre_lock(mutex, 0);
      __tsan_mutex_post_lock(mutex, 0, 0);
    }
    void* const mutex;
  } const scope(mutex);
  return wait();
}

}  // namespace

void Mutex::Lock() {
  __tsan_mutex_pre_lock(this, 0);
  Call<&Mutex::Lock>(this);
  __tsan_mutex_post_lock(this, 0, 0);
}

bool Mutex::TryLock() {
  __tsan_mutex_pre_lock(this, __tsan_mutex_try_lock);
  const bool locked = Call<&Mutex::TryLock>(this);
  __tsan_mutex_post_lock(
      this, locked ? __tsan_mutex_try_lock : __tsan_mutex_try_lock | __tsan_mutex_try_lock_failed,
      0);
  return locked;
}

void Mutex::Unlock() {
  __tsan_mutex_pre_unlock(this, 0);
  Call<&Mutex::Unlock>(this);
  __tsan_mutex_post_unlock(this, 0);
}

void Mutex::ReaderLock() {
  __tsan_mutex_pre_lock(this, __tsan_mutex_read_lock);
  Call<&Mutex::ReaderLock>(this);
  __tsan_mutex_post_lock(this, __tsan_mutex_read_lock, 0);
}

void Mutex::ReaderUnlock() {
  __tsan_mutex_pre_unlock(this, __tsan_mutex_read_lock);
  Call<&Mutex::ReaderUnlock>(this);
  __tsan_mutex_post_unlock(this, __tsan_mutex_read_lock);
}

// REQUIRES of the waits: the mutex is held exclusively.
void Mutex::Await(const Condition& condition) {
  if (condition.Eval()) return;
  Waiting(this, [&] { Call<&Mutex::Await>(this, condition); });
}

bool Mutex::AwaitWithDeadline(const Condition& condition, Time deadline) {
  if (condition.Eval()) return true;
  return Waiting(this, [&] { return Call<&Mutex::AwaitWithDeadline>(this, condition, deadline); });
}

bool Mutex::AwaitWithTimeout(const Condition& condition, Duration timeout) {
  return AwaitWithDeadline(condition, Now() + timeout);
}

void Mutex::LockWhen(const Condition& condition) {
  Lock();
  Await(condition);
}

bool Mutex::LockWhenWithDeadline(const Condition& condition, Time deadline) {
  Lock();
  return AwaitWithDeadline(condition, deadline);
}

bool Mutex::LockWhenWithTimeout(const Condition& condition, Duration timeout) {
  return LockWhenWithDeadline(condition, Now() + timeout);
}

void CondVar::Wait(Mutex* mutex) {
  Waiting(mutex, [&] { Call<&CondVar::Wait>(this, mutex); });
}

bool CondVar::WaitWithDeadline(Mutex* mutex, Time deadline) {
  return Waiting(mutex, [&] { return Call<&CondVar::WaitWithDeadline>(this, mutex, deadline); });
}

bool CondVar::WaitWithTimeout(Mutex* mutex, Duration timeout) {
  return WaitWithDeadline(mutex, Now() + timeout);
}

void Notification::Notify() {
  __tsan_release(&notified_yet_);  // HasBeenNotified, which is inline, acquires it
  Call<&Notification::Notify>(this);
}

void Notification::WaitForNotification() const {
  Call<&Notification::WaitForNotification>(this);
  __tsan_acquire(const_cast<std::atomic<bool>*>(&notified_yet_));
}

bool Notification::WaitForNotificationWithTimeout(Duration timeout) const {
  const bool notified = Call<&Notification::WaitForNotificationWithTimeout>(this, timeout);
  if (notified) __tsan_acquire(const_cast<std::atomic<bool>*>(&notified_yet_));
  return notified;
}

bool BlockingCounter::DecrementCount() {
  __tsan_release(this);
  return Call<&BlockingCounter::DecrementCount>(this);
}

void BlockingCounter::Wait() {
  Call<&BlockingCounter::Wait>(this);
  __tsan_acquire(this);
}

ABSL_NAMESPACE_END
}  // namespace absl

// OnDone comes after all other callbacks, also where the library's own is the last to be counted.
void grpc::internal::ServerCallbackCall::ScheduleOnDone(bool inline_ondone) {
  __tsan_acquire(&callbacks_outstanding_);
  ::Call<&ServerCallbackCall::ScheduleOnDone>(this, inline_ondone);
}

// The library runs OnCancel on a thread of its own as well, and counts its end where the sanitizer
// does not see it.
void grpc::internal::ServerCallbackCall::CallOnCancel(ServerReactor* reactor) {
  __tsan_acquire(&on_cancel_conditions_remaining_);  // one of them is that there is a reactor
  Ref();
  std::thread([this, reactor] {
    reactor->OnCancel();
    MaybeDone(/*inline_ondone=*/true);
  }).detach();
}

// What an alarm has run is freed after that, by whoever gives up the alarm last. Here it is freed
// at once, since the sanitizer does not see who that is.
void grpc::Alarm::SetInternal(gpr_timespec deadline, std::function<void(bool)> run) {
  constexpr auto kSet =
      static_cast<void (Alarm::*)(gpr_timespec, std::function<void(bool)>)>(&Alarm::SetInternal);
  auto* const held = new std::function<void(bool)>(std::move(run));
  const std::function<void(bool)> run_and_free = [held](bool ok) {
    (*held)(ok);
    delete held;
  };
  ::Call<kSet>(this, deadline, run_and_free);
}

namespace {

using Functor = grpc_completion_queue_functor;
using Run = void (*)(Functor*, int);

// Whether `address` is one of code.
bool IsCode(const void* address) {
  const auto contains = [](dl_phdr_info* module, size_t, void* address) -> int {
    return std::any_of(
        module->dlpi_phdr, module->dlpi_phdr + module->dlpi_phnum, [&](const auto& segment) {
          const uintptr_t offset =
              reinterpret_cast<uintptr_t>(address) - module->dlpi_addr - segment.p_vaddr;
          return segment.p_type == PT_LOAD && (segment.p_flags & PF_X) != 0 &&
                 offset < segment.p_memsz;
        });
  };
  return dl_iterate_phdr(contains, const_cast<void*>(address)) != 0;
}

// What gRPC's own functors run; each has a function of ours that stands before it.
std::array<std::atomic<Run>, 8> runs;

template <size_t place>
void AcquireAndRun(Functor* functor, int ok) {
  __tsan_acquire(functor);
  runs[place].load(std::memory_order_relaxed)(functor, ok);
}

template <size_t... places>
constexpr std::array<Run, sizeof...(places)> MakeStandIns(std::index_sequence<places...>) {
  return {&AcquireAndRun<places>...};
}
constexpr auto kStandIns = MakeStandIns(std::make_index_sequence<runs.size()>());

// What stands before `run`; `run` itself where it does already.
Run StandInOf(Run run) {
  if (std::find(kStandIns.begin(), kStandIns.end(), run) != kStandIns.end()) return run;
  for (size_t i = 0;; ++i) {
    Run known = nullptr;
    if (runs[i].compare_exchange_strong(known, run, std::memory_order_relaxed) || known == run) {
      return kStandIns[i];
    }
  }
}

// Released by a server that starts, acquired by every call to it; and the other way round at its
// end.
char server_start;
char call_end;

// Memory lent to gRPC, with what it runs when it gives it back.
struct Lent {
  void (*give_back)(void*);
  void* argument;
};

}  // namespace

extern "C" {

// What was done before an operation was started happens before its callback.
grpc_call_error grpc_call_start_batch(grpc_call* call, const grpc_op* ops, size_t count, void* tag,
                                      void* reserved) {
  static auto* const overridden = Overridden(&grpc_call_start_batch);
  // A tag of the callback interface is a functor, with a pointer to code; others are C++ objects,
  // with one to a table of virtual functions.
  auto* const functor = static_cast<Functor*>(tag);
  if (IsCode(reinterpret_cast<void*>(functor->functor_run))) {
    functor->functor_run = StandInOf(functor->functor_run);
  }
  __tsan_release(functor);
  return overridden(call, ops, count, tag, reserved);
}

void grpc_server_start(grpc_server* server) {
  static auto* const overridden = Overridden(&grpc_server_start);
  __tsan_release(&server_start);
  overridden(server);
}

// The first that a server does with a new call.
void grpc_call_ref(grpc_call* call) {
  static auto* const overridden = Overridden(&grpc_call_ref);
  __tsan_acquire(&server_start);
  overridden(call);
}

// The last that a server does with a call, after OnDone.
void grpc_call_unref(grpc_call* call) {
  static auto* const overridden = Overridden(&grpc_call_unref);
  __tsan_release(&call_end);
  overridden(call);
}

void grpc_server_destroy(grpc_server* server) {
  static auto* const overridden = Overridden(&grpc_server_destroy);
  overridden(server);
  __tsan_acquire(&call_end);
}

// What was written before memory was lent happens before it is given back.
grpc_slice grpc_slice_new_with_user_data(void* data, size_t size, void (*destroy)(void*),
                                         void* argument) {
  static auto* const overridden = Overridden(&grpc_slice_new_with_user_data);
  auto* const lent = new Lent{destroy, argument};
  __tsan_release(lent);
  return overridden(
      data, size,
      [](void* lent) {
        __tsan_acquire(lent);
        const Lent ended = *static_cast<Lent*>(lent);
        delete static_cast<Lent*>(lent);
        ended.give_back(ended.argument);
      },
      lent);
}

// gRPC closes the connections that we accept, which is not seen like all that it does. So that one
// is accepted is not to be seen either: with its number another thread may open something next.
int accept4(int socket, sockaddr* address, socklen_t* size, int flags) {
  return static_cast<int>(syscall(SYS_accept4, socket, address, size, flags));
}

// More memory than there is must be refused, and a process that ends must not sleep first, which
// would look like silence: both as it is without the sanitizer.
const char* __tsan_default_options() {
  return "second_deadlock_stack=1:allocator_may_return_null=1:atexit_sleep_ms=0";
}

// gRPC orders what its own threads do to memory by atomics, which are not seen: what it allocates,
// fills and frees, itself and in the libraries that it calls, is not looked at. The same goes for
// the text of a status, for the last of the slices of a buffer, which frees it, for a server's
// stream, which gRPC frees where the last operation ends, for Abseil's own list of the locks that
// are held and its pool of random numbers, for spdlog's registry and a default text of protobuf,
// which are made at their first use, and for memory that oneDNN's threads write to. In which order
// gRPC takes its own locks is not for us to mend.
const char* __tsan_default_suppressions() {
  return "called_from_lib:libgpr.so\n"
         "called_from_lib:libgrpc.so\n"
         "called_from_lib:libgrpc++.so\n"
         "called_from_lib:libupb.so\n"
         "called_from_lib:libssl.so\n"
         "called_from_lib:libcrypto.so\n"
         "called_from_lib:libabsl_status.so\n"
         "called_from_lib:libabsl_cord.so\n"
         "called_from_lib:libabsl_cord_internal.so\n"
         "called_from_lib:libabsl_strings.so\n"
         "called_from_lib:libabsl_graphcycles_internal.so\n"
         "called_from_lib:libabsl_random_internal_pool_urbg.so\n"
         "called_from_lib:libdnnl.so\n"
         "race:absl::*::Status::Unref\n"
         "race:spdlog::details::registry::registry\n"
         "race:google::protobuf::internal::LazyString::Init\n"
         "race:grpc::internal::CallOpClientRecvStatus::FinishOp\n"
         "race:grpc::Slice::~Slice\n"
         "race:ServerCallbackReaderWriterImpl::~ServerCallbackReaderWriterImpl\n"
         "deadlock:libgrpc.so\n"
         "deadlock:libgrpc++.so\n";
}

}  // extern "C"
