// The activity's window: one colour that says how far the measurements are, or the server is.
#pragma once

#include <android/native_window.h>

#include <mutex>

namespace adt::activity {

enum class Progress {
  kMeasuring,  ///< grey
  kDone,       ///< green; a server: a tracker knows it
  kFailed,     ///< red: a result is an error
};

/// Used by the activity's thread, which has the window, and by the worker, which has the news.
class Screen {
 public:
  /// *window* may be used until it is replaced; nullptr for none.
  void Use(ANativeWindow* window);
  /// Draw again.
  void Redraw();
  void Show(Progress progress);

 private:
  void Draw();  // with the lock

  std::mutex mutex_;
  ANativeWindow* window_ = nullptr;
  Progress progress_ = Progress::kMeasuring;
};

}  // namespace adt::activity
