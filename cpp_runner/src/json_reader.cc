#include "json_reader.h"

#include <cstddef>
#include <string_view>
#include <utility>

#include "error.h"

namespace adt {
namespace {

namespace ffi = tvm::ffi;

constexpr std::size_t kMaxBytes = std::size_t{64} << 20;  // far above any real mod.json
constexpr int kMaxDepth = 64;  // TVM's parser calls itself for each level
constexpr const char* kJsonRemedy =
    "Compile the model again (adt compile) and deploy the package again.";

// No more than kMaxDepth arrays and objects in one another. Text that is no JSON passes as well.
bool IsShallow(std::string_view text) {
  int depth = 0;
  bool quoted = false;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (quoted) {
      if (c == '\\') ++i;  // whatever follows, it does not end the string
      if (c == '"') quoted = false;
    } else if (c == '"') {
      quoted = true;
    } else if (c == '[' || c == '{') {
      if (++depth > kMaxDepth) return false;
    } else if (c == ']' || c == '}') {
      --depth;
    }
  }
  return true;
}

}  // namespace

JsonReader JsonReader::Parse(const std::string& text, const std::string& name) {
  if (text.size() > kMaxBytes) {
    throw Error(ErrorKind::kPackage, name + " is too large to be a package's description",
                kJsonRemedy);
  }
  if (!IsShallow(text)) {
    throw Error(ErrorKind::kPackage, name + " is nested too deeply for a description", kJsonRemedy);
  }
  ffi::String problem;
  const Value value = ffi::json::Parse(ffi::String(text), &problem);
  if (!problem.empty()) {
    throw Error(ErrorKind::kPackage, name + " is not JSON: " + std::string(problem), kJsonRemedy);
  }
  const auto object = value.try_cast<ffi::json::Object>();
  if (!object) throw Error(ErrorKind::kPackage, name + " is not a JSON object", kJsonRemedy);
  return JsonReader(*object, name + ": ");
}

void JsonReader::Fail(const std::string& key, const std::string& problem) const {
  throw Error(ErrorKind::kPackage, path_ + key + " " + problem, kJsonRemedy);
}

bool JsonReader::Has(const std::string& key) const { return object_.count(ffi::String(key)) != 0; }

bool JsonReader::HasValue(const std::string& key) const { return Has(key) && Get(key) != nullptr; }

JsonReader::Value JsonReader::Get(const std::string& key) const {
  if (!Has(key)) Fail(key, "is missing");
  return object_.at(ffi::String(key));
}

template <typename T>
T JsonReader::Get(const std::string& key, const char* expected) {
  // Strict: a bool is no number, a number no bool, so the type is compared before the conversion.
  const Value value = Get(key);
  if (auto found = value.as<T>()) return *std::move(found);
  Fail(key, std::string("is not ") + expected);
}

std::string JsonReader::String(const std::string& key) {
  return std::string(Get<ffi::String>(key, "a string"));
}

std::int64_t JsonReader::Int(const std::string& key) {
  return Get<std::int64_t>(key, "an integer");
}

bool JsonReader::Bool(const std::string& key) { return Get<bool>(key, "true or false"); }

std::vector<std::string> JsonReader::Strings(const std::string& key) {
  std::vector<std::string> out;
  for (const Value& value : Get<ffi::json::Array>(key, "an array")) {
    const auto text = value.as<ffi::String>();
    if (!text) Fail(key, "holds something that is not a string");
    out.emplace_back(*text);
  }
  return out;
}

std::vector<std::pair<std::int64_t, std::string>> JsonReader::IntsOrStrings(
    const std::string& key) {
  std::vector<std::pair<std::int64_t, std::string>> out;
  for (const Value& value : Get<ffi::json::Array>(key, "an array")) {
    if (const auto number = value.as<std::int64_t>()) {
      out.emplace_back(*number, std::string());
    } else if (const auto text = value.as<ffi::String>(); text && !text->empty()) {
      out.emplace_back(0, std::string(*text));
    } else {
      Fail(key, "holds something that is neither a number nor a name");
    }
  }
  return out;
}

JsonReader JsonReader::Wrap(const std::string& key, const Value& value) const {
  const auto object = value.as<ffi::json::Object>();
  if (!object) Fail(key, "is not an object");
  return JsonReader(*object, path_ + key + ".");
}

JsonReader JsonReader::Object(const std::string& key) { return Wrap(key, Get(key)); }

std::vector<JsonReader> JsonReader::Objects(const std::string& key) {
  std::vector<JsonReader> out;
  for (const Value& value : Get<ffi::json::Array>(key, "an array")) {
    out.push_back(Wrap(key + "[" + std::to_string(out.size()) + "]", value));
  }
  return out;
}

std::map<std::string, JsonReader> JsonReader::ObjectsByName(const std::string& key) {
  std::map<std::string, JsonReader> out;
  for (const auto& [name, value] : Get<ffi::json::Object>(key, "an object")) {
    const std::string text(name.cast<ffi::String>());
    out.emplace(text, Wrap(key + "." + text, value));
  }
  return out;
}

}  // namespace adt
