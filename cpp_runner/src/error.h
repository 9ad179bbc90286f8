// Errors that say what happened and what to do about it.
#pragma once

#include <stdexcept>
#include <string>

namespace adt {

/// What went wrong; the value is rtvm's exit code.
enum class ErrorKind {
  kUsage = 2,        ///< the caller asked for something that does not exist
  kPackage = 3,      ///< the package is damaged, or a file of it is missing
  kInput = 4,        ///< input or output data does not fit the entry, or cannot be read or written
  kRun = 5,          ///< the model was loaded and failed
  kMismatch = 6,     ///< the package is whole, and for another runner, machine or device
  kNoDevice = 7,     ///< this machine or this runner has no such device
  kDeviceLost = 8,   ///< the device failed, and does nothing more for this process
  kOutOfMemory = 9,  ///< this machine's memory, or the device's
  kCancelled = 10,   ///< the program wanted the run to end
};

/// The only exception that the library throws, besides std::bad_alloc.
class Error : public std::runtime_error {
 public:
  Error(ErrorKind kind, const std::string& what, std::string remedy);
  Error(const Error&) = default;
  Error& operator=(const Error&) = default;
  ~Error() override;

  ErrorKind kind() const noexcept { return kind_; }
  /// What the user can do now; never empty.
  const std::string& remedy() const noexcept { return remedy_; }

 private:
  ErrorKind kind_;
  std::string remedy_;
};

}  // namespace adt
