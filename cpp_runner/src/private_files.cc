#include "private_files.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <system_error>

#include "file.h"

namespace adt {

const char* OthersProblem(const struct stat& status, mode_t writable) {
  if (status.st_uid != geteuid()) return "is another user's";
  if ((status.st_mode & writable) != 0) return "may be written by other users";
  return nullptr;
}

PrivateFile ReadPrivateFile(const std::string& path, std::uint64_t most) {
  PrivateFile read;
  // A pipe under this name must not stop us.
  const FileDescriptor file = FileDescriptor::Open(path, O_NONBLOCK | O_NOFOLLOW);
  if (!file.valid()) {
    read.exists = errno != ENOENT && errno != ENOTDIR;
    if (read.exists) read.problem = "cannot be read: " + ErrorText(errno);
    return read;
  }
  read.exists = true;
  struct stat status{};
  if (fstat(file.get(), &status) != 0 || !S_ISREG(status.st_mode)) {
    read.problem = "is no file";
  } else if (const char* problem = OthersProblem(status, S_IWGRP | S_IWOTH)) {
    read.problem = problem;
  } else if (static_cast<std::uint64_t>(status.st_size) > most) {
    read.problem = "is larger than such a file can be";
  } else {
    read.bytes.resize(static_cast<std::size_t>(status.st_size));
    if (!file.Read(read.bytes.data(), read.bytes.size())) read.problem = "cannot be read";
  }
  return read;
}

std::string MakePrivateDirectory(const std::string& path) {
  std::error_code failed;
  std::filesystem::create_directories(std::filesystem::path(path).parent_path(), failed);
  mkdir(path.c_str(), 0700);  // or it is there
  struct stat status{};
  if (stat(path.c_str(), &status) != 0) return ErrorText(errno);
  if (!S_ISDIR(status.st_mode)) return ErrorText(ENOTDIR);
  // A group's: Android gives each application's cache directory one, of the application's own.
  const char* problem = OthersProblem(status, S_IWOTH);
  return problem != nullptr ? problem : "";
}

}  // namespace adt
