// Keeps rtvm's stdout and stderr its own while TVM and drivers run in the same process.
#pragma once

#include <sstream>
#include <streambuf>
#include <string>

namespace adt::rtvm {

/// While it lives, what anyone else writes to stdout goes to stderr. One at a time.
class OwnStdout {
 public:
  OwnStdout();
  ~OwnStdout();
  OwnStdout(const OwnStdout&) = delete;
  OwnStdout& operator=(const OwnStdout&) = delete;

  /// Write to the real stdout. Throws Error(kInput) when that fails.
  void Write(const std::string& text) const;

 private:
  int real_;
};

/// While it lives, std::cerr (where TVM logs) is kept instead of shown.
class QuietLog {
 public:
  QuietLog();
  ~QuietLog();
  QuietLog(const QuietLog&) = delete;
  QuietLog& operator=(const QuietLog&) = delete;

  /// The last lines that were kept.
  std::string Tail() const;

 private:
  std::ostringstream kept_;
  std::streambuf* shown_;
};

}  // namespace adt::rtvm
