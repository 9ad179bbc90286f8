#include "program_cache.h"

#include <tvm/ffi/container/array.h>
#include <tvm/ffi/function.h>
#include <tvm/ffi/string.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <optional>
#include <system_error>
#include <utility>
#include <vector>

#include "error.h"
#include "file.h"
#include "hashed_files.h"
#include "opencl_device.h"
#include "opencl_modules.h"
#include "private_files.h"
#include "program_list.h"
#include "sha256.h"

namespace adt {
namespace {

namespace ffi = tvm::ffi;
namespace fs = std::filesystem;

constexpr std::string_view kProgramsMagic("ADTPROG\0", 8);
constexpr std::uint32_t kVersion = 2;
constexpr std::size_t kProgramsDigestSize = 64;
constexpr std::size_t kHeaderSize = 8 + 4 + 4 + 8 + kProgramsDigestSize;
constexpr std::uint64_t kLargestProgramsFile = std::uint64_t{1} << 30;
constexpr const char* kProgramsSuffix = ".programs";

double MillisecondsSince(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start)
      .count();
}

// Whether the name is one of this cache's files, and not a person's.
bool IsCached(const fs::path& path) {
  constexpr std::size_t kNameSize = 64;
  return path.extension() == kProgramsSuffix && path.stem().string().size() == kNameSize;
}

// What a process left behind that was killed while it wrote.
bool IsLeftover(const fs::path& path, fs::file_time_type used) {
  constexpr std::chrono::hours kLongestWrite{1};
  const std::string name = path.filename().string();
  const auto contains = [&](std::string whose) {
    return name.find(whose += NewFile::kInfix) != std::string::npos;
  };
  return (contains(kProgramsSuffix) || contains(kHashesName)) &&
         fs::file_time_type::clock::now() - used > kLongestWrite;
}

// The cache stays small: of the files in *directory*, the ones that were used last stay.
void RemoveOldest(const std::string& directory) {
  constexpr std::size_t kMostFiles = 64;
  std::vector<std::pair<fs::file_time_type, fs::path>> files;
  std::error_code failed;
  for (fs::directory_iterator it(directory, failed), end; !failed && it != end;
       it.increment(failed)) {
    std::error_code gone;
    const auto used = it->last_write_time(gone);
    if (gone) continue;
    if (IsLeftover(it->path(), used)) fs::remove(it->path(), gone);
    if (IsCached(it->path())) files.emplace_back(used, it->path());
  }
  if (failed || files.size() <= kMostFiles) return;
  std::sort(files.begin(), files.end());
  for (std::size_t i = 0; i < files.size() - kMostFiles; ++i) fs::remove(files[i].second, failed);
}

// For RemoveOldest.
void MarkUsed(const std::string& path) {
  std::error_code ignored;
  fs::last_write_time(path, fs::file_time_type::clock::now(), ignored);
}

void AppendNumber(std::string* out, std::uint64_t value, std::size_t bytes) {
  for (std::size_t i = 0; i < bytes; ++i) {
    *out += static_cast<char>(static_cast<unsigned char>((value >> (8 * i)) & 0xFF));
  }
}

std::uint64_t GetNumber(std::string_view bytes) {
  std::uint64_t value = 0;
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    value |= std::uint64_t{static_cast<unsigned char>(bytes[i])} << (8 * i);
  }
  return value;
}

// What keeps a module's compiled OpenCL programs.
struct ProgramKeeper {
  ffi::Function get;
  ffi::Function set;
};

struct OpenClModules {
  std::size_t found = 0;
  std::vector<ProgramKeeper> keepers;
  /// SHA-256 of their kernels' sources: what a package says of itself is not asked.
  std::string kernels;
};

OpenClModules FindOpenCl(const ffi::Module& library) {
  OpenClModules modules;
  std::string digests;
  for (const ffi::Module& module : FindOpenClModules(library)) {
    ++modules.found;
    const ffi::String source = module->InspectSource("");
    digests += Sha256(source.data(), source.size());
    const auto get = module->GetFunction("opencl.GetPreCompiledPrograms");
    const auto set = module->GetFunction("opencl.SetPreCompiledPrograms");
    if (get && set) modules.keepers.push_back({*get, *set});
  }
  modules.kernels = modules.found == 1 ? digests : Sha256(digests.data(), digests.size());
  return modules;
}

// What the runtime gives is text with zero bytes in it, or bytes, by its version.
std::string AsBytes(const ffi::Any& value) {
  if (const auto bytes = value.as<ffi::Bytes>()) return std::string(bytes->data(), bytes->size());
  return value.cast<std::string>();
}

std::string FirstLine(const std::string& text) { return text.substr(0, text.find('\n')); }

// The programs of every module, one after the other: a package has one, as a rule.
std::string Pack(const std::vector<std::string>& parts) {
  std::string out;
  for (const std::string& part : parts) {
    AppendNumber(&out, part.size(), 8);
    out += part;
  }
  return out;
}

