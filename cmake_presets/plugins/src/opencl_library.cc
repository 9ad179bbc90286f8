// What TVM's OpenCL wrapper calls in place of dlopen().
//
// It asks for libOpenCL.so, a name that comes with development packages; drivers and loaders
// install libOpenCL.so.1, which is tried first.
#include <dlfcn.h>

#include <cstring>

extern "C" void* adt_open_opencl(const char* name, int mode) {
  if (std::strcmp(name, "libOpenCL.so") == 0) {
    if (void* library = dlopen("libOpenCL.so.1", mode)) return library;
  }
  return dlopen(name, mode);
}
