#include "rtvm/streams.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <iostream>
#include <system_error>

#include "error.h"

namespace adt::rtvm {

OwnStdout::OwnStdout() : real_(fcntl(STDOUT_FILENO, F_DUPFD_CLOEXEC, 3)) {
  if (real_ >= 0) dup2(STDERR_FILENO, STDOUT_FILENO);
}

OwnStdout::~OwnStdout() {
  std::fflush(stdout);
  if (real_ < 0) return;
  dup2(real_, STDOUT_FILENO);
  close(real_);
}

void OwnStdout::Write(const std::string& text) const {
  std::size_t written = 0;
  while (written < text.size()) {
    const ssize_t n = write(real_, text.data() + written, text.size() - written);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) {
      throw Error(ErrorKind::kInput,
                  "cannot write to stdout: " + std::generic_category().message(errno),
                  "Check what stdout is connected to.");
    }
    written += static_cast<std::size_t>(n);
  }
}

QuietLog::QuietLog() : shown_(std::cerr.rdbuf(kept_.rdbuf())) {}

QuietLog::~QuietLog() { std::cerr.rdbuf(shown_); }

std::string QuietLog::Tail() const {
  constexpr std::size_t kMax = 4000;
  const std::string all = kept_.str();
  return all.size() > kMax ? "…" + all.substr(all.size() - kMax) : all;
}

}  // namespace adt::rtvm