std::optional<std::vector<std::string>> Unpack(std::string_view packed) {
  std::vector<std::string> parts;
  while (!packed.empty()) {
    if (packed.size() < 8) return {};
    const std::uint64_t size = GetNumber(packed.substr(0, 8));
    packed.remove_prefix(8);
    if (size > packed.size()) return {};
    parts.emplace_back(packed.substr(0, static_cast<std::size_t>(size)));
    packed.remove_prefix(static_cast<std::size_t>(size));
  }
  return parts;
}

// Returns why the driver or the runtime refused them; empty when it did not.
std::string Give(const std::string& packed, const std::vector<ProgramKeeper>& keepers) {
  const auto parts = Unpack(packed);
  if (!parts || parts->size() != keepers.size()) return "it holds another number of modules";
  for (const std::string& part : *parts) {
    if (!IsProgramList(part)) return "it holds something else than programs";
  }
  try {
    for (std::size_t i = 0; i < keepers.size(); ++i) keepers[i].set(ffi::String((*parts)[i]));
  } catch (const std::exception& error) {
    return FirstLine(error.what());
  }
  return {};
}

void Warn(ProgramReport* report, const std::string& warning) {
  report->warning += (report->warning.empty() ? "" : "; ") + warning;
}

// The programs of all kernels, compiled now where they are not yet; none, with a warning, when one
// cannot be had.
std::optional<std::string> Compile(const std::vector<ProgramKeeper>& keepers,
                                   ProgramReport* report) {
  std::vector<std::string> parts;
  try {
    for (const ProgramKeeper& keeper : keepers) parts.push_back(AsBytes(keeper.get()));
  } catch (const std::exception& error) {
    report->state = ProgramState::kUnsupported;
    Warn(report, "the OpenCL driver does not give its programs: " + FirstLine(error.what()));
    return {};
  }
  return Pack(parts);
}

// None, with the reason in *report*, when the device does not say what it is.
std::optional<ProgramKey> KeyOf(const OpenClModules& modules, DLDevice device,
                                ProgramReport* report) {
  try {
    const OpenClDevice found = DescribeOpenCl(device);
    return ProgramKey{modules.kernels, found.name, found.vendor, found.driver, found.platform};
  } catch (const Error& error) {
    report->state = ProgramState::kUnsupported;
    Warn(report, error.what());
    return {};
  }
}

std::string NameOf(const ProgramKey& key) {
  const std::string text = key.Text();
  return Sha256(text.data(), text.size()) + kProgramsSuffix;
}

// Empty, with the reason in *report*, where nothing can be kept.
std::string FileOf(const ProgramStore& store, const ProgramKey& key, ProgramReport* report) {
  if (store.kind == ProgramStore::Kind::kFile) return store.path;
  if (const std::string reason = MakePrivateDirectory(store.path); !reason.empty()) {
    report->state = ProgramState::kRebuilt;
    Warn(report, "cannot keep compiled kernels in " + store.path + " (" + reason +
                     "): they are compiled at every load");
    return {};
  }
  return store.path + "/" + NameOf(key);
}

const char* Variable(const char* name) {
  const char* value = std::getenv(name);
  return value != nullptr && *value != '\0' ? value : nullptr;
}

}  // namespace

ProgramStore DefaultProgramStore() {
  if (const char* given = Variable("ADT_PROGRAM_CACHE")) {
    if (std::string_view(given) == "off") return {};
    return {ProgramStore::Kind::kDirectory, given};
  }
  std::string path;
  if (const char* cache = Variable("XDG_CACHE_HOME")) {
    path = std::string(cache) + "/adt/programs";
  } else if (const char* home = Variable("HOME")) {
    path = std::string(home) + "/.cache/adt/programs";
  }
  // Nobody asked for it: where there is no room for it, it is off without a word.
  if (path.empty() || !MakePrivateDirectory(path).empty() || access(path.c_str(), W_OK) != 0)
    return {};
  return {ProgramStore::Kind::kDirectory, path};
}

std::string_view Name(ProgramState state) {
  switch (state) {
    case ProgramState::kHit:
      return "hit";
    case ProgramState::kWritten:
      return "written";
    case ProgramState::kRebuilt:
      return "rebuilt";
    case ProgramState::kUnsupported:
      return "unsupported";
    case ProgramState::kOff:
      break;
  }
  return "off";
}

std::string ProgramKey::Text() const {
  return "kernels: " + kernels + "\ndevice: " + device + "\nvendor: " + vendor +
         "\ndriver: " + driver + "\nplatform: " + platform + "\n";
}

