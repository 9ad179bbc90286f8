// What a child process tells its parent, one record after another, so that a crash loses only what
// was not said yet.
#pragma once

#include <string>
#include <vector>

namespace adt::probe {

enum class Kind : char {
  kStage = 's',      // what is about to be done, for the case that it does not come back
  kNotLoaded = 'n',  // why the library was not loaded; nothing follows
  kPath = 'l',       // it is loaded, from this file (empty: unknown)
  kUnusable = 'u',   // why it is of no use although it is loaded
  kPlatform = 'p',   // one platform with its devices, as JSON
  kClml = 'c',       // one version of CLML, as MAJOR.MINOR
  kDone = 'd',       // all was asked
};

struct Record {
  Kind kind;
  std::string text;  // has no zero byte
};

/// Writes records to a pipe; one that nobody reads any more is dropped.
class RecordWriter {
 public:
  explicit RecordWriter(int fd) : fd_(fd) {}
  void Write(Kind kind, const std::string& text = "") const;

 private:
  int fd_;
};

/// The whole records in *bytes*; one that was cut off at the end is not in it.
std::vector<Record> ParseRecords(const std::string& bytes);

}  // namespace adt::probe
