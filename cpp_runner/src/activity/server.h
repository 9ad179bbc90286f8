// TVM's RPC server as an application has it: one process, without a fork, which no process with
// OpenCL survives. Sessions follow one another in it, and so share compiled programs.
#pragma once

#include <functional>
#include <string>

namespace adt::activity {

struct ServerPlan {
  /// What clients ask the tracker for.
  std::string key;
  /// Of the loopback, which adb carries to clients.
  int port = 0;
  /// Where the loopback leads to the tracker.
  int tracker_port = 0;
  /// What clients send lies here while they are there. Emptied first.
  std::string directory;
};

/// Serve one client after another until the process ends. It ends when one is gone without having
/// said so, or had its time: nobody else would free what such a client has left on the device, nor
/// stop what still computes for it. Whoever started the process starts it again. *registered* is
/// called when a tracker knows the server, which keeps looking for one that is gone. Throws
/// nothing.
[[noreturn]] void Serve(const ServerPlan& plan, const std::function<void()>& registered);

}  // namespace adt::activity
