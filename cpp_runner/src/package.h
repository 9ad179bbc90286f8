// The description of a ModelPackage: mod.json.
//
// The schema is adt's (toolchain/adt/package/manifest.py). A field that may be passed over is
// nobody's concern here; what a runner must know is named in `requires`, or raises the version.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

namespace adt {

/// One extent of a shape: a number, or the name of a symbolic dimension.
struct Dim {
  std::int64_t extent = 0;
  std::string symbol;

  bool symbolic() const { return !symbol.empty(); }
};

/// Which integers an input takes.
struct ValueRange {
  /// Values outside are refused: they would read other memory.
  bool index = false;
  /// Nothing is known, and no values can be made up.
  bool unknown = false;
  std::int64_t least = 0;
  std::int64_t most = 0;
};

/// One input or output.
struct TensorSpec {
  std::string name;
  std::vector<Dim> shape;
  std::string dtype;
  std::optional<ValueRange> values;
};

/// "float32[n, 3]", for messages.
std::string Describe(const TensorSpec& spec);

/// One function of the module that a caller may run.
struct Entry {
  std::string name;
  std::vector<TensorSpec> inputs;
  std::vector<TensorSpec> outputs;
  /// Keys of mod.params, in the order in which they follow the inputs.
  std::vector<std::string> params;
  /// Those of them that the entry takes as images.
  std::set<std::string> images;
};

struct SourceModel {
  std::string file;
  std::string format;
  std::string sha256;
};

struct PackageTarget {
  std::string name;
  /// Device that the entry's tensors live on: "cpu", "opencl" or "cuda".
  std::string device;
  std::string platform;
  std::string triple;
  /// ELF machine of mod.so, e.g. "AARCH64".
  std::string machine;
  /// Device of each virtual device of the VM, in order.
  std::vector<std::string> vdevices;
};

struct PackageTvm {
  std::string version;
  std::string ffi_version;
  /// Context symbols that mod.so defines and this runner must fill.
  std::vector<std::string> context_symbols;
};

struct Kernel {
  std::string name;
  std::string device;
  bool tuned = false;
  /// How many of its arguments are images.
  std::int64_t textures = 0;
};

struct PackageFile {
  std::string sha256;
  std::int64_t size = 0;
  std::vector<std::string> needed;
};

struct Package {
  std::string adt_version;
  std::string name;
  SourceModel source;
  std::vector<Entry> entries;
  PackageTarget target;
  PackageTvm tvm;
  /// Bytes that mod.so assumes every tensor's data to be aligned to.
  std::int64_t alignment = 0;
  std::string precision;
  std::string offload;
  std::vector<Kernel> kernels;
  std::int64_t tuned = 0;
  std::int64_t total = 0;
  std::map<std::string, PackageFile> files;

  /// The entry of that name. Throws Error(kUsage) with the names there are.
  const Entry& entry(const std::string& name) const;
};

/// The package that the text of a mod.json describes; *path* is for messages. Throws
/// Error(kPackage): not JSON, another schema, or a wrong field.
Package ParsePackage(const std::string& text, const std::string& path);

/// Read <directory>/mod.json. Throws Error(kPackage): missing, or as ParsePackage.
Package ReadPackage(const std::string& directory);

}  // namespace adt
