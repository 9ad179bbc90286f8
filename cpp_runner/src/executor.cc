#include "executor.h"

#include <linux/futex.h>
#include <pthread.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <climits>
#include <cstdlib>
#include <optional>
#include <system_error>
#include <utility>

#include "error.h"
#include "threads.h"

namespace adt {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::uint32_t kUnset = 0;
constexpr std::uint32_t kSet = 1;
constexpr std::uint32_t kAwaited = 2;

// Waking a thread takes 5 to 50 µs. So a caller stays awake for runs that this would be more than
// 1 % of, and the executor for a tenth of the last run's time, as the next one may come at once.
constexpr std::int64_t kLongestCall = 1000;
constexpr std::int64_t kShortestIdle = 50;
constexpr std::int64_t kLongestIdle = 1000;
constexpr std::int64_t kIdleShare = 10;

std::int64_t MicrosecondsSince(Clock::time_point start) {
  return std::chrono::duration_cast<std::chrono::microseconds>(Clock::now() - start).count();
}

void Relax() {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#elif defined(__aarch64__) || defined(__arm__)
  asm volatile("yield" ::: "memory");
#endif
}

// Whether *is_ready* came true within so many microseconds.
template <typename IsReady>
bool Spin(std::int64_t microseconds, const IsReady& is_ready) {
  constexpr int kLooks = 64;  // between two looks at the clock
  if (is_ready()) return true;
  if (microseconds <= 0) return false;
  const Clock::time_point start = Clock::now();
  while (true) {
    for (int i = 0; i < kLooks; ++i) {
      if (is_ready()) return true;
      Relax();
    }
    if (MicrosecondsSince(start) >= microseconds) return false;
    std::this_thread::yield();  // the other thread may wait for this core
  }
}

// Sleep until somebody wakes those who wait at *word*, unless it is not *value* any more.
void Sleep(std::atomic<std::uint32_t>* word, std::uint32_t value) {
  syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, value, nullptr, nullptr, 0);
}

void Wake(std::atomic<std::uint32_t>* word) {
  syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, INT_MAX, nullptr, nullptr, 0);
}
static_assert(sizeof(std::atomic<std::uint32_t>) == sizeof(std::uint32_t));

// TVM's own option for its workers is for all of the runner's threads.
std::int64_t MayWait(std::int64_t microseconds) {
  static const bool asleep = [] {
    const char* count = std::getenv("TVM_THREAD_POOL_SPIN_COUNT");
    return count != nullptr && std::atoi(count) == 0;
  }();
  return asleep ? 0 : microseconds;
}

struct ThreadChoice {
  int count;
  std::string affinity;
};

// Of the process, as its threads are.
struct Process {
  std::mutex mutex;
  std::weak_ptr<Executor> executor;
  std::optional<ThreadChoice> threads;
  std::atomic<bool> has_threads{false};
};

// Never destroyed: a program may end with handles that were not freed.
Process& TheProcess() {
  static auto* process = new Process;
  return *process;
}

std::optional<ThreadChoice> ChosenThreads() {
  const std::lock_guard<std::mutex> lock(TheProcess().mutex);
  return TheProcess().threads;
}

}  // namespace

void Signal::Set() noexcept {
  if (state_.exchange(kSet) == kAwaited) Wake(&state_);
}

void Signal::Wait(std::int64_t spin_us) noexcept {
  const auto is_set = [this] { return state_.load(std::memory_order_acquire) == kSet; };
  if (Spin(spin_us, is_set)) return;
  std::uint32_t unset = kUnset;
  state_.compare_exchange_strong(unset, kAwaited);
  while (!is_set()) Sleep(&state_, kAwaited);
}

// The last task of a thread.
struct Executor::Stop final : Task {
  Stop() { last = true; }
  void Do() noexcept override {}
};

Executor::Executor() { Restart(); }

Executor::~Executor() {
  Stop stop;
  Push(&stop);
  thread_.join();
}

