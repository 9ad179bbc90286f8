// What TVM's OpenCL wrapper calls in place of dlopen().
//
// The library stays open when the wrapper closes it at the process's end: some drivers crash then.
// And TVM asks for libOpenCL.so, a name that comes with development packages; except on Android,
// drivers and loaders install libOpenCL.so.1.
#include <dlfcn.h>

#include <cstring>

extern "C" void* adt_open_opencl(const char* name, int mode) {
  void* library = dlopen(name, mode | RTLD_NODELETE);
#ifndef __ANDROID__
  if (library == nullptr && std::strcmp(name, "libOpenCL.so") == 0) {
    library = dlopen("libOpenCL.so.1", mode | RTLD_NODELETE);
  }
#endif
  return library;
}
