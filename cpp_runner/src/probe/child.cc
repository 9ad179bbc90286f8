#include "probe/child.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <string>
#include <system_error>
#include <utility>

namespace adt::probe {
namespace {

using Clock = std::chrono::steady_clock;

class Descriptor {
 public:
  explicit Descriptor(int fd) : fd_(fd) {}
  ~Descriptor() { Close(); }
  Descriptor(Descriptor&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;

  int get() const { return fd_; }
  void Close() {
    if (fd_ >= 0) close(std::exchange(fd_, -1));
  }

 private:
  int fd_;
};

std::pair<Descriptor, Descriptor> Pipe() {
  std::array<int, 2> ends{};
  if (pipe2(ends.data(), O_CLOEXEC) != 0) {
    throw std::system_error(errno, std::generic_category(), "cannot make a pipe");
  }
  return {Descriptor(ends[0]), Descriptor(ends[1])};
}

[[noreturn]] void BeChild(const std::function<void(const RecordWriter&)>& ask, int out,
                          pid_t parent) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != parent) _exit(1);  // it died before the line above
  std::signal(SIGPIPE, SIG_IGN);
  const rlimit none{0, 0};
  setrlimit(RLIMIT_CORE, &none);
  dup2(STDERR_FILENO, STDOUT_FILENO);  // drivers print; stdout is for the report
  try {
    ask(RecordWriter(out));
  } catch (...) {
    _exit(1);
  }
  _exit(0);  // without the destructors of drivers
}

/// Read until the child has said kDone, closed the pipe or run out of time.
std::string ReadAll(int fd, Clock::time_point end) {
  std::string bytes;
  std::array<char, 4096> buffer{};
  const std::string done = {static_cast<char>(Kind::kDone), '\0'};
  while (true) {
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(end - Clock::now());
    if (left.count() <= 0) return bytes;
    pollfd waiting{fd, POLLIN, 0};
    const int ready = poll(&waiting, 1, static_cast<int>(left.count()));
    if (ready < 0 && errno != EINTR) return bytes;
    if (ready <= 0) continue;
    const ssize_t n = read(fd, buffer.data(), buffer.size());
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return bytes;
    bytes.append(buffer.data(), static_cast<std::size_t>(n));
    const bool last = bytes.size() >= 3 && bytes.compare(bytes.size() - 2, 2, done) == 0 &&
                      bytes[bytes.size() - 3] == '\0';
    if (last) return bytes;
  }
}

/// Wait for the child until *end*, then end it.
void Reap(pid_t child, Clock::time_point end, Told* told) {
  int status = 0;
  while (true) {
    const pid_t got = waitpid(child, &status, WNOHANG);
    if (got == child) break;
    if (got < 0 && errno != EINTR) return;
    if (Clock::now() >= end) {
      told->timed_out = true;
      kill(child, SIGKILL);
      while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
      }
      return;
    }
    poll(nullptr, 0, 2);
  }
  if (WIFSIGNALED(status)) told->signal = WTERMSIG(status);
  if (WIFEXITED(status)) told->exit_code = WEXITSTATUS(status);
}

}  // namespace

Told InChild(const std::function<void(const RecordWriter&)>& ask, std::chrono::milliseconds limit) {
  const auto end = Clock::now() + limit;
  auto [reader, writer] = Pipe();
  const pid_t parent = getpid();
  const pid_t child = fork();
  if (child < 0) throw std::system_error(errno, std::generic_category(), "cannot fork");
  if (child == 0) BeChild(ask, writer.get(), parent);
  writer.Close();
  Told told;
  told.records = ParseRecords(ReadAll(reader.get(), end));
  Reap(child, end, &told);
  return told;
}

}  // namespace adt::probe
