// Writes one JSON document, indented, in the order of the calls.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace adt {

/// Begin and end calls must pair; inside an object every value follows a Key.
class JsonWriter {
 public:
  JsonWriter& BeginObject() { return Begin('{'); }
  JsonWriter& EndObject() { return End('}'); }
  JsonWriter& BeginArray() { return Begin('['); }
  JsonWriter& EndArray() { return End(']'); }
  JsonWriter& Key(std::string_view key);

  JsonWriter& String(std::string_view text);
  JsonWriter& Int(std::int64_t value);
  JsonWriter& Unsigned(std::uint64_t value);
  /// A number with six decimals.
  JsonWriter& Fixed(double value);
  JsonWriter& Bool(bool value);
  JsonWriter& Null();
  JsonWriter& Strings(const std::vector<std::string>& items);
  /// Another writer's finished document as a value.
  JsonWriter& Document(std::string_view json);

  /// The document, with a newline at its end.
  std::string Finish() const { return out_ + "\n"; }

 private:
  JsonWriter& Begin(char bracket);
  JsonWriter& End(char bracket);
  JsonWriter& Raw(std::string_view text);
  void BeforeValue();
  void NewLine();

  std::string out_;
  std::vector<bool> filled_;  // for each open bracket: is there an item in it
  bool after_key_ = false;
};

}  // namespace adt
