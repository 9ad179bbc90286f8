// Runs docs/runner.md's example of Android's memory (example.inc) on y = relu(x @ w), on a CPU and
// on PoCL: `hardware_buffer CPU_PACKAGE OPENCL_PACKAGE`. That memory, and Arm's extension that
// imports it, are stand-ins.
#define CL_TARGET_OPENCL_VERSION 120
#include <CL/cl_ext.h>
#include <adt/runner.h>
#include <android/hardware_buffer.h>

#include <atomic>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <thread>
#include <vector>

#define EXPECT(truth) ((truth) ? void() : (std::puts(#truth), std::exit(1)))

struct AHardwareBuffer {
  alignas(64) float x[4];
  int locks;
};

int AHardwareBuffer_lock(AHardwareBuffer* buffer, std::uint64_t usage, std::int32_t fence,
                         const ARect* rect, void** address) {
  EXPECT(usage == AHARDWAREBUFFER_USAGE_CPU_READ_OFTEN && fence == -1 && rect == nullptr);
  ++buffer->locks;
  *address = buffer->x;
  return 0;
}

int AHardwareBuffer_unlock(AHardwareBuffer* buffer, std::int32_t* fence) {
  EXPECT(fence == nullptr);
  --buffer->locks;
  return 0;
}

static std::atomic<bool> released{false};

cl_mem clImportMemoryARM(cl_context context, cl_mem_flags flags,
                         const cl_import_properties_arm* properties, void* memory, size_t size,
                         cl_int* code) {
  EXPECT(properties[0] == CL_IMPORT_TYPE_ARM && properties[2] == 0);
  EXPECT(properties[1] == CL_IMPORT_TYPE_ANDROID_HARDWARE_BUFFER_ARM);
  EXPECT(size == CL_IMPORT_MEMORY_WHOLE_ALLOCATION_ARM);
  auto* buffer = static_cast<AHardwareBuffer*>(memory);
  cl_mem imported =
      clCreateBuffer(context, flags | CL_MEM_USE_HOST_PTR, sizeof(buffer->x), buffer->x, code);
  const auto note = [](cl_mem, void*) { released = true; };
  EXPECT(clSetMemObjectDestructorCallback(imported, note, nullptr) == CL_SUCCESS);
  return imported;
}

static void Example(AHardwareBuffer* buffer, adt::Runner& runner, adt::Runner& gpu) {
  cl_context context = nullptr;
  const auto own = static_cast<cl_mem>(adt_tensor_data(gpu.InputTensor("x").handle()));
  clGetMemObjectInfo(own, CL_MEM_CONTEXT, sizeof(context), &context, nullptr);
#include "example.inc"
}

static bool IsRight(adt::Runner& runner) {
  constexpr float kX[4] = {1, 2, 3, 4};
  runner.Run();
  const std::vector<float> y = runner.Output<float>("y");
  for (int column = 0; column < 3; ++column) {
    float wanted = 0;
    for (int i = 0; i < 4; ++i) wanted += kX[i] * (static_cast<float>(3 * i + column) / 10 - 0.5F);
    const float found = y[static_cast<std::size_t>(column)];
    if (std::abs(found - std::fmax(wanted, 0.0F)) > 1e-5F) return false;
  }
  return true;
}

int main(int, char** argv) {
  AHardwareBuffer buffer{{1, 2, 3, 4}, 0};
  adt::Runner runner(argv[1]);
  adt::Runner gpu(argv[2]);
  Example(&buffer, runner, gpu);
  EXPECT(IsRight(runner) && IsRight(gpu));
  EXPECT(buffer.locks == 1 && !released);
  for (adt::Runner* used : {&runner, &gpu}) {
    used->SetInput("x", std::vector<float>{4, 3, 2, 1});
    EXPECT(!IsRight(*used));
  }
  EXPECT(buffer.locks == 0);
  for (int wait = 0; !released && wait < 3000; ++wait) {  // PoCL lets commands go that ended
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  EXPECT(released);
  std::puts("done");
}
