#include "activity/tracker.h"

#include <array>
#include <chrono>
#include <cstdint>
#include <random>
#include <stdexcept>
#include <utility>

namespace adt::activity {
namespace {

// Of TVM's python/tvm/rpc/base.py: numbers are little endian, as all of Android's processors are.
constexpr std::int32_t kTrackerMagic = 0x2F271;
constexpr int kPut = 3, kUpdateInfo = 5, kPendingMatchKeys = 7;
constexpr const char* kSuccess = "0";
constexpr const char* kHost = "\"127.0.0.1\"";
constexpr std::int32_t kLongest = 1 << 20;  // bytes of an answer
constexpr std::chrono::seconds kPatience{10};

std::string Quoted(const std::string& text) { return '"' + text + '"'; }

std::string RandomDigits() {
  std::random_device random;
  return std::to_string(random()) + std::to_string(random());
}

}  // namespace

Tracker::Tracker(int port, std::string key, int server_port)
    : socket_(Socket::ConnectedTo(port)), key_(std::move(key)), server_port_(server_port) {
  socket_.LimitWaiting(kPatience);
  std::int32_t word = kTrackerMagic;
  socket_.Send(&word, sizeof word);
  socket_.ReceiveAll(&word, sizeof word);
  if (word != kTrackerMagic) throw std::runtime_error("what answers is no tracker");
  Command("[" + std::to_string(kUpdateInfo) + ", {\"key\": " + Quoted("server:" + key_) +
          ", \"addr\": [" + kHost + ", " + Quoted(std::to_string(server_port_)) + "]}]");
}

std::string Tracker::Offer() {
  std::string match_key = key_ + ":" + RandomDigits();
  Command("[" + std::to_string(kPut) + ", " + Quoted(key_) + ", [" + std::to_string(server_port_) +
          ", " + Quoted(match_key) + "], " + kHost + "]");
  return match_key;
}

bool Tracker::Waits(const std::string& match_key) {
  const std::string pending = Ask("[" + std::to_string(kPendingMatchKeys) + "]");
  return pending.find(Quoted(match_key)) != std::string::npos;
}

std::string Tracker::Ask(const std::string& question) {
  const auto length = static_cast<std::int32_t>(question.size());
  socket_.Send(&length, sizeof length);
  socket_.Send(question.data(), question.size());
  std::int32_t answered = 0;
  socket_.ReceiveAll(&answered, sizeof answered);
  if (answered < 0 || answered > kLongest) throw std::runtime_error("the tracker's answer is none");
  std::string answer(static_cast<std::size_t>(answered), '\0');
  socket_.ReceiveAll(answer.data(), answer.size());
  return answer;
}

void Tracker::Command(const std::string& question) {
  if (const std::string answer = Ask(question); answer != kSuccess) {
    throw std::runtime_error("the tracker refuses the server: " + answer);
  }
}

}  // namespace adt::activity