std::shared_ptr<Executor> Executor::Shared() {
  Process& process = TheProcess();
  {
    const std::lock_guard<std::mutex> lock(process.mutex);
    if (auto executor = process.executor.lock()) return executor;
  }
  auto executor = std::make_shared<Executor>();
  const std::lock_guard<std::mutex> lock(process.mutex);
  if (auto other = process.executor.lock()) return other;  // another thread was faster
  process.executor = executor;
  return executor;
}

void Executor::SetThreads(int count, const std::string& affinity) {
  static std::mutex one_at_a_time;
  const std::lock_guard<std::mutex> setting(one_at_a_time);
  Process& process = TheProcess();
  std::optional<ThreadChoice> choice = ThreadChoice{count, affinity};
  std::shared_ptr<Executor> executor;
  {
    const std::lock_guard<std::mutex> lock(process.mutex);
    std::swap(process.threads, choice);
    process.has_threads = true;
    executor = process.executor.lock();
  }
  try {
    if (executor && executor->IsCurrent()) {
      throw Error(ErrorKind::kUsage, "the threads cannot be set by a run's callback",
                  "Set them by a thread of the program.");
    }
    executor ? executor->Restart() : static_cast<void>(Executor());  // which tries them
  } catch (...) {
    const std::lock_guard<std::mutex> lock(process.mutex);
    process.threads = std::move(choice);
    process.has_threads = process.threads.has_value();
    throw;
  }
}

bool Executor::HasSetThreads() { return TheProcess().has_threads; }

const void* Executor::Id() {
  static thread_local const char id = 0;
  return &id;
}

// A pool of TVM's never grows: another number of threads needs another thread that has it.
void Executor::Restart() {
  const std::lock_guard<std::mutex> lock(restart_);
  Signal tried;
  std::exception_ptr error;
  std::thread thread;
  try {
    thread = std::thread([&, this] {
      pthread_setname_np(pthread_self(), "adt-runner");  // its workers have it from it
      try {
        if (const auto choice = ChosenThreads()) adt::SetThreads(choice->count, choice->affinity);
      } catch (...) {
        error = std::current_exception();
        return tried.Set();
      }
      std::thread before = std::move(thread_);
      tried.Set();  // Restart()'s variables may be gone from here on
      if (before.joinable()) {
        Stop stop;
        Push(&stop);
        before.join();
      }
      Serve();
    });
  } catch (const std::system_error& reason) {
    throw Error(ErrorKind::kRun, std::string("cannot start a thread: ") + reason.what(),
                "Let the program have more threads.");
  }
  tried.Wait(0);
  if (error) {
    thread.join();
    std::rethrow_exception(error);
  }
  thread_ = std::move(thread);
}

void Executor::Serve() {
  server_id_ = Id();
  while (true) {
    const std::uint32_t seen = pushed_;
    if (Task* task = Take()) {
      if (task->last) break;
      task->Do();
      continue;
    }
    const std::int64_t idle = std::clamp(last_us_.load(std::memory_order_relaxed) / kIdleShare,
                                         kShortestIdle, kLongestIdle);
    const auto is_pushed = [&] { return pushed_.load(std::memory_order_acquire) != seen; };
    if (Spin(MayWait(idle), is_pushed)) continue;
    asleep_ = true;
    Sleep(&pushed_, seen);
    asleep_ = false;
  }
  server_id_ = nullptr;
}

void Executor::Push(Task* task) {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    (first_ == nullptr ? first_ : last_->next) = task;
    last_ = task;
  }
  ++pushed_;
  if (asleep_) Wake(&pushed_);
}

Executor::Task* Executor::Take() {
  const std::lock_guard<std::mutex> lock(mutex_);
  Task* task = first_;
  if (task != nullptr) first_ = task->next;
  return task;
}

void Executor::Await(Signal* done) {
  const Clock::time_point start = Clock::now();
  const std::int64_t expected = last_us_.load(std::memory_order_relaxed);
  done->Wait(MayWait(expected <= kLongestCall ? kLongestCall : 0));
  last_us_.store(MicrosecondsSince(start), std::memory_order_relaxed);
}

}  // namespace adt
