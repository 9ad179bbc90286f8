// What TVM's OpenCL wrapper calls in place of dlopen(), except on Android.
//
// It asks for libOpenCL.so, a name that comes with development packages; drivers and loaders
// install libOpenCL.so.1.
#include <dlfcn.h>

#include <cstring>

extern "C" void* adt_open_opencl(const char* name, int mode) {
  void* library = dlopen(name, mode);
  if (library == nullptr && std::strcmp(name, "libOpenCL.so") == 0) {
    library = dlopen("libOpenCL.so.1", mode);
  }
  return library;
}
