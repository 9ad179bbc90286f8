#include "activity/screen.h"

#include <algorithm>
#include <cstdint>

namespace adt::activity {
namespace {

// As the bytes red, green, blue and alpha lie in a little-endian word.
std::uint32_t ColourOf(Progress progress) {
  switch (progress) {
    case Progress::kMeasuring:
      return 0xFF757575;
    case Progress::kDone:
      return 0xFF327D2E;
    case Progress::kFailed:
      return 0xFF1C1CB7;
  }
  return 0xFF000000;
}

}  // namespace

void Screen::Use(ANativeWindow* window) {
  const std::lock_guard<std::mutex> lock(mutex_);
  window_ = window;
  Draw();
}

void Screen::Redraw() {
  const std::lock_guard<std::mutex> lock(mutex_);
  Draw();
}

void Screen::Show(Progress progress) {
  const std::lock_guard<std::mutex> lock(mutex_);
  progress_ = progress;
  Draw();
}

void Screen::Draw() {
  if (window_ == nullptr) return;
  ANativeWindow_setBuffersGeometry(window_, 0, 0, WINDOW_FORMAT_RGBX_8888);
  ANativeWindow_Buffer buffer{};
  if (ANativeWindow_lock(window_, &buffer, nullptr) != 0) return;
  auto* row = static_cast<std::uint32_t*>(buffer.bits);
  for (std::int32_t y = 0; y < buffer.height; ++y, row += buffer.stride) {
    std::fill_n(row, buffer.width, ColourOf(progress_));
  }
  ANativeWindow_unlockAndPost(window_);
}

}  // namespace adt::activity
