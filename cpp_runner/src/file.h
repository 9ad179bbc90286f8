// Open files, and files that appear complete or not at all.
#pragma once

#include <fcntl.h>
#include <sys/types.h>

#include <cstddef>
#include <string>
#include <utility>

namespace adt {

/// An open file, or none; closed at the end.
class FileDescriptor {
 public:
  explicit FileDescriptor(int fd = -1) : fd_(fd) {}
  ~FileDescriptor();
  FileDescriptor(FileDescriptor&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  FileDescriptor& operator=(FileDescriptor&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }

  /// For reading; invalid, with errno, when it cannot be. *flags* are open()'s, in addition.
  static FileDescriptor Open(const std::string& path, int flags = 0);
  /// A file that was not there, *prefix* and a number: *path*. Invalid, with errno.
  static FileDescriptor Create(const std::string& prefix, mode_t mode, std::string* path);

  int get() const { return fd_; }
  bool valid() const { return fd_ >= 0; }
  /// Read or write all of *size* bytes. False, with errno.
  bool Read(void* to, std::size_t size) const;
  bool Write(const void* from, std::size_t size) const;
  /// False, with errno, when the kernel could not write everything out.
  bool Close();

 private:
  int fd_;
};

/// A file that has another name beside *path* until it is complete.
class NewFile {
 public:
  /// What follows the path in that name, before a number.
  static constexpr const char* kInfix = ".new-";

  NewFile(const std::string& path, mode_t mode);
  /// Removes what was not completed.
  ~NewFile();
  NewFile(const NewFile&) = delete;
  NewFile& operator=(const NewFile&) = delete;

  void Write(const void* data, std::size_t size);
  /// Give the file its name, when all of it is on its disk; or, where it is of no use after a
  /// crash, when the kernel has it. Returns why that did not work; empty when it did.
  std::string Complete(bool on_disk = true);

 private:
  std::string path_;
  std::string temporary_;  // empty when there is none
  FileDescriptor file_;
  int error_ = 0;  // the first one
};

/// errno in words.
std::string ErrorText(int error);

}  // namespace adt
