// TCP between programs of one device.
#pragma once

#include <chrono>
#include <cstddef>

namespace adt::activity {

/// A socket of the loopback, closed with the object. What the system refuses throws
/// std::system_error; so does an end of the connection where more was expected.
class Socket {
 public:
  static Socket ConnectedTo(int port);
  static Socket ListeningAt(int port);

  Socket(Socket&& other) noexcept;
  Socket& operator=(Socket&& other) noexcept;
  ~Socket();

  Socket Accept() const;
  /// Whether something is there to receive, or to accept, within *time*.
  bool Readable(std::chrono::milliseconds time) const;
  /// Wait at most so long for each byte to receive; 0 for ever.
  void LimitWaiting(std::chrono::seconds time) const;
  void Send(const void* data, std::size_t size) const;
  /// At least one byte, at most *size*; 0 when the other end hung up.
  std::size_t Receive(void* data, std::size_t size) const;
  void ReceiveAll(void* data, std::size_t size) const;

 private:
  explicit Socket(int fd) : fd_(fd) {}

  int fd_;
};

}  // namespace adt::activity
