// Errors that say what happened and what to do about it.
#pragma once

#include <stdexcept>
#include <string>

namespace adt {

/// What went wrong; the value is rtvm's exit code.
enum class ErrorKind {
  kUsage = 2,    ///< the caller asked for something that does not exist
  kPackage = 3,  ///< the package is damaged, or does not fit this runner or this device
  kInput = 4,    ///< input or output data does not fit the entry, or cannot be read or written
  kRun = 5,      ///< the model was loaded and failed
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
