// The thread that runs models, so that the program's own threads stay as they are.
//
// TVM gives each thread that runs a model a pool of workers, binds that thread to cores, and makes
// it OpenCL kernels of its own. Here it is one thread that does so, whoever asks for the run.
#pragma once

#include <atomic>
#include <cstdint>
#include <exception>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>

namespace adt {

/// A flag that one thread sets, and another one waits for.
class Signal {
 public:
  void Set() noexcept;
  /// Return when it is set. For so many microseconds the thread stays awake: waking one takes
  /// several.
  void Wait(std::int64_t spin_us) noexcept;

 private:
  std::atomic<std::uint32_t> state_{0};
};

class Executor {
 public:
  /// Starts the thread. Throws Error(kRun) when there is none to be had, and what SetThreads()
  /// throws.
  Executor();
  /// Waits until all is done that was asked for. Not on its own thread.
  ~Executor();
  Executor(const Executor&) = delete;
  Executor& operator=(const Executor&) = delete;

  /// The one of the process, as long as anybody has it.
  static std::shared_ptr<Executor> Shared();

  /// How many threads do the work of kernels, and on which cores: of the process's executor from
  /// its next run on, and of all that are made later. *count* and *affinity* are as for
  /// adt::SetThreads(), which says what is thrown; nothing has changed then. Not on an executor's
  /// thread.
  static void SetThreads(int count, const std::string& affinity);
  /// Whether that was done.
  static bool HasSetThreads();

  /// Do *work* on the thread, after what others asked for, and wait for it; at once when this is
  /// the thread. What *work* throws is thrown.
  template <typename Work>
  void Run(const Work& work) {
    if (IsCurrent()) return work();
    struct Call final : Task {
      explicit Call(const Work& given) : work(given) {}
      void Do() noexcept override {
        try {
          work();
        } catch (...) {
          error = std::current_exception();
        }
        done.Set();
      }
      const Work& work;
      std::exception_ptr error;
      Signal done;
    };
    Call call(work);
    Push(&call);
    Await(&call.done);
    if (call.error) std::rethrow_exception(call.error);
  }

  /// Do *work*, which throws nothing, on the thread, after what others asked for.
  template <typename Work>
  void Post(Work work) {
    struct Later final : Task {
      explicit Later(Work given) : work(std::move(given)) {}
      void Do() noexcept override {
        work();
        delete this;
      }
      Work work;
    };
    Push(new Later(std::move(work)));
  }

  /// Whether this is its thread.
  bool IsCurrent() const { return server_id_.load(std::memory_order_relaxed) == Id(); }

 private:
  struct Task {
    virtual ~Task() = default;
    virtual void Do() noexcept = 0;  // the task may be gone afterwards
    Task* next = nullptr;
    bool last = false;  // of its thread
  };
  struct Stop;

  static const void* Id();
  void Restart();
  void Serve();
  void Push(Task* task);
  Task* Take();
  void Await(Signal* done);

  std::mutex mutex_;  // for the list
  Task* first_ = nullptr;
  Task* last_ = nullptr;
  std::atomic<std::uint32_t> pushed_{0};
  std::atomic<bool> asleep_{false};
  std::atomic<std::int64_t> last_us_{0};  // what the last call took
  std::atomic<const void*> server_id_{nullptr};
  std::mutex restart_;  // for the thread
  std::thread thread_;
};

}  // namespace adt
