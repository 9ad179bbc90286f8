// What TVM's OpenCL wrapper calls in place of dlopen(), and the library's functions that the
// wrapper does not have.
//
// The library stays open when the wrapper closes it at the process's end: some drivers crash then.
// And TVM asks for libOpenCL.so, a name that comes with development packages; except on Android,
// drivers and loaders install libOpenCL.so.1.
#include <dlfcn.h>

#include <atomic>
#include <cstring>

namespace {

std::atomic<void*> opened{nullptr};  // the last one

}  // namespace

extern "C" void* adt_open_opencl(const char* name, int mode) {
  void* library = dlopen(name, mode | RTLD_NODELETE);
#ifndef __ANDROID__
  if (library == nullptr && std::strcmp(name, "libOpenCL.so") == 0) {
    library = dlopen("libOpenCL.so.1", mode | RTLD_NODELETE);
  }
#endif
  if (library != nullptr) opened = library;
  return library;
}

// Null where there is none. A library that was linked was not opened here.
extern "C" void* adt_opencl_function(const char* name) {
  void* library = opened;
  if (library == nullptr) library = dlopen("libOpenCL.so", RTLD_LAZY | RTLD_NOLOAD);
  return library == nullptr ? nullptr : dlsym(library, name);
}
