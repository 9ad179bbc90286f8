// Typed access to a parsed JSON object; every error names the field.
#pragma once

#include <tvm/ffi/extra/json.h>

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace adt {

/// One object of a JSON document. Fields that nobody asks for, of a newer writer, are passed over.
class JsonReader {
 public:
  /// Parse *text*; *name* is for messages. Throws Error(kPackage).
  static JsonReader Parse(const std::string& text, const std::string& name);

  bool Has(const std::string& key) const;
  /// It is there, and not null.
  bool HasValue(const std::string& key) const;
  std::string String(const std::string& key);
  std::int64_t Int(const std::string& key);
  bool Bool(const std::string& key);
  std::vector<std::string> Strings(const std::string& key);
  JsonReader Object(const std::string& key);
  std::vector<JsonReader> Objects(const std::string& key);
  std::map<std::string, JsonReader> ObjectsByName(const std::string& key);
  /// A number or a string at each place; exactly one of the pair's members is set.
  std::vector<std::pair<std::int64_t, std::string>> IntsOrStrings(const std::string& key);
  /// Throw Error(kPackage) about the field *key*.
  [[noreturn]] void Fail(const std::string& key, const std::string& problem) const;

 private:
  using Value = tvm::ffi::json::Value;

  JsonReader(tvm::ffi::json::Object object, std::string path)
      : object_(std::move(object)), path_(std::move(path)) {}
  Value Get(const std::string& key) const;
  template <typename T>
  T Get(const std::string& key, const char* expected);
  JsonReader Wrap(const std::string& key, const Value& value) const;

  tvm::ffi::json::Object object_;
  std::string path_;  // where this object is, e.g. "mod.json: entries[0]."
};

}  // namespace adt
