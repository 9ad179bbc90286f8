#include "package.h"

#include <algorithm>
#include <utility>

#include "error.h"
#include "json_reader.h"
#include "source.h"

namespace adt {
namespace {

constexpr const char* kSchema = "adt.model-package";
constexpr std::int64_t kSchemaVersion = 5;
constexpr std::int64_t kVersionOfImages = 3;  // among the parameters
constexpr std::int64_t kOldestVersion = 2;

ValueRange ReadValueRange(JsonReader json) {
  ValueRange range;
  const std::string meaning = json.String("meaning");
  range.index = meaning == "index";
  range.unknown = meaning == "unknown";
  if (!range.index && !range.unknown && meaning != "usual") {
    json.Fail("meaning", "is none of index, usual and unknown");
  }
  range.least = json.Int("least");
  range.most = json.Int("most");
  range.index |= range.unknown && range.least < range.most;
  return range;
}

TensorSpec ReadTensorSpec(JsonReader json) {
  TensorSpec spec;
  spec.name = json.String("name");
  for (auto& [extent, symbol] : json.IntsOrStrings("shape")) {
    if (extent < 0) json.Fail("shape", "has a negative extent");
    spec.shape.push_back({extent, symbol});
  }
  spec.dtype = json.String("dtype");
  if (json.HasValue("values")) spec.values = ReadValueRange(json.Object("values"));
  return spec;
}

Entry ReadEntry(JsonReader json, std::int64_t version) {
  Entry entry;
  entry.name = json.String("name");
  for (JsonReader& spec : json.Objects("inputs")) entry.inputs.push_back(ReadTensorSpec(spec));
  for (JsonReader& spec : json.Objects("outputs")) entry.outputs.push_back(ReadTensorSpec(spec));
  entry.params = json.Strings("params");
  if (version >= kVersionOfImages) {
    for (std::string& image : json.Strings("images")) {
      if (std::find(entry.params.begin(), entry.params.end(), image) == entry.params.end()) {
        json.Fail("images", "lists " + image + ", which is none of params");
      }
      entry.images.insert(std::move(image));
    }
  }
  return entry;
}

SourceModel ReadSource(JsonReader json) {
  SourceModel source;
  source.file = json.String("file");
  source.format = json.String("format");
  source.sha256 = json.String("sha256");
  return source;
}

PackageTarget ReadTarget(JsonReader json) {
  PackageTarget target;
  target.name = json.String("name");
  target.device = json.String("device");
  target.platform = json.String("platform");
  target.triple = json.String("triple");
  target.machine = json.String("machine");
  target.vdevices = json.Strings("vdevices");
  return target;
}

PackageTvm ReadTvm(JsonReader json) {
  PackageTvm tvm;
  tvm.version = json.String("version");
  tvm.ffi_version = json.String("ffi_version");
  tvm.context_symbols = json.Strings("context_symbols");
  return tvm;
}

Kernel ReadKernel(JsonReader json) {
  Kernel kernel;
  kernel.name = json.String("name");
  kernel.device = json.String("device");
  kernel.tuned = json.Bool("tuned");
  if (json.Has("textures")) kernel.textures = json.Int("textures");
  return kernel;
}

PackageFile ReadFile(JsonReader json) {
  PackageFile file;
  file.sha256 = json.String("sha256");
  file.size = json.Int("size");
  if (json.Has("needed")) file.needed = json.Strings("needed");
  return file;
}

// What a reader must know of to read the package rightly; other fields that it does not know are
// passed over. There is nothing yet that only some readers know.
void RequireNothingNew(const std::vector<std::string>& features) {
  if (features.empty()) return;
  throw Error(
      ErrorKind::kMismatch,
      "the package requires " + features.front() + ", which this runner does not know",
      "Build the runner again with the adt that compiled the package (adt build-target), and "
      "deploy both.");
}

}  // namespace

std::string Describe(const TensorSpec& spec) {
  std::string text = spec.dtype + "[";
  for (std::size_t i = 0; i < spec.shape.size(); ++i) {
    if (i != 0) text += ", ";
    text += spec.shape[i].symbolic() ? spec.shape[i].symbol : std::to_string(spec.shape[i].extent);
  }
  return text + "]";
}

const Entry& Package::entry(const std::string& wanted) const {
  for (const Entry& candidate : entries) {
    if (candidate.name == wanted) return candidate;
  }
  std::string names;
  for (const Entry& other : entries) names += (names.empty() ? "" : ", ") + other.name;
  throw Error(ErrorKind::kUsage, "the package has no entry " + wanted, "It has: " + names + ".");
}

Package ReadPackage(const std::string& directory) {
  const std::string path = directory + "/mod.json";
  const Blob text = Blob::MapFile(
      path, "Give the directory of a package, as adt compile writes it: --model DIR.");
  return ParsePackage(std::string(text.text()), path);
}

Package ParsePackage(const std::string& text, const std::string& path) {
  JsonReader json = JsonReader::Parse(text, path);
  if (json.String("schema") != kSchema) {
    json.Fail("schema", std::string("is not ") + kSchema);
  }
  const std::int64_t version = json.Int("schema_version");
  if (version < kOldestVersion || version > kSchemaVersion) {
    throw Error(ErrorKind::kMismatch,
                "the package has schema version " + std::to_string(version) +
                    "; this runner reads " + std::to_string(kOldestVersion) + " to " +
                    std::to_string(kSchemaVersion),
                "Build the runner (adt build-target) and compile the model (adt compile) with the "
                "same adt, then deploy both.");
  }
  if (json.Has("requires")) RequireNothingNew(json.Strings("requires"));
  Package package;
  package.adt_version = json.String("adt_version");
  package.name = json.String("name");
  package.source = ReadSource(json.Object("source"));
  for (JsonReader& entry : json.Objects("entries")) {
    package.entries.push_back(ReadEntry(entry, version));
  }
  package.target = ReadTarget(json.Object("target"));
  const bool images = std::any_of(package.entries.begin(), package.entries.end(),
                                  [](const Entry& entry) { return !entry.images.empty(); });
  if (images && package.target.device != "opencl") {
    json.Fail("entries", "have images, and the target is " + package.target.device);
  }
  package.tvm = ReadTvm(json.Object("tvm"));
  package.alignment = json.Int("alignment");
  package.precision = json.String("precision");
  package.offload = json.String("offload");
  for (JsonReader& kernel : json.Objects("kernels")) package.kernels.push_back(ReadKernel(kernel));
  package.tuned = json.Int("tuned");
  package.total = json.Int("total");
  for (auto& [name, file] : json.ObjectsByName("files")) {
    if (name != "mod.so" && name != "mod.params") json.Fail("files", "lists " + name);
    package.files.emplace(name, ReadFile(file));
  }
  for (const char* name : {"mod.so", "mod.params"}) {
    if (package.files.count(name) == 0) json.Fail("files", std::string("does not list ") + name);
  }
  return package;
}

}  // namespace adt
