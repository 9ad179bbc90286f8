// allocations MIXED ECHO: what a program does with a handle for each inference needs no memory,
// other than what the model takes: no text is made for an error that does not happen. MIXED
// computes y = relu(x @ weight) and m = n + n on a CPU; ECHO has many inputs and outputs, the last
// ones of which are in_length and relu. Nor do a camera's frames, after the first. Prints "done".
#include <adt/adt_runner.h>
#include <adt/image.h>

#include <array>
#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <new>

namespace {

std::atomic<long> allocations{0};

}  // namespace

// In place of those of all libraries.
void* operator new(std::size_t size) {
  ++allocations;
  if (void* memory = std::malloc(size == 0 ? 1 : size)) return memory;
  throw std::bad_alloc();
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }

namespace {

void Check(bool good, const char* what) {
  if (good) return;
  std::fprintf(stderr, "%s: %s\n", what, adt_last_error());
  std::exit(1);
}

template <typename Call>
void None(const char* what, Call call) {
  const long before = allocations;
  Check(call(), what);
  if (allocations == before) return;
  std::fprintf(stderr, "%s: %ld allocations\n", what, allocations - before);
  std::exit(1);
}

// Turned and not, cut and with borders, in turns.
void FillFrames() {
  constexpr std::size_t kWidth = 64, kHeight = 48, kSide = 24;
  static std::array<std::uint8_t, kWidth * kHeight> luma;
  static std::array<std::uint8_t, kWidth * kHeight / 2> chroma;
  static std::array<float, kSide * kSide * 3> input;
  adt::YuvImage frame;
  frame.width = kWidth;
  frame.height = kHeight;
  frame.planes = {adt::Plane{luma.data(), luma.size(), kWidth, 1},
                  adt::Plane{chroma.data() + 1, chroma.size() - 1, kWidth, 2},
                  adt::Plane{chroma.data(), chroma.size(), kWidth, 2}};
  adt::ImageFormat format;
  format.height = format.width = kSide;
  adt::ImageFiller filler(format);
  const auto fill = [&] {
    for (const auto fit : {adt::Fit::kCrop, adt::Fit::kLetterbox}) {
      for (const int rotation : {0, 90}) {
        adt::ImagePlacement placement;
        placement.fit = fit;
        placement.rotation = rotation;
        filler.Fill(frame, input, placement);
      }
    }
    return true;
  };
  const long start = allocations;
  fill();
  if (allocations == start) std::exit(2);  // they are not counted
  for (int i = 0; i < 3; ++i) None("frames", fill);
}

}  // namespace

int main(int, char** argv) {
  static const float x[6] = {1, -2, 3, 4, 5, -6};
  static const std::int64_t n[4] = {1, 2, 3, 4};
  static const std::int64_t extents[2] = {2, 3};
  adt_runner_t* runner = nullptr;
  adt_runner_t* echo = nullptr;
  const long start = allocations;
  Check(adt_runner_create(argv[1], nullptr, &runner) == ADT_OK, "create");
  Check(adt_runner_create(argv[2], nullptr, &echo) == ADT_OK, "create");
  if (allocations == start) return 2;  // they are not counted
  for (int run = 0; run < 3; ++run) {
    const auto set = [&] {
      return adt_runner_set_input(runner, 0, 0, x, sizeof(x)) == ADT_OK &&
             adt_runner_set_input_shaped(runner, 0, 0, x, sizeof(x), extents, 2) == ADT_OK &&
             adt_runner_set_input(runner, 0, 1, n, sizeof(n)) == ADT_OK;
    };
    run == 0 ? Check(set(), "set_input") : None("set_input", set);
    Check(adt_runner_run(runner, 0) == ADT_OK, "run");
    None("find", [&] {
      return adt_runner_find_entry(runner, "main") == 0 &&
             adt_runner_find_input(runner, 0, "n") == 1 &&
             adt_runner_find_output(runner, 0, "m") == 1;
    });
    None("output", [&] {
      float y[10];
      std::int64_t shape[2];
      return adt_runner_output_shape(runner, 0, 0, shape, 2) == 2 &&
             adt_runner_output_size(runner, 0, 0) == sizeof(y) &&
             adt_runner_get_output(runner, 0, 0, y, sizeof(y)) == ADT_OK;
    });
    None("find among many", [&] {
      return adt_runner_find_input(echo, 0, "in_length") > 10 &&
             adt_runner_find_output(echo, 0, "relu") > 10;
    });
    None("wait", [&] { return adt_runner_wait(runner) == ADT_OK; });
  }
  adt_runner_free(runner);
  adt_runner_free(echo);
  FillFrames();
  std::puts("done");
}
