#include "rtvm/describe.h"

#include <array>
#include <cstdint>
#include <cstdio>
#include <map>
#include <optional>

#include "sha256.h"

namespace adt::rtvm {
namespace {

void WriteNumber(JsonWriter* json, const char* key, const std::optional<std::int64_t>& number) {
  json->Key(key);
  number ? json->Int(*number) : json->Null();
}

void WriteSample(JsonWriter* json, const Sample& sample) {
  const auto decimals = [&](const char* key, const std::map<std::string, double>& values) {
    json->Key(key).BeginObject();
    for (const auto& [name, value] : values) json->Key(name).Fixed(value);
    json->EndObject();
  };
  json->BeginObject().Key("at_ms").Fixed(sample.at_ms);
  decimals("temperatures", sample.temperatures);
  decimals("frequencies_mhz", sample.frequencies_mhz);
  json->Key("power").BeginObject();
  for (const auto& [name, value] : sample.power) json->Key(name).Int(value);
  json->EndObject().EndObject();
}

}  // namespace

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

void WriteMemory(JsonWriter* json, const RunReport& report) {
  json->Key("memory").BeginObject();
  WriteNumber(json, "before_load_kb", report.before_load_kb);
  WriteNumber(json, "peak_kb", report.peak_kb);
  WriteNumber(json, "workspace_bytes", report.workspace_bytes);
  json->EndObject();
}

void WriteSamples(JsonWriter* json, const std::vector<Sample>& samples) {
  json->Key("samples").BeginArray();
  for (const Sample& sample : samples) WriteSample(json, sample);
  json->EndArray();
}

}  // namespace adt::rtvm