std::string FormatPrograms(const ProgramKey& key, std::string_view programs) {
  const std::string text = key.Text();
  std::string out(kProgramsMagic);
  AppendNumber(&out, kVersion, 4);
  AppendNumber(&out, text.size(), 4);
  AppendNumber(&out, programs.size(), 8);
  out += Sha256(programs.data(), programs.size());
  out += text;
  out += programs;
  return out;
}

ParsedPrograms ParsePrograms(std::string_view bytes, const ProgramKey& key) {
  ParsedPrograms found;
  const auto useless = [&](const char* problem) {
    found.problem = problem;
    return found;
  };
  // An empty file was begun and not written, by us or by mktemp.
  found.ours = bytes.empty() || bytes.substr(0, kProgramsMagic.size()) == kProgramsMagic;
  if (!found.ours) return useless("is no file of compiled OpenCL programs");
  if (bytes.size() < kHeaderSize) return useless("is truncated");
  if (GetNumber(bytes.substr(8, 4)) != kVersion) return useless("is of another version of adt");
  const std::uint64_t key_size = GetNumber(bytes.substr(12, 4));
  const std::uint64_t size = GetNumber(bytes.substr(16, 8));
  const std::string_view digest = bytes.substr(24, kProgramsDigestSize);
  bytes.remove_prefix(kHeaderSize);
  if (key_size > bytes.size() || size != bytes.size() - key_size) {
    return useless("is truncated or damaged");
  }
  if (bytes.substr(0, static_cast<std::size_t>(key_size)) != key.Text()) {
    return useless("is of another package, device or driver");
  }
  bytes.remove_prefix(static_cast<std::size_t>(key_size));
  if (Sha256(bytes.data(), bytes.size()) != digest) return useless("is damaged");
  found.programs = std::string(bytes);
  return found;
}

ffi::Module LoadWithPrograms(const std::function<ffi::Module()>& load, const ProgramStore& store,
                             DLDevice device, ProgramReport* report) {
  *report = {};
  std::optional<ffi::Module> module = load();
  if (store.kind == ProgramStore::Kind::kNone || device.device_type != kDLOpenCL) return *module;
  OpenClModules modules = FindOpenCl(*module);
  if (modules.found == 0) return *module;
  if (modules.keepers.size() != modules.found) {
    report->state = ProgramState::kUnsupported;
    Warn(report, "this TVM runtime cannot keep compiled OpenCL programs");
    return *module;
  }
  const std::optional<ProgramKey> key = KeyOf(modules, device, report);
  if (!key) return *module;
  report->file = FileOf(store, *key, report);
  if (report->file.empty()) return *module;
  const bool named = store.kind == ProgramStore::Kind::kFile;

  const auto start = std::chrono::steady_clock::now();
  const PrivateFile file = ReadPrivateFile(report->file, kLargestProgramsFile);
  ParsedPrograms parsed{{}, file.problem, file.problem.empty()};
  if (file.exists && parsed.problem.empty()) parsed = ParsePrograms(file.bytes, *key);
  if (file.exists && parsed.problem.empty()) {
    const std::string refused = Give(parsed.programs, modules.keepers);
    if (refused.empty()) {
      report->state = ProgramState::kHit;
      report->take_ms = MillisecondsSince(start);
      if (!named) MarkUsed(report->file);
      return *module;
    }
    parsed.problem = "is refused by the OpenCL driver (" + refused + ")";
    // What the driver refused stays in a module.
    modules = {};
    module.reset();
    module = load();
  }

  report->state = file.exists ? ProgramState::kRebuilt : ProgramState::kWritten;
  // A file that a person named, and that we did not write, may be something of theirs.
  report->pending = !named || parsed.ours;
  if (file.exists) {
    Warn(report, report->file + " " + parsed.problem + ": the kernels are compiled again" +
                     (report->pending ? "" : ", and the file is left as it is"));
  }
  return *module;
}

std::optional<ProgramFile> TakePrograms(const ffi::Module& module, DLDevice device,
                                        ProgramReport* report) {
  if (!std::exchange(report->pending, false)) return {};
  const OpenClModules modules = FindOpenCl(module);
  const std::optional<ProgramKey> key = KeyOf(modules, device, report);
  if (!key) return {};
  const std::optional<std::string> programs = Compile(modules.keepers, report);
  if (!programs) return {};
  return ProgramFile{report->file, FormatPrograms(*key, *programs)};
}

std::string WritePrograms(const ProgramFile& file) {
  NewFile out(file.path, 0600);
  out.Write(file.bytes.data(), file.bytes.size());
  std::string problem = out.Complete();
  const fs::path path(file.path);
  if (problem.empty() && IsCached(path)) RemoveOldest(path.parent_path().string());
  return problem;
}

void NoteWrite(const std::string& problem, ProgramReport* report) {
  if (problem.empty()) return;
  report->state = ProgramState::kRebuilt;
  Warn(report, "cannot write " + report->file + " (" + problem +
                   "): the kernels are compiled at every load");
}

}  // namespace adt
