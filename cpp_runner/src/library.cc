#include "library.h"

#include <dlfcn.h>
#include <sys/syscall.h>
#include <tvm/ffi/function.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <mutex>

#include "error.h"
#include "file.h"
#include "tvm_errors.h"

namespace adt {
namespace {

namespace ffi = tvm::ffi;

constexpr const char* kLoadRemedy =
    "The library needs something that this device or this bundle does not have. Compile the model "
    "for this platform and against this bundle (adt compile), then deploy both again.";
constexpr const char* kMemoryRemedy =
    "Give a scratch directory that this program may write to and load libraries from, or the "
    "library by a path or name.";

ffi::Module Load(const std::string& path, const std::string& name, const char* remedy) {
  return WithTvmErrors(
      ErrorKind::kMismatch, [&] { return "cannot load " + name; }, remedy,
      [&] {
        // TVM's own choice of a loader goes by the path's end, which private copies do not have.
        const auto loader = ffi::Function::GetGlobalRequired("ffi.Module.load_from_file.so");
        return loader(ffi::String(path), ffi::String("so")).cast<ffi::Module>();
      });
}

bool IsLoaded(const std::string& path) {
  void* handle = dlopen(path.c_str(), RTLD_LAZY | RTLD_NOLOAD);
  if (handle != nullptr) dlclose(handle);
  return handle != nullptr;
}

// The linker takes two libraries of one name for one, and /proc/self/fd/7 may come again: so the
// slashes and dots of the path spell a number that does not.
std::string UniquePath(int fd) {
  static std::atomic<unsigned> count{0};
  std::string path = "/proc/self/fd";
  for (unsigned n = count.fetch_add(1) + 1; n != 0; n /= 2) path += n % 2 != 0 ? "//" : "/.";
  return path + "/" + std::to_string(fd);
}

class Copy {
 public:
  /// In memory.
  Copy() {
#ifdef SYS_memfd_create
    constexpr unsigned kCloseOnExec = 1;
    constexpr unsigned kExecutable = 0x10;  // Linux 6.3 and later want it said
    for (const unsigned flags : {kCloseOnExec | kExecutable, kCloseOnExec}) {
      if (!file_.valid()) {
        file_ = FileDescriptor(static_cast<int>(syscall(SYS_memfd_create, "mod.so", flags)));
      }
    }
#else
    errno = ENOSYS;
#endif
    if (!file_.valid()) Fail("memory cannot be a file");
    path_ = UniquePath(file_.get());
  }
  /// In *directory*.
  explicit Copy(const std::string& directory)
      : file_(FileDescriptor::Create(directory + "/adt-", 0600, &path_)) {
    if (!file_.valid()) Fail("no file can be made in " + directory);
    remove_ = true;
  }
  ~Copy() {
    if (remove_) unlink(path_.c_str());
  }
  Copy(const Copy&) = delete;
  Copy& operator=(const Copy&) = delete;

  void Write(const Blob& bytes) const {
    if (!file_.Write(bytes.data(), bytes.size())) Fail("its copy cannot be written");
  }
  const std::string& path() const { return path_; }

 private:
  [[noreturn]] static void Fail(const std::string& problem) {
    throw Error(ErrorKind::kMismatch, "cannot load mod.so: " + problem + ": " + ErrorText(errno),
                kMemoryRemedy);
  }

  std::string path_;
  FileDescriptor file_;
  bool remove_ = false;
};

ffi::Module LoadCopy(const Copy& copy, const Source& source, const char* remedy) {
  copy.Write(source.library);
  return Load(copy.path(), source.library_name(), remedy);
}

ffi::Module LoadPrivately(const Source& source, const std::string& scratch) {
  if (scratch.empty()) return LoadCopy(Copy(), source, kMemoryRemedy);
  try {
    return LoadCopy(Copy(), source, kMemoryRemedy);
  } catch (const Error&) {  // some systems load no library from memory
    return LoadCopy(Copy(scratch), source, kLoadRemedy);
  }
}

}  // namespace

ffi::Module LoadLibrary(const Source& source, const std::string& scratch) {
  static std::mutex one_at_a_time;  // else two threads could find a library not loaded yet
  const std::lock_guard<std::mutex> lock(one_at_a_time);
  if (!source.library_path.empty() && !IsLoaded(source.library_path)) {
    return Load(source.library_path, source.library_path, kLoadRemedy);
  }
  if (source.library.empty()) {
    throw Error(
        ErrorKind::kUsage, source.library_path + " is loaded already",
        "Free the handle that loaded it first, or give the library's path or bytes, so that it "
        "can be loaded a second time.");
  }
  return LoadPrivately(source, scratch);
}

}  // namespace adt
