// How a run goes:
//   1. Supervise() routes signals, those of ended children included, to a file
//      descriptor, and starts the services and the processes of the first stage.
//   2. Wait() polls that descriptor and the children's output, up to the deadline of
//      step 6.
//   3. ReadOutput() passes on what the children wrote, line by line.
//   4. Reap() notes each child that has ended. With recovery, its host says whether Restart() is to
//      have it started again, and FollowOrders() does what else the host wants. After a failure,
//      Settle() waits a moment for its cause to come to light (see kSettling) before it ends the
//      other processes.
//   5. When a stage is done, the next one starts. After the last stage the end begins. After a
//      failure in a stage, or a signal, EndStage() ends the rest of the stage first, and only
//      stages with `after_failure` follow.
//   6. BeginEnd() signals all processes that still run and sets a deadline, after which the
//      remaining ones get SIGKILL.
//   7. When the last child is reaped, Supervise() says how the run ended and returns the exit code.
#include "tools/launch/supervisor.h"

#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/base/clock.h"
#include "common/base/text.h"
#include "tools/launch/child_process.h"
#include "tools/launch/restart_policy.h"

namespace evenshard {
namespace {

constexpr int kSignalExit = 128;
// The exit code of a program whose usage or config is wrong. It would be wrong again.
constexpr int kUsageExit = 2;

// A killed process drops its connections before the supervisor sees its end, so its peers may fail
// and end first. If a signal killed a process within this time after a failure, it is the cause.
constexpr absl::Duration kSettling = absl::Milliseconds(300);
// Of a worker that followed another one's failure: that one may take this long to end by itself.
constexpr absl::Duration kFollowing = absl::Seconds(5);

sigset_t BlockSignals() {
  // If the parent left SIGCHLD ignored, the kernel would reap the children.
  signal(SIGCHLD, SIG_DFL);
  sigset_t signals;
  sigemptyset(&signals);
  for (const int number : {SIGCHLD, SIGINT, SIGTERM, SIGHUP, SIGPIPE}) {
    struct sigaction before;
    // What nohup ignores stays ignored, which the kernel forgets of a signal that is blocked.
    if (sigaction(number, nullptr, &before) == 0 && before.sa_handler == SIG_IGN) continue;
    sigaddset(&signals, number);
  }
  sigprocmask(SIG_BLOCK, &signals, nullptr);
  return signals;
}

class Supervisor {
 public:
  Supervisor(const SupervisedRun& run, LabelledOutput* output);
  ~Supervisor() { close(signals_); }

  int Run();

 private:
  enum class Kind { kService, kStage, kAfterFailure };

  struct Child {
    const ProcessSpec* spec;
    Kind kind;
    ChildProcess process;
    int source;            // in output_
    bool running = false;  // until it is reaped
    RestartPolicy restarts = {};
    absl::Time restart_at = absl::InfiniteFuture();
    // When it gets SIGKILL, if it was told to end by itself.
    absl::Time kill_at = absl::InfiniteFuture();
  };

  void Add(const ProcessSpec& spec, Kind kind);
  absl::Status Start(Child* child);
  void StartAgain(Child* child);
  bool WillRestart(const Child& child) const;
  void StartDue();
  bool Settling() const { return settled_ != absl::InfiniteFuture(); }
  bool AnyRunning(bool services_too) const;
  void StartNextStage();
  bool HasStageAfterFailure() const;
  void Interrupt(int signal);
  void Wait();
  void ReadSignals();
  bool ReadOutput(Child* child);
  void Reap(Child* child);
  void Ended(Child* child, const siginfo_t& info);
  bool Survives(Child* child, const siginfo_t& info, std::string* failure);
  void FollowOrders();
  Child* Find(ProcessRole role);
  std::string Success() const;
  void Fail(int exit_code, const std::string& outcome);
  void FailRun(int exit_code, const std::string& failure, absl::Time settled);
  void Settle();
  void EndStage(int signal);
  void BeginEnd(int signal);
  void KillRest();
  void Say(const std::string& message);

