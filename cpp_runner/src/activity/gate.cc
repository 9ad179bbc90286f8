#include "activity/gate.h"

namespace adt::activity {

void Gate::Resume() {
  const std::lock_guard<std::mutex> lock(mutex_);
  resumed_ = true;
  changed_.notify_all();
}

void Gate::Pause() {
  const std::lock_guard<std::mutex> lock(mutex_);
  resumed_ = false;
  ++pauses_;
}

void Gate::Stop() {
  const std::lock_guard<std::mutex> lock(mutex_);
  stopped_ = true;
  changed_.notify_all();
}

std::uint64_t Gate::Enter() {
  std::unique_lock<std::mutex> lock(mutex_);
  changed_.wait(lock, [&] { return resumed_ || stopped_; });
  if (stopped_) throw Stopped();
  return pauses_;
}

void Gate::Check(std::uint64_t entered) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (stopped_) throw Stopped();
  if (pauses_ != entered) throw Interrupted();
}

}  // namespace adt::activity
