// Where the files of a package are: a directory, memory, or parts of open files.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "error.h"

namespace adt {

/// The contents of a file, to be read only. What is a file is mapped, not copied, for as long as a
/// copy of this is there.
class Blob {
 public:
  /// Bytes that somebody else keeps for as long as this lives.
  static Blob Borrow(const void* data, std::size_t size);
  /// *size* bytes of an open file from *offset* on; -1 for all up to its end. The descriptor's
  /// position and the descriptor itself stay the caller's. *name* is for messages. Throws
  /// Error(*kind*).
  static Blob MapPart(int fd, std::int64_t offset, std::int64_t size, const std::string& name,
                      ErrorKind kind = ErrorKind::kPackage);
  /// A whole file. Throws Error(*kind*), with *remedy* when it cannot be opened.
  static Blob MapFile(const std::string& path, const std::string& remedy,
                      ErrorKind kind = ErrorKind::kPackage);

  bool empty() const { return size_ == 0; }
  /// Whether these bytes stay where they are for as long as a copy of this is there.
  bool mapped() const { return mapping_ != nullptr; }
  const std::byte* data() const { return data_; }
  std::size_t size() const { return size_; }
  /// Have a part of these bytes read while something else is done.
  void Expect(const std::byte* part, std::size_t size) const noexcept;
  /// Give back the memory of a part of these bytes: what reads them again reads the file again.
  void Forget(const std::byte* part, std::size_t size) const noexcept;
  /// A text that these bytes, and no others, have until this machine is started again: it changes
  /// with every change of the file. Empty where others may write the file, or it has just changed.
  const std::string& version() const;
  std::string_view text() const { return {reinterpret_cast<const char*>(data_), size_}; }

 private:
  const std::byte* data_ = nullptr;
  std::size_t size_ = 0;
  struct Mapping;
  std::shared_ptr<const Mapping> mapping_;  // none for borrowed bytes
};

/// The three files. The names are for messages: paths where there are paths.
struct Source {
  std::string manifest_name = "mod.json";
  std::string params_name = "mod.params";
  /// Empty: the library has no name that the dynamic linker knows, only bytes.
  std::string library_path;
  Blob manifest;
  Blob params;
  /// Empty when only the dynamic linker can read it.
  Blob library;

  /// What to call the library in messages.
  const std::string& library_name() const;
};

/// The package in a directory, as adt compile writes it. Throws Error(kPackage): a file is missing.
Source OpenDirectory(const std::string& directory);

/// A library as dlopen takes it. Its bytes are there only when *path* is a file's.
void UseLibrary(const std::string& path, Source* source);

}  // namespace adt
