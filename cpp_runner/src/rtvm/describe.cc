#include "rtvm/describe.h"

#include <array>
#include <cstdio>

#include "sha256.h"

namespace adt::rtvm {

std::string Decimal(double value, int digits) {
  std::array<char, 64> text{};
  std::snprintf(text.data(), text.size(), "%.*f", digits, value);
  return text.data();
}

std::string Milliseconds(double value) { return Decimal(value, 3) + " ms"; }

std::string Join(const std::vector<std::string>& items) {
  std::string text;
  for (const std::string& item : items) text += (text.empty() ? "" : ", ") + item;
  return text;
}

std::string Sha256(const Array& array) { return adt::Sha256(array.data.data(), array.data.size()); }

void WriteSchema(JsonWriter* json, const char* name, int version) {
  json->Key("schema").String(name).Key("schema_version").Int(version);
}

void WriteRunner(JsonWriter* json, const RunnerInfo& info) {
  json->Key("version").String(info.version);
  json->Key("tvm_version").String(info.tvm_version);
  json->Key("ffi_version").String(info.ffi_version);
  json->Key("machine").String(info.machine);
  json->Key("alignment").Int(info.alignment);
  json->Key("context_symbols").Strings(info.context_symbols);
  json->Key("devices").Strings(info.devices);
}

void WriteTimes(JsonWriter* json, const std::vector<double>& times) {
  json->BeginArray();
  for (double time : times) json->Fixed(time);
  json->EndArray();
}

}  // namespace adt::rtvm