  const SupervisedRun& run_;
  LabelledOutput* const output_;
  const RealClock clock_;
  const int own_source_;
  int signals_ = -1;
  std::vector<Child> children_;
  size_t next_stage_ = 0;
  int exit_code_ = 0;
  bool failed_ = false;   // a process failed or a signal came, so exit_code_ is final
  bool follows_ = false;  // what has failed has followed another one's failure, unknown so far
  std::string outcome_;
  int interrupt_ = 0;  // the signal to this process; 0: none has come
  // The deadline of all remaining stages after a signal.
  absl::Time stages_deadline_ = absl::InfiniteFuture();
  std::string failure_;  // the first failure, which is reported when it has settled
  bool services_failed_ = false;
  absl::Time settled_ = absl::InfiniteFuture();
  bool ending_ = false;
  absl::Time deadline_ = absl::InfiniteFuture();
  absl::Duration held_up_;  // by the deaths that the run has survived
};

Supervisor::Supervisor(const SupervisedRun& run, LabelledOutput* output)
    : run_(run), output_(output), own_source_(output->AddSource("launch")) {
  const sigset_t signals = BlockSignals();
  signals_ = signalfd(-1, &signals, SFD_CLOEXEC | SFD_NONBLOCK);
}

int Supervisor::Run() {
  size_t all = run_.services.size();
  for (const Stage& stage : run_.stages) all += stage.processes.size();
  children_.reserve(all);
  for (const ProcessSpec& spec : run_.services) Add(spec, Kind::kService);
  while (true) {
    while (!Settling() && !ending_ && !AnyRunning(/*services_too=*/false)) StartNextStage();
    if (!AnyRunning(/*services_too=*/true)) {
      Say(failed_ ? outcome_ : Success());
      return exit_code_;
    }
    Wait();
    ReadSignals();
    StartDue();
    for (Child& child : children_) {
      if (!child.running) continue;
      ReadOutput(&child);
      Reap(&child);
    }
    if (run_.recovery != nullptr && !failed_ && !ending_) FollowOrders();
    const bool may_learn_more = AnyRunning(/*services_too=*/!follows_);
    if (clock_.Now() >= settled_ || !may_learn_more) Settle();
    if (clock_.Now() >= deadline_) KillRest();
  }
}

void Supervisor::Add(const ProcessSpec& spec, Kind kind) {
  if (ending_) return;
  children_.push_back({&spec, kind, {}, output_->AddSource(spec.label)});
  const absl::Status started = Start(&children_.back());
  if (started.ok()) return;
  Say(std::string(started.message()));
  Fail(1, absl::StrCat("the run failed: ", started.message()));
  BeginEnd(SIGTERM);
}

absl::Status Supervisor::Start(Child* child) {
  const ProcessSpec& spec = *child->spec;
  child->restart_at = absl::InfiniteFuture();
  child->restarts.Started(clock_.Now());
  if (spec.role.has_value()) run_.recovery->Started(*spec.role);
  const absl::StatusOr<ChildProcess> process =
      StartChild(spec.command, spec.environment, spec.terminal_columns, spec.has_console);
  if (!process.ok()) {
    return absl::Status(process.status().code(),
                        absl::StrCat(spec.label, ": ", process.status().message()));
  }
  child->process = *process;
  child->running = true;
  return absl::OkStatus();
}

// What keeps a process from being started may pass, such as a lack of memory.
void Supervisor::StartAgain(Child* child) {
  const absl::Status started = Start(child);
  if (started.ok()) return;
  child->restart_at = child->restarts.Ended(clock_.Now());
  if (child->restart_at != absl::InfiniteFuture()) {
    return Say(absl::StrCat(started.message(), "; trying again"));
  }
  if (child->kind == Kind::kService) services_failed_ = true;
  FailRun(1, std::string(started.message()), absl::InfinitePast());
}

bool Supervisor::WillRestart(const Child& child) const {
  return child.restart_at != absl::InfiniteFuture() && !failed_ && !ending_;
}

void Supervisor::StartDue() {
  for (Child& child : children_) {
    if (WillRestart(child) && clock_.Now() >= child.restart_at) StartAgain(&child);
    if (child.running && clock_.Now() >= child.kill_at) kill(-child.process.pid, SIGKILL);
  }
}

bool Supervisor::AnyRunning(bool services_too) const {
  return std::any_of(children_.begin(), children_.end(), [&](const Child& child) {
    return (child.running || WillRestart(child)) && (services_too || child.kind != Kind::kService);
  });
}

// Only the first failure or signal decides the exit code and the outcome.
void Supervisor::Fail(int exit_code, const std::string& outcome) {
  if (failed_) return;
  failed_ = true;
  exit_code_ = exit_code;
  outcome_ = outcome;
}

void Supervisor::StartNextStage() {
  if (next_stage_ == run_.stages.size()) {
    BeginEnd(interrupt_ == 0 ? SIGTERM : interrupt_);
    return;
  }
  const Stage& stage = run_.stages[next_stage_++];
  if (failed_ && !stage.after_failure) return;
  if (interrupt_ != 0 && stages_deadline_ == absl::InfiniteFuture()) {
    stages_deadline_ = clock_.Now() + run_.grace;
  }
  deadline_ = stages_deadline_;  // replaces the deadline of the stage before
  for (const ProcessSpec& spec : stage.processes) {
    if (clock_.Now() < deadline_) {
      Add(spec, stage.after_failure ? Kind::kAfterFailure : Kind::kStage);
    } else {
      Say(absl::StrCat("there is no time left for ", spec.label));
    }
  }
}

bool Supervisor::HasStageAfterFailure() const {
  return std::any_of(run_.stages.begin() + next_stage_, run_.stages.end(),
                     [](const Stage& stage) { return stage.after_failure; });
}

void Supervisor::Wait() {
  std::vector<pollfd> fds = {{signals_, POLLIN, 0}};
  for (const Child& child : children_) {
    if (child.running) fds.push_back({child.process.output, POLLIN, 0});
  }
  int timeout = -1;
  if (const absl::Time next = std::min(settled_, deadline_); next != absl::InfiniteFuture()) {
    const absl::Duration left = absl::Ceil(next - clock_.Now(), absl::Milliseconds(1));
    timeout = std::max<int>(0, absl::ToInt64Milliseconds(left));
  }
  if (run_.recovery != nullptr) {
    const int period = static_cast<int>(absl::ToInt64Milliseconds(RecoveryHost::kPollPeriod));
    timeout = timeout < 0 ? period : std::min(timeout, period);
  }
  // After an interruption or error, the caller checks everything early, which does no harm.
  poll(fds.data(), fds.size(), timeout);
}

void Supervisor::ReadSignals() {
  signalfd_siginfo info;
  while (read(signals_, &info, sizeof(info)) == sizeof(info)) {
    const int signal = static_cast<int>(info.ssi_signo);
    if (signal == SIGCHLD) continue;  // Reap() checks every child anyway
    // When a terminal closes, its shell and the kernel may both say so. Nobody reads the output any
    // more once that has failed.
    const bool comes_again = signal == SIGHUP || signal == SIGPIPE;
    if (comes_again && (interrupt_ != 0 || (failed_ && ending_))) continue;
    if (interrupt_ != 0 || (failed_ && ending_)) {
      BeginEnd(signal);
      KillRest();
      continue;
    }
    if (Settling()) Settle();
    const std::string name = absl::StrCat("SIG", sigabbrev_np(signal));
    Say(absl::StrCat("ending the run on ", name));
    Fail(kSignalExit + signal, absl::StrCat("the run was ended by ", name));
    Interrupt(comes_again ? SIGTERM : signal);
  }
}

// Ends all processes at once, unless a stage that runs after a failure still needs the services.
void Supervisor::Interrupt(int signal) {
  interrupt_ = signal;
  const bool in_after_failure = std::any_of(
      children_.begin(), children_.end(),
      [](const Child& child) { return child.running && child.kind == Kind::kAfterFailure; });
  if (services_failed_ || !(in_after_failure || HasStageAfterFailure())) {
    BeginEnd(signal);
  } else if (in_after_failure) {
    deadline_ = stages_deadline_ = clock_.Now() + run_.grace;
  } else {
    EndStage(signal);
  }
}

// Returns whether there may be more output.
bool Supervisor::ReadOutput(Child* child) {
  char buffer[64 * 1024];
  const ssize_t size = read(child->process.output, buffer, sizeof(buffer));
  if (size > 0) output_->Feed(child->source, absl::string_view(buffer, size));
  if (size == 0 || (size < 0 && errno == EIO)) {
    close(child->process.output);
    child->process.output = -1;  // poll() ignores it
  }
  return size > 0;
}

void Supervisor::Reap(Child* child) {
  const pid_t pid = child->process.pid;
  siginfo_t info = {};
  // While the child is a zombie, its process group cannot be another's, so what is left in the
  // group can be killed safely.
  if (waitid(P_PID, pid, &info, WEXITED | WNOHANG | WNOWAIT) != 0 || info.si_pid != pid) return;
  kill(-pid, SIGKILL);
  waitid(P_PID, pid, &info, WEXITED);
  child->running = false;

  while (ReadOutput(child)) {
  }
  output_->Close(child->source);
  if (child->process.output >= 0) close(child->process.output);
  Ended(child, info);
}

void Supervisor::Ended(Child* child, const siginfo_t& info) {
  const std::string& label = child->spec->label;
  const bool exited = info.si_code == CLD_EXITED;
  const bool is_service = child->kind == Kind::kService;
  const bool too_early = is_service && !ending_;
  // One that has just been started again does not take the signal yet.
  const bool is_ended = is_service && ending_ && !exited && info.si_status == SIGTERM;
  std::string failure = absl::StrCat(label, " ended before the workers were done");
  int exit_code = 1;
  if (!exited) {
    exit_code = kSignalExit + info.si_status;
    failure = absl::StrCat(label, " was killed by SIG", sigabbrev_np(info.si_status));
  } else if (info.si_status == kFollowerExit) {
    failure = absl::StrCat(label, " ended because another process had failed");
  } else if (info.si_status != 0) {
    exit_code = info.si_status;
    failure = absl::StrCat(label, " failed with exit code ", info.si_status);
  }
  const bool ended_well = is_ended || (exited && info.si_status == 0 && !too_early);
  const absl::Status check = ended_well && !failed_ ? child->spec->check() : absl::OkStatus();
  if (!check.ok()) {
    return FailRun(exit_code, absl::StrCat(label, " ", check.message()), clock_.Now() + kSettling);
  }
  if (child->spec->role.has_value() && !failed_ && !ending_ && Survives(child, info, &failure)) {
    return;
  }
  if (too_early) services_failed_ = true;
  if (ended_well) {
    if (child->kind == Kind::kAfterFailure) Say(child->spec->result);
    return;
  }
  const bool follows = exited && info.si_status == kFollowerExit;
  if (failed_ && (!Settling() || (exited && (!follows_ || follows)))) {
    if (child->kind == Kind::kAfterFailure) Say(failure);
    return;
  }
  // A killed process, and one that others followed, replace the failure that they caused.
  failed_ = false;
  follows_ = follows;
  FailRun(exit_code, failure,
          exited ? clock_.Now() + (follows ? kFollowing : kSettling) : absl::InfinitePast());
}

void Supervisor::FailRun(int exit_code, const std::string& failure, absl::Time settled) {
  Fail(exit_code, absl::StrCat("the run failed: ", failure));
  failure_ = failure;
  settled_ = settled;
}

// Returns whether the run goes on although the process has ended, and otherwise may say more of why
// not in `failure`.
bool Supervisor::Survives(Child* child, const siginfo_t& info, std::string* failure) {
  const std::string& label = child->spec->label;
  const bool exited = info.si_code == CLD_EXITED;
  const bool success = exited && info.si_status == 0;
  switch (run_.recovery->Ended(*child->spec->role, failure->substr(label.size() + 1), !exited,
                               success)) {
    case RecoveryHost::Verdict::kDone:
      // The run goes on without it, unless it was told to end.
      if (!success && child->kill_at == absl::InfiniteFuture()) {
        child->restarts.Died(clock_.Now());
      }
      return true;
    case RecoveryHost::Verdict::kFailure:
      if (absl::Status status = run_.recovery->failure(); !status.ok()) {
        *failure = std::string(status.message());
      }
      return false;
    case RecoveryHost::Verdict::kRestart:
      break;
  }
  if (exited && info.si_status == kUsageExit) return false;
  if (child->spec->role->is_worker && run_.max_restarts.has_value() &&
      child->restarts.deaths() >= *run_.max_restarts) {
    absl::StrAppend(failure, ", and has been started again ", child->restarts.deaths(),
                    " times already (--max_restarts)");
    return false;
  }
  // A worker can end well while the run goes back, so that it is needed again.
  const bool ended_well = success && child->kind != Kind::kService;
  if (ended_well) *failure = absl::StrCat(label, " ended, but is needed again");
  child->restart_at =
      ended_well ? child->restarts.Ended(clock_.Now()) : child->restarts.Died(clock_.Now());
  if (child->restart_at == absl::InfiniteFuture()) {
    absl::StrAppend(failure, ", as did each of its last ", RestartPolicy::kMostEarlyFailures,
                    " starts within ", absl::FormatDuration(RestartPolicy::kEarly));
    if (!ended_well) return false;
    FailRun(1, *failure, absl::InfinitePast());
    return true;
  }
  Say(absl::StrCat(*failure, "; starting it again"));
  return true;
}

void Supervisor::FollowOrders() {
  const RecoveryHost::Orders orders = run_.recovery->Poll();
  for (const RecoveryEvent& event : orders.events) {
    const bool held_up = event.seconds() > 0;
    Say(held_up ? absl::StrCat(event.what(), " (held up ", FormatSeconds(event.seconds()), ")")
                : event.what());
    held_up_ += absl::Seconds(event.seconds());
  }
  if (absl::Status status = run_.recovery->failure(); !status.ok()) {
    // A worker that has failed says so before it ends.
    return FailRun(1, std::string(status.message()), clock_.Now() + kSettling);
  }
  for (const ProcessRole role : orders.kill) {
    Child* child = Find(role);
    if (child == nullptr || !child->running) continue;
    Say(absl::StrCat("killing ", child->spec->label, ", which has been silent for too long"));
    kill(-child->process.pid, SIGKILL);
  }
  if (!orders.finished) return;
  for (Child& child : children_) {
    if (child.kind == Kind::kStage) child.restart_at = absl::InfiniteFuture();
  }
  for (const ProcessRole role : orders.end) {
    Child* child = Find(role);
    if (child == nullptr || !child->running || child->kill_at != absl::InfiniteFuture()) continue;
    Say(absl::StrCat("ending ", child->spec->label, ", without which the training has ended"));
    kill(-child->process.pid, SIGTERM);
    child->kill_at = clock_.Now() + run_.grace;
  }
}

Supervisor::Child* Supervisor::Find(ProcessRole role) {
  for (Child& child : children_) {
    if (child.spec->role == role) return &child;
  }
  return nullptr;
}

// "the run succeeded; it survived 3 deaths: ps 1 (1x), worker 4 (2x); held up 1.2s in all"
std::string Supervisor::Success() const {
  int deaths = 0;
  std::vector<std::string> died;
  for (const Child& child : children_) {
    if (child.restarts.deaths() == 0) continue;
    deaths += child.restarts.deaths();
    died.push_back(absl::StrCat(child.spec->label, " (", child.restarts.deaths(), "x)"));
  }
  if (deaths == 0) return "the run succeeded";
  const std::string held_up =
      absl::StrCat("; held up ", FormatSeconds(absl::ToDoubleSeconds(held_up_)), " in all");
  return absl::StrCat("the run succeeded; it survived ", deaths,
                      deaths == 1 ? " death: " : " deaths: ", absl::StrJoin(died, ", "),
                      held_up_ > absl::ZeroDuration() ? held_up : "");
}

void Supervisor::Settle() {
  if (!Settling()) return;
  settled_ = absl::InfiniteFuture();
  const bool others = AnyRunning(/*services_too=*/services_failed_);
  Say(absl::StrCat(failure_, others ? "; ending the others" : ""));
  if (services_failed_) {
    BeginEnd(SIGTERM);
  } else {
    EndStage(SIGTERM);
  }
}

void Supervisor::EndStage(int signal) {
  deadline_ = clock_.Now() + run_.grace;
  for (const Child& child : children_) {
    if (child.running && child.kind != Kind::kService) kill(-child.process.pid, signal);
  }
}

void Supervisor::BeginEnd(int signal) {
  if (ending_) return;
  ending_ = true;
  deadline_ = clock_.Now() + run_.grace;
  for (const Child& child : children_) {
    if (child.running) kill(-child.process.pid, signal);
  }
}

void Supervisor::KillRest() {
  deadline_ = absl::InfiniteFuture();
  for (const Child& child : children_) {
    if (!child.running || (child.kind == Kind::kService && !ending_)) continue;
    Say(absl::StrCat("killing ", child.spec->label, ", which did not end"));
    kill(-child.process.pid, SIGKILL);
  }
}

void Supervisor::Say(const std::string& message) {
  output_->Feed(own_source_, absl::StrCat(message, "\n"));
}

}  // namespace

sigset_t BlockSupervisedSignals() {
  sigset_t signals = BlockSignals();
  sigdelset(&signals, SIGCHLD);
  return signals;
}

int Supervise(const SupervisedRun& run, LabelledOutput* output) {
  return Supervisor(run, output).Run();
}

}  // namespace evenshard
