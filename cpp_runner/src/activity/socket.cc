#include "activity/socket.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <string>
#include <system_error>
#include <utility>

namespace adt::activity {
namespace {

[[noreturn]] void Fail(const std::string& what, int code = errno) {
  throw std::system_error(code, std::generic_category(), what);
}

sockaddr_in Loopback(int port) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<std::uint16_t>(port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  return address;
}

int Created() {
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (fd < 0) Fail("no socket can be made");
  return fd;
}

// Requests are small, and each waits for its answer.
void SendAtOnce(int fd) {
  const int on = 1;
  setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
}

template <typename Call>
auto Restarted(const Call& call) {
  auto result = call();
  while (result < 0 && errno == EINTR) result = call();
  return result;
}

}  // namespace

Socket Socket::ConnectedTo(int port) {
  Socket made(Created());
  const sockaddr_in address = Loopback(port);
  if (connect(made.fd_, reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0) {
    Fail("nothing answers at port " + std::to_string(port));
  }
  SendAtOnce(made.fd_);
  return made;
}

Socket Socket::ListeningAt(int port) {
  Socket made(Created());
  const int on = 1;  // though the kernel still holds connections of a server that has ended
  setsockopt(made.fd_, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  const sockaddr_in address = Loopback(port);
  if (bind(made.fd_, reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0 ||
      listen(made.fd_, SOMAXCONN) != 0) {
    Fail("port " + std::to_string(port) + " cannot be listened at");
  }
  return made;
}

Socket::Socket(Socket&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}

Socket& Socket::operator=(Socket&& other) noexcept {
  std::swap(fd_, other.fd_);
  return *this;
}

Socket::~Socket() {
  if (fd_ >= 0) close(fd_);
}

Socket Socket::Accept() const {
  const int fd = Restarted([&] { return accept4(fd_, nullptr, nullptr, SOCK_CLOEXEC); });
  if (fd < 0) Fail("a client cannot be accepted");
  SendAtOnce(fd);
  return Socket(fd);
}

bool Socket::Readable(std::chrono::milliseconds time) const {
  pollfd waited{fd_, POLLIN, 0};
  return poll(&waited, 1, static_cast<int>(time.count())) > 0;
}

void Socket::LimitWaiting(std::chrono::seconds time) const {
  timeval limit{};
  limit.tv_sec = static_cast<decltype(limit.tv_sec)>(time.count());
  setsockopt(fd_, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
}

void Socket::Send(const void* data, std::size_t size) const {
  const auto* bytes = static_cast<const char*>(data);
  while (size > 0) {
    const ssize_t sent = Restarted([&] { return send(fd_, bytes, size, MSG_NOSIGNAL); });
    if (sent < 0) Fail("sending fails");
    bytes += sent;
    size -= static_cast<std::size_t>(sent);
  }
}

std::size_t Socket::Receive(void* data, std::size_t size) const {
  const ssize_t received = Restarted([&] { return recv(fd_, data, size, 0); });
  if (received < 0) Fail("receiving fails");
  return static_cast<std::size_t>(received);
}

void Socket::ReceiveAll(void* data, std::size_t size) const {
  auto* bytes = static_cast<char*>(data);
  while (size > 0) {
    const std::size_t received = Receive(bytes, size);
    if (received == 0) Fail("the other end hung up", ECONNRESET);
    bytes += received;
    size -= received;
  }
}

}  // namespace adt::activity
