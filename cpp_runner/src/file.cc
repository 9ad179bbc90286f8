#include "file.h"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdio>
#include <system_error>

namespace adt {
namespace {

constexpr std::size_t kMostAtOnce = std::size_t{1} << 30;  // Linux takes less than 2 GiB

}  // namespace

FileDescriptor::~FileDescriptor() {
  if (fd_ >= 0) close(fd_);
}

FileDescriptor FileDescriptor::Open(const std::string& path, int flags) {
  return FileDescriptor(open(path.c_str(), O_RDONLY | O_CLOEXEC | flags));
}

FileDescriptor FileDescriptor::Create(const std::string& prefix, mode_t mode, std::string* path) {
  static std::atomic<unsigned> count{0};
  constexpr int kMostTries = 100;  // another process's, or of one that had this one's number
  FileDescriptor file;
  for (int i = 0; i < kMostTries && !file.valid(); ++i) {
    *path = prefix + std::to_string(getpid()) + "-" + std::to_string(count++);
    file = FileDescriptor(
        open(path->c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, mode));
    if (!file.valid() && errno != EEXIST) break;
  }
  return file;
}

bool FileDescriptor::Read(void* to, std::size_t size) const {
  auto* at = static_cast<char*>(to);
  while (size > 0) {
    const ssize_t n = read(fd_, at, std::min(size, kMostAtOnce));
    if (n < 0 && errno == EINTR) continue;
    if (n == 0) errno = EIO;  // it became shorter
    if (n <= 0) return false;
    at += n;
    size -= static_cast<std::size_t>(n);
  }
  return true;
}

bool FileDescriptor::Write(const void* from, std::size_t size) const {
  const auto* at = static_cast<const char*>(from);
  while (size > 0) {
    const ssize_t n = write(fd_, at, std::min(size, kMostAtOnce));
    if (n < 0 && errno == EINTR) continue;
    if (n == 0) errno = ENOSPC;
    if (n <= 0) return false;
    at += n;
    size -= static_cast<std::size_t>(n);
  }
  return true;
}

bool FileDescriptor::Close() { return close(std::exchange(fd_, -1)) == 0; }

NewFile::NewFile(const std::string& path, mode_t mode)
    : path_(path), file_(FileDescriptor::Create(path + kInfix, mode, &temporary_)) {
  if (file_.valid()) return;
  error_ = errno;
  temporary_.clear();
}

NewFile::~NewFile() {
  if (!temporary_.empty()) unlink(temporary_.c_str());
}

void NewFile::Write(const void* data, std::size_t size) {
  if (error_ == 0 && !file_.Write(data, size)) error_ = errno;
}

std::string NewFile::Complete(bool on_disk) {
  if (error_ == 0 && ((on_disk && fsync(file_.get()) != 0) || !file_.Close() ||
                      std::rename(temporary_.c_str(), path_.c_str()) != 0)) {
    error_ = errno;
  }
  if (error_ != 0) return ErrorText(error_);
  temporary_.clear();
  return {};
}

std::string ErrorText(int error) { return std::generic_category().message(error); }

}  // namespace adt
