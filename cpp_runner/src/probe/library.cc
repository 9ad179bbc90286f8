#include "probe/library.h"

#include <dlfcn.h>

#include "probe/text.h"

namespace adt::probe {
namespace {

constexpr const char* kPixelLibrary = "libOpenCL-pixel.so";

}  // namespace

Library::Library(const std::string& name) : handle_(dlopen(name.c_str(), RTLD_LAZY)) {
  if (handle_ == nullptr) {
    const char* said = dlerror();
    throw NotLoaded(said != nullptr ? Clean(said) : "the dynamic linker does not say why");
  }
  if (name != kPixelLibrary) return;
  // Google's phones: OpenCL is switched on first, and functions come from a look-up.
  const auto enable = reinterpret_cast<void (*)()>(dlsym(handle_, "enableOpenCL"));
  if (enable == nullptr) throw NotLoaded("it loads, but has no function enableOpenCL");
  enable();
  lookup_ = reinterpret_cast<void* (*)(const char*)>(dlsym(handle_, "loadOpenCLPointer"));
  if (lookup_ == nullptr) throw NotLoaded("it loads, but has no function loadOpenCLPointer");
}

void* Library::Address(const char* name) const {
  return lookup_ != nullptr ? lookup_(name) : dlsym(handle_, name);
}

std::optional<std::string> Library::FileOf(const char* function) const {
  Dl_info found{};
  void* address = Address(function);
  if (address == nullptr || dladdr(address, &found) == 0 || found.dli_fname == nullptr) return {};
  return Clean(found.dli_fname);
}

}  // namespace adt::probe
