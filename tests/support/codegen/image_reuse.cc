// What cmake_presets/src/opencl_image_reuse.cc does, over OpenCL functions that only count.

#include <CL/cl.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <set>

extern "C" {
cl_context CL_API_CALL adt_opencl_create_context(
    const cl_context_properties*, cl_uint, const cl_device_id*,
    void(CL_CALLBACK*)(const char*, const void*, size_t, void*), void*, cl_int*);
cl_mem CL_API_CALL adt_opencl_create_buffer(cl_context, cl_mem_flags, size_t, void*, cl_int*);
cl_mem CL_API_CALL adt_opencl_create_image(cl_context, cl_mem_flags, const cl_image_format*,
                                           const cl_image_desc*, void*, cl_int*);
cl_int CL_API_CALL adt_opencl_release_memory(cl_mem);
}

namespace {

std::uintptr_t next = 1;
std::set<cl_mem> alive;
int made = 0;
bool full = false;  // no memory as long as anything was not released

cl_mem Make(cl_int* code) {
  if (full && !alive.empty()) {
    *code = CL_MEM_OBJECT_ALLOCATION_FAILURE;
    return nullptr;
  }
  *code = CL_SUCCESS;
  ++made;
  return *alive.insert(reinterpret_cast<cl_mem>(next++)).first;
}

#define CHECK(condition)                                         \
  if (!(condition)) {                                            \
    std::fprintf(stderr, "line %d: %s\n", __LINE__, #condition); \
    std::exit(1);                                                \
  }

cl_context Context(cl_uint devices) {
  cl_int code = CL_SUCCESS;
  return adt_opencl_create_context(nullptr, devices, nullptr, nullptr, nullptr, &code);
}

cl_mem Image(cl_context context, std::size_t width, cl_mem buffer = nullptr,
             cl_channel_type type = CL_FLOAT, cl_int* code = nullptr) {
  const cl_image_format format{CL_RGBA, type};
  cl_image_desc about{};
  about.image_type = CL_MEM_OBJECT_IMAGE2D_ARRAY;
  about.image_width = width;
  about.image_height = 8;
  about.image_array_size = 4;
  about.buffer = buffer;
  return adt_opencl_create_image(context, CL_MEM_READ_WRITE, &format, &about, nullptr, code);
}

void Release(cl_mem memory) { CHECK(adt_opencl_release_memory(memory) == CL_SUCCESS); }

}  // namespace

extern "C" {
cl_context CL_API_CALL clCreateContext(const cl_context_properties*, cl_uint, const cl_device_id*,
                                       void(CL_CALLBACK*)(const char*, const void*, size_t, void*),
                                       void*, cl_int*) {
  return reinterpret_cast<cl_context>(next++);
}
cl_mem CL_API_CALL clCreateBuffer(cl_context, cl_mem_flags, size_t, void*, cl_int* code) {
  return Make(code);
}
cl_mem CL_API_CALL clCreateImage(cl_context, cl_mem_flags, const cl_image_format*,
                                 const cl_image_desc*, void*, cl_int* code) {
  return Make(code);
}
cl_int CL_API_CALL clReleaseMemObject(cl_mem memory) {
  CHECK(alive.erase(memory) == 1);
  return CL_SUCCESS;
}
}

int main() {
  const cl_context one = Context(1), other = Context(1), shared = Context(2);
  cl_int code = CL_SUCCESS;

  // The same request gets the image that was released, another one does not.
  cl_mem first = Image(one, 16);
  Release(first);
  CHECK(alive.count(first) == 1);
  CHECK(Image(other, 16) != first);
  CHECK(Image(one, 17) != first);
  CHECK(Image(one, 16, nullptr, CL_HALF_FLOAT) != first);
  CHECK(Image(one, 16) == first);
  CHECK(Image(one, 16) != first);  // it is in use

  // A context of several devices has several queues.
  cl_mem of_many = Image(shared, 16);
  Release(of_many);
  CHECK(alive.count(of_many) == 0);

  // A view belongs to its buffer, and goes with it, whether it is in use or not.
  cl_mem buffer = adt_opencl_create_buffer(one, CL_MEM_READ_WRITE, 64, nullptr, &code);
  cl_mem twin = adt_opencl_create_buffer(one, CL_MEM_READ_WRITE, 64, nullptr, &code);
  cl_mem view = Image(one, 4, buffer);
  cl_mem used = Image(one, 4, buffer);
  Release(view);
  CHECK(Image(one, 4, twin) != view);
  Release(buffer);
  CHECK(alive.count(view) == 0 && alive.count(buffer) == 0 && alive.count(used) == 1);
  Release(used);
  CHECK(alive.count(used) == 0);

  // No more than so many, and not more memory than allowed: what is over is released at once.
  const int before = made;
  std::set<cl_mem> many;
  for (std::size_t i = 0; i < 300; ++i) many.insert(Image(one, 100 + i));
  for (cl_mem image : many) Release(image);
  int kept = 0;
  for (cl_mem image : many) kept += static_cast<int>(alive.count(image));
  CHECK(made == before + 300 && kept == 256);

  // Where memory lacks, what is kept goes before anybody is told so.
  full = true;
  const std::set<cl_mem> all = alive;
  for (cl_mem memory : all) {
    if (many.count(memory) == 0) Release(memory);
  }
  CHECK(!alive.empty());
  cl_mem after = Image(one, 5000, nullptr, CL_FLOAT, &code);
  CHECK(code == CL_SUCCESS && alive.size() == 1);
  CHECK(adt_opencl_create_buffer(one, CL_MEM_READ_WRITE, 64, nullptr, &code) == nullptr);
  CHECK(code == CL_MEM_OBJECT_ALLOCATION_FAILURE && alive.count(after) == 1);
  Release(after);
  CHECK(adt_opencl_create_buffer(one, CL_MEM_READ_WRITE, 64, nullptr, &code) != nullptr);
  full = false;

  // 128 MiB of memory of their own: the second of 100 MiB is not kept.
  const std::size_t wide = (std::size_t{100} << 20) / (16 * 8 * 4);
  cl_mem large = Image(one, wide), second = Image(one, wide);
  Release(large);
  Release(second);
  CHECK(alive.count(large) == 1 && alive.count(second) == 0);

  // What nobody has asked for in a long time makes room.
  for (int i = 0; i < 5000; ++i) Release(Image(one, 1));
  CHECK(alive.count(large) == 0);
  return 0;
}
