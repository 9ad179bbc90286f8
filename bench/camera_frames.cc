// What it takes to make a camera's frame of 1280 x 720 pixels (NV21) a model's input, on one core.
//
//   c++ -std=c++17 -O3 -Icpp_runner/include bench/camera_frames.cc -o frames && taskset -c 0
//   ./frames
//
// Prints the least of several rounds' medians, since other processes only ever add to the time.
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <vector>

#include "adt/image.h"

namespace {

constexpr int kRounds = 9;
constexpr int kFrames = 101;
constexpr std::size_t kWidth = 1280;
constexpr std::size_t kHeight = 720;

double Milliseconds(adt::ImageFiller& filler, const adt::YuvImage& frame, std::vector<float>& input,
                    const adt::ImagePlacement& placement) {
  double least = 1e9;
  for (int round = 0; round < kRounds; ++round) {
    std::vector<double> times;
    for (int i = 0; i < kFrames; ++i) {
      const auto began = std::chrono::steady_clock::now();
      filler.Fill(frame, input, placement);
      const std::chrono::duration<double, std::milli> took =
          std::chrono::steady_clock::now() - began;
      times.push_back(took.count());
    }
    std::nth_element(times.begin(), times.begin() + kFrames / 2, times.end());
    least = std::min(least, times[kFrames / 2]);
  }
  return least;
}

}  // namespace

int main() {
  std::vector<std::uint8_t> luma(kWidth * kHeight);
  std::vector<std::uint8_t> chroma(luma.size() / 2);
  for (std::size_t i = 0; i < luma.size(); ++i) luma[i] = static_cast<std::uint8_t>(i * 37 >> 3);
  for (std::size_t i = 0; i < chroma.size(); ++i) chroma[i] = static_cast<std::uint8_t>(i * 91);
  adt::YuvImage frame;
  frame.width = kWidth;
  frame.height = kHeight;
  frame.planes = {adt::Plane{luma.data(), luma.size(), kWidth, 1},
                  adt::Plane{chroma.data() + 1, chroma.size() - 1, kWidth, 2},
                  adt::Plane{chroma.data(), chroma.size(), kWidth, 2}};
  for (const std::size_t side : {std::size_t{224}, std::size_t{640}}) {
    for (const auto layout : {adt::ImageLayout::kNchw, adt::ImageLayout::kNhwc}) {
      adt::ImageFormat format;
      format.layout = layout;
      format.height = format.width = side;
      format.scale = 1.0F / 255.0F;
      format.mean = {0.485F, 0.456F, 0.406F};
      format.std = {0.229F, 0.224F, 0.225F};
      adt::ImageFiller filler(format);
      std::vector<float> input(side * side * 3);
      for (const auto fit : {adt::Fit::kCrop, adt::Fit::kLetterbox}) {
        for (const int rotation : {0, 90}) {
          const double took = Milliseconds(filler, frame, input, {fit, rotation});
          std::printf("%zu x %zu floats, %s, %s, turned by %2d: %.2f ms, %.0f frames/s\n", side,
                      side, layout == adt::ImageLayout::kNchw ? "NCHW" : "NHWC",
                      fit == adt::Fit::kCrop ? "crop" : "letterbox", rotation, took, 1000 / took);
        }
      }
    }
  }
}
