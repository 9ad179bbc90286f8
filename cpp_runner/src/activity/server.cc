#include "activity/server.h"

#include <tvm/ffi/extra/module.h>
#include <tvm/ffi/function.h>
#include <tvm/ffi/string.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <optional>
#include <sstream>
#include <stdexcept>
#include <string_view>
#include <thread>
#include <utility>

#include "activity/log.h"
#include "activity/socket.h"
#include "activity/tracker.h"

namespace adt::activity {
namespace {

namespace ffi = tvm::ffi;
namespace fs = std::filesystem;

// Of TVM's src/runtime/rpc/rpc_endpoint.h.
constexpr std::int32_t kMagic = 0xFF271, kAccepted = kMagic, kMismatch = kMagic + 2;
constexpr std::int32_t kLongestKey = 1 << 16;
constexpr std::size_t kMostReceived = 1 << 20;
constexpr std::chrono::seconds kHelloTime{5};
constexpr std::chrono::seconds kRetry{1};
constexpr std::chrono::seconds kTick{2};
constexpr int kUnusedTicks = 3;  // a client that took the offer and has not come by then does not

struct Client {
  Socket socket;
  /// How long it may stay; 0 for ever.
  unsigned seconds;
};

// *text* is "KEY" or "KEY -timeout=SECONDS", as TVM's clients say it.
unsigned SecondsOf(const std::string& text) {
  constexpr std::string_view kOption = "-timeout=";
  const std::size_t found = text.rfind(kOption);
  if (found == std::string::npos) return 0;
  return static_cast<unsigned>(std::strtoul(text.c_str() + found + kOption.size(), nullptr, 10));
}

// The client, if it is the one that is expected.
std::optional<Client> Greet(Socket socket, const std::string& key, const std::string& match_key) {
  socket.LimitWaiting(kHelloTime);
  std::int32_t word = 0;
  std::int32_t length = 0;
  socket.ReceiveAll(&word, sizeof word);
  socket.ReceiveAll(&length, sizeof length);
  if (word != kMagic || length < 0 || length > kLongestKey) return {};
  std::string said(static_cast<std::size_t>(length), '\0');
  socket.ReceiveAll(said.data(), said.size());
  std::string name;
  std::istringstream(said) >> name;
  word = name == "client:" + match_key ? kAccepted : kMismatch;
  socket.Send(&word, sizeof word);
  if (word != kAccepted) return {};
  const std::string own = "server:" + key;
  length = static_cast<std::int32_t>(own.size());
  socket.Send(&length, sizeof length);
  socket.Send(own.data(), own.size());
  socket.LimitWaiting(std::chrono::seconds(0));
  return Client{std::move(socket), SecondsOf(said)};
}

// Whoever the tracker sends next.
Client Offered(const ServerPlan& plan, const Socket& listening, Tracker* tracker) {
  std::string match_key = tracker->Offer();
  int unused = 0;
  while (true) {
    if (!listening.Readable(kTick)) {
      unused = tracker->Waits(match_key) ? 0 : unused + 1;
      if (unused < kUnusedTicks) continue;
      match_key = tracker->Offer();
      unused = 0;
      continue;
    }
    try {
      if (auto client = Greet(listening.Accept(), plan.key, match_key)) return std::move(*client);
    } catch (const std::exception& error) {
      LogInfo(std::string("a client is turned away: ") + error.what());
    }
  }
}

// The same, whatever becomes of the tracker meanwhile.
Client NextClient(const ServerPlan& plan, const Socket& listening, std::optional<Tracker>* tracker,
                  const std::function<void()>& registered) {
  for (bool told = false;; std::this_thread::sleep_for(kRetry)) {
    try {
      if (!*tracker) {
        tracker->emplace(plan.tracker_port, plan.key, plan.port);
        LogInfo("registered as " + plan.key + " at port " + std::to_string(plan.port));
        registered();
      }
      return Offered(plan, listening, &**tracker);
    } catch (const std::exception& error) {
      tracker->reset();
      if (!std::exchange(told, true)) LogError(std::string("no tracker: ") + error.what());
    }
  }
}

// Paths that clients name lie in *directory*, unless they are absolute.
void UseDirectory(const fs::path& directory) {
  constexpr bool kOverride = true;
  const auto path = [directory](const ffi::String& name) {
    return (directory / std::string(name)).string();
  };
  ffi::Function::SetGlobal(
      "tvm.rpc.server.workpath",
      ffi::Function::FromTyped([path](const ffi::String& name) { return ffi::String(path(name)); }),
      kOverride);
  ffi::Function::SetGlobal("tvm.rpc.server.load_module",
                           ffi::Function::FromTyped([path](const ffi::String& name) {
                             return ffi::Module::LoadFromFile(path(name));
                           }),
                           kOverride);
}

// Do what the client asks, to its end; false when it was gone without having said so.
bool ServeClient(const Client& client) {
  bool hung_up = false;
  const auto send = ffi::Function::FromPacked([&](ffi::PackedArgs arguments, ffi::Any* sent) {
    const auto* bytes = arguments[0].cast<TVMFFIByteArray*>();
    client.socket.Send(bytes->data, bytes->size);
    *sent = static_cast<std::int64_t>(bytes->size);
  });
  const auto receive = ffi::Function::FromTyped([&](std::int64_t most) {
    std::string bytes(std::min(static_cast<std::size_t>(most), kMostReceived), '\0');
    bytes.resize(client.socket.Receive(bytes.data(), bytes.size()));
    hung_up = bytes.empty();
    return ffi::Bytes(std::move(bytes));
  });
  const auto loop = ffi::Function::GetGlobal("rpc.ServerLoop");
  if (!loop) throw std::runtime_error("the bundle was built without RPC");
  alarm(client.seconds);  // its signal ends the process, whatever computes
  (*loop)(send, receive);
  alarm(0);
  return !hung_up;
}

void ServeAll(const ServerPlan& plan, const std::function<void()>& registered) {
  const Socket listening = Socket::ListeningAt(plan.port);
  std::optional<Tracker> tracker;
  for (int session = 1;; ++session) {
    fs::remove_all(plan.directory);
    // another one each time: a library that is still loaded is known by its path, and used from it
    const fs::path directory = fs::path(plan.directory) / std::to_string(session);
    const Client client = NextClient(plan, listening, &tracker, registered);
    fs::create_directories(directory);
    UseDirectory(directory);
    LogInfo("session " + std::to_string(session) + " begins");
    if (!ServeClient(client)) throw std::runtime_error("its client was gone");
    LogInfo("session " + std::to_string(session) + " is over");
  }
}

}  // namespace

void Serve(const ServerPlan& plan, const std::function<void()>& registered) {
  try {
    ServeAll(plan, registered);
  } catch (const std::exception& error) {
    LogError(std::string("the server ends: ") + error.what());
  }
  std::_Exit(EXIT_FAILURE);
}

}  // namespace adt::activity
