// Whether the worker may measure now: the activity's life cycle, as the worker sees it.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <mutex>

namespace adt::activity {

/// The activity is gone: the worker ends.
struct Stopped {};
/// The activity was in the background: what was measured since is not the device's speed.
struct Interrupted {};

/// Used by the activity's thread and by the worker.
class Gate {
 public:
  void Resume();
  void Pause();
  void Stop();

  /// Wait until the activity is in the foreground. Throws Stopped. The result is for Check.
  std::uint64_t Enter();
  /// Throws Stopped, or Interrupted when the activity was paused after that Enter.
  void Check(std::uint64_t entered);

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool resumed_ = false;
  bool stopped_ = false;
  std::uint64_t pauses_ = 0;
};

}  // namespace adt::activity
