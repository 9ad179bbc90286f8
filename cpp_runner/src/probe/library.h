// An OpenCL library, opened as TVM's runtime opens it.
#pragma once

#include <optional>
#include <stdexcept>
#include <string>

namespace adt::probe {

/// The dynamic linker did not load it, or TVM would pass it over; what() says why.
class NotLoaded : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// Stays open until the process ends: some drivers crash when they are closed.
class Library {
 public:
  /// Throws NotLoaded.
  explicit Library(const std::string& name);

  /// The function *name*; nullptr when the library has none.
  template <typename Function>
  Function Find(const char* name) const {
    return reinterpret_cast<Function>(Address(name));
  }

  /// The file that a function of the library lies in, as the dynamic linker names it.
  std::optional<std::string> FileOf(const char* function) const;

 private:
  void* Address(const char* name) const;

  void* handle_;
  void* (*lookup_)(const char*) = nullptr;  // libOpenCL-pixel.so has a look-up of its own
};

}  // namespace adt::probe
