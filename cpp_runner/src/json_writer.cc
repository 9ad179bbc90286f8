#include "json_writer.h"

#include <array>
#include <cstdio>

namespace adt {
namespace {

std::string Quote(std::string_view text) {
  std::string out = "\"";
  for (char c : text) {
    const auto code = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (code < 0x20) {
      std::array<char, 8> escape{};
      std::snprintf(escape.data(), escape.size(), "\\u%04x", static_cast<unsigned>(code));
      out += escape.data();
    } else {
      out += c;
    }
  }
  return out + '"';
}

}  // namespace

void JsonWriter::NewLine() { out_ += "\n" + std::string(2 * filled_.size(), ' '); }

void JsonWriter::BeforeValue() {
  if (after_key_) {
    after_key_ = false;
    return;
  }
  if (filled_.empty()) return;
  if (filled_.back()) out_ += ',';
  filled_.back() = true;
  NewLine();
}

JsonWriter& JsonWriter::Begin(char bracket) {
  BeforeValue();
  out_ += bracket;
  filled_.push_back(false);
  return *this;
}

JsonWriter& JsonWriter::End(char bracket) {
  const bool filled = filled_.back();
  filled_.pop_back();
  if (filled) NewLine();
  out_ += bracket;
  return *this;
}

JsonWriter& JsonWriter::Raw(std::string_view text) {
  BeforeValue();
  out_ += text;
  return *this;
}

JsonWriter& JsonWriter::Key(std::string_view key) {
  Raw(Quote(key));
  out_ += ": ";
  after_key_ = true;
  return *this;
}

JsonWriter& JsonWriter::String(std::string_view text) { return Raw(Quote(text)); }
JsonWriter& JsonWriter::Int(std::int64_t value) { return Raw(std::to_string(value)); }
JsonWriter& JsonWriter::Unsigned(std::uint64_t value) { return Raw(std::to_string(value)); }
JsonWriter& JsonWriter::Fixed(double value) { return Raw(std::to_string(value)); }
JsonWriter& JsonWriter::Bool(bool value) { return Raw(value ? "true" : "false"); }
JsonWriter& JsonWriter::Null() { return Raw("null"); }

JsonWriter& JsonWriter::Strings(const std::vector<std::string>& items) {
  BeginArray();
  for (const std::string& item : items) String(item);
  return EndArray();
}

JsonWriter& JsonWriter::Document(std::string_view json) {
  const std::string indent = "\n" + std::string(2 * filled_.size(), ' ');
  std::string text;
  for (char c : json.substr(0, json.find_last_not_of('\n') + 1)) {
    c == '\n' ? text += indent : text += c;  // inside strings a line break is escaped
  }
  return Raw(text);
}

}  // namespace adt
