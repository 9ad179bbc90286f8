#pragma once

#include <fcntl.h>
#include <stdlib.h>

#include <string>

namespace adt {

/// Makes a file of which *path*, which ends in XXXXXX, becomes the name; returns its descriptor, or
/// -1 with errno. mkostemp would do it in one call; bionic has that only from API level 23 on.
inline int MakeTemporaryFile(std::string& path) {
  const int fd = mkstemp(path.data());
  if (fd >= 0) fcntl(fd, F_SETFD, FD_CLOEXEC);
  return fd;
}

}  // namespace adt
