// TVM's tracker, as a server speaks to it.
#pragma once

#include <string>

#include "activity/socket.h"

namespace adt::activity {

/// A connection by which the tracker knows the server; it forgets it when that ends. What goes
/// wrong throws std::exception, and the connection is good for nothing any more.
class Tracker {
 public:
  /// Connect to the one behind *port* of the loopback, and register a server that clients reach at
  /// 127.0.0.1:*server_port*.
  Tracker(int port, std::string key, int server_port);

  /// Offer the server to the next client, who will say what this gives: a new key each time.
  std::string Offer();
  /// Whether nobody has taken that offer yet.
  bool Waits(const std::string& match_key);

 private:
  std::string Ask(const std::string& question);
  void Command(const std::string& question);

  Socket socket_;
  std::string key_;
  int server_port_;
};

}  // namespace adt::activity
