// The class of adt/runner.h, for tests/integration/test_runner_abi.py: <mixed> <recurrent>
// <symbolic> <opencl>.

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "adt/runner.h"

namespace {

void Require(bool holds, const char* what) {
  if (holds) return;
  std::fprintf(stderr, "not so: %s\n", what);
  std::exit(1);
}
#define REQUIRE(condition) Require(condition, #condition)

template <typename Work>
void Refused(adt::ErrorKind kind, const std::string& words, Work&& work) {
  try {
    work();
  } catch (const adt::Error& error) {
    if (error.kind() == kind && std::string(error.what()).find(words) != std::string::npos &&
        !error.remedy().empty()) {
      return;
    }
    std::fprintf(stderr, "kind %d: %s\n", static_cast<int>(error.kind()), error.what());
  }
  std::fprintf(stderr, "not refused: %s\n", words.c_str());
  std::exit(1);
}

static_assert(!std::is_copy_constructible_v<adt::Runner> &&
              std::is_nothrow_move_constructible_v<adt::Runner>);
static_assert(adt::DTypeName<float>() == "float32" && adt::DTypeName<unsigned char>() == "uint8");
static_assert(adt::DTypeName<adt::Float16>() == "float16" && adt::DTypeName<bool>() == "bool");
static_assert(adt::DTypeName<long long>() == "int64" && adt::DTypeName<void*>().empty());

void Mixed(const char* path) {
  adt::Runner first(path);
  adt::Runner runner = std::move(first);
  Refused(adt::ErrorKind::kUsage, "runner is NULL", [&] { first.Run(); });  // NOLINT: moved from
  REQUIRE(runner.package() == "mixed" && runner.device() == "cpu" && runner.alignment() == 64);
  REQUIRE(runner.entries() == std::vector<std::string>{"main"});
  REQUIRE(runner.inputs()[1].name == "n" && runner.outputs("main")[0].size == 40);
  REQUIRE(runner.manifest().find("adt.model-package") != std::string::npos);

  const std::vector<float> x{1, -2, 3, 4, 5, -6};
  runner.SetInput("x", x);
  runner.SetInput(1, std::vector<std::int64_t>{1, 2, 3, 4});
  runner.Run();
  REQUIRE((runner.Output<std::int64_t>("m") == std::vector<std::int64_t>{2, 4, 6, 8}));
  REQUIRE((runner.OutputShape("y") == std::vector<std::int64_t>{2, 5}));
  const adt::SharedTensor y = runner.TakeOutput("y");
  const adt::Span<float> view = y.View<float>();
  REQUIRE(std::vector<float>(view.begin(), view.end()) == runner.Output<float>(0));
  std::vector<float> room(10);
  runner.GetOutput(0, room.data(), room.size());
  REQUIRE(room[9] == view[9]);

  alignas(64) float bound[6] = {};
  int released = 0;
  runner.SetInput("x", adt::SharedTensor::FromMemory(bound, 6, {2, 3}, [&] { ++released; }));
  runner.Start();
  runner.Wait();
  REQUIRE(runner.Output<float>("y") == std::vector<float>(10));
  REQUIRE(room[9] == view[9] && released == 0);  // what was taken stays
  const adt::SharedTensor in = runner.InputTensor("x");
  REQUIRE(released == 1 && in.info().shape == std::vector<std::int64_t>({2, 3}));
  std::copy(x.begin(), x.end(), in.Data<float>());
  runner.Run();
  y.CopyTo(room.data(), room.size());
  REQUIRE(runner.Output<float>("y") == room && in.device() == "cpu");

  Refused(adt::ErrorKind::kInput, "x has elements of type float32, not float64",
          [&] { runner.SetInput("x", std::vector<double>(6)); });
  Refused(adt::ErrorKind::kInput, "has 20 bytes", [&] { runner.SetInput("x", x.data(), 5); });
  Refused(adt::ErrorKind::kInput, "no multiple of 64",
          [&] { runner.SetInput("x", adt::SharedTensor::FromMemory(bound + 1, 6, {2, 3})); });
  Refused(adt::ErrorKind::kInput, "the tensor has elements of type float32, not int32",
          [&] { y.Data<int>(); });
  Refused(adt::ErrorKind::kUsage, "tensor is NULL", [] { adt::SharedTensor().info(); });
  Refused(adt::ErrorKind::kInput, "input x is int32[2, 3]", [&] {
    int numbers[6];
    runner.SetInput("x", adt::SharedTensor::FromMemory(numbers, 6, {2, 3}));
  });
  Refused(adt::ErrorKind::kInput, "m has elements of type int64",
          [&] { runner.Output<float>("m"); });
  Refused(adt::ErrorKind::kUsage, "no input z", [&] { runner.SetInput("z", x); });
  Refused(adt::ErrorKind::kUsage, "no output 2", [&] { runner.OutputShape(2); });
  Refused(adt::ErrorKind::kUsage, "no entry other", [&] { runner.Run("other"); });
}

void Recurrent(const char* path) {
  adt::Options options;
  options.device = "cpu";
  options.program_cache = "off";
  adt::Runner runner(path, options);
  runner.SetInput("x", std::vector<float>(4, 3), {}, "encode");
  runner.Run("encode");
  runner.SetInput("s", std::vector<float>(4), {4}, "decode");
  runner.SetInput("h", runner.TakeOutput("h", "encode"), "decode");
  for (int step = 0; step < 3; ++step) {
    runner.Run("decode");
    runner.SetInput("s", runner.TakeOutput("t", "decode"), "decode");
  }
  REQUIRE(runner.Output<float>("y", "decode") == std::vector<float>(4, 8));
  adt::Runner session = runner.CreateSession();
  session.SetInput("x", std::vector<float>(4, 1), {}, "encode");
  session.Run("encode");
  REQUIRE(session.Output<float>("h", "encode") == std::vector<float>(4, 2));
  REQUIRE(runner.Output<float>("h", "encode") == std::vector<float>(4, 6));
}

void Symbolic(const char* path) {
  adt::Runner runner(path);
  REQUIRE(runner.inputs()[0].symbols[0] == "n" && runner.inputs()[0].size == -1);
  for (const char* name : {"a", "b"}) runner.SetInput(name, std::vector<float>{1, 2, 3}, {3});
  runner.Run();
  REQUIRE((runner.OutputShape(0) == std::vector<std::int64_t>{3}));
  REQUIRE((runner.Output<float>(0) == std::vector<float>{2, 4, 6}));
  for (const char* name : {"a", "b"}) runner.SetInput(name, std::vector<float>{4}, {1});
  adt_status_t status = -1;
  const adt::Ticket ticket = runner.RunAsync(0, [&](adt_status_t end) { status = end; });
  ticket.Wait();
  ticket.Cancel();  // too late
  REQUIRE(status == ADT_OK && runner.Output<float>(0) == std::vector<float>{8});
  runner.RunAsync();
  Refused(adt::ErrorKind::kUsage, "no entry 3", [&] { runner.RunAsync(3); });
}

// What is built while an OpenCL package is loaded.
void Progress(const char* path) {
  std::vector<std::pair<int, int>> calls;
  adt::Options options;
  options.program_cache = "off";
  options.build_threads = 2;
  options.build_progress = [&](int done, int total) { calls.emplace_back(done, total); };
  const adt::Runner runner(path, options);
  REQUIRE(runner.device() == "opencl" && calls.size() >= 2 && calls.front().first == 0);
  REQUIRE(calls.back().first == calls.back().second && calls.back().second > 0);
  options.build_threads = -1;
  calls.clear();
  const adt::Runner lazy(path, options);
  REQUIRE(calls.empty());
}

}  // namespace

int main(int, char** argv) {
  adt::SetThreads(1, "all");
  Refused(adt::ErrorKind::kUsage, "no cores are called", [] { adt::SetThreads(1, "none"); });
  Refused(adt::ErrorKind::kPackage, "does not exist", [] { adt::Runner runner("/no/such"); });
  Mixed(argv[1]);
  Recurrent(argv[2]);
  Symbolic(argv[3]);
  Progress(argv[4]);
  std::puts("done");
}
