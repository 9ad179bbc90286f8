#include "source.h"

#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <ctime>
#include <limits>
#include <utility>

#include "error.h"
#include "file.h"

namespace adt {

namespace {

std::size_t PageSize() { return static_cast<std::size_t>(sysconf(_SC_PAGESIZE)); }

// Whether nobody but this user and the system can change the file.
bool IsProtected(const struct stat& status) {
  bool by_owner = status.st_uid == geteuid() || status.st_uid == 0;
#ifdef __ANDROID__
  constexpr uid_t kSystem = 1000;  // whose the applications' packages are
  by_owner = by_owner || status.st_uid == kSystem;
#endif
  return by_owner && (status.st_mode & (S_IWGRP | S_IWOTH)) == 0;
}

// The file's last change was long enough ago that another one has a later time: file systems count
// in ticks, FAT's are the longest.
bool IsSettled(const struct stat& status) {
  constexpr std::time_t kLongestTick = 2;
  timespec now{};
  return clock_gettime(CLOCK_REALTIME, &now) == 0 &&
         now.tv_sec - status.st_ctim.tv_sec > kLongestTick;
}

std::string VersionOf(const struct stat& status, std::int64_t offset, std::int64_t size) {
  if (!IsProtected(status) || !IsSettled(status)) return {};
  std::string version;
  for (const auto number :
       {static_cast<std::int64_t>(status.st_dev), static_cast<std::int64_t>(status.st_ino),
        static_cast<std::int64_t>(status.st_size), static_cast<std::int64_t>(status.st_mtim.tv_sec),
        static_cast<std::int64_t>(status.st_mtim.tv_nsec),
        static_cast<std::int64_t>(status.st_ctim.tv_sec),
        static_cast<std::int64_t>(status.st_ctim.tv_nsec), offset, size}) {
    version += (version.empty() ? "" : "-") + std::to_string(number);
  }
  return version;
}

}  // namespace

struct Blob::Mapping {
  void* pages;
  std::size_t length;
  std::string version;

  Mapping(void* from, std::size_t size, std::string text)
      : pages(from), length(size), version(std::move(text)) {}
  ~Mapping() { munmap(pages, length); }
  Mapping(const Mapping&) = delete;
  Mapping& operator=(const Mapping&) = delete;

  // For the whole pages in a part; those of its ends, too, when *wide*.
  void Advise(const std::byte* part, std::size_t size, bool wide, int advice) const {
    const std::size_t page = PageSize();
    const auto from = static_cast<std::size_t>(part - static_cast<std::byte*>(pages));
    const std::size_t begin = (from + (wide ? 0 : page - 1)) / page * page;
    const std::size_t end = (from + size + (wide ? page - 1 : 0)) / page * page;
    if (begin < end) madvise(static_cast<std::byte*>(pages) + begin, end - begin, advice);
  }
};

void Blob::Expect(const std::byte* part, std::size_t size) const noexcept {
  if (mapped()) mapping_->Advise(part, size, true, MADV_WILLNEED);
}

void Blob::Forget(const std::byte* part, std::size_t size) const noexcept {
  if (mapped()) mapping_->Advise(part, size, false, MADV_DONTNEED);
}

const std::string& Blob::version() const {
  static const std::string kNone;
  return mapped() ? mapping_->version : kNone;
}

Blob Blob::Borrow(const void* data, std::size_t size) {
  Blob blob;
  blob.data_ = static_cast<const std::byte*>(data);
  blob.size_ = size;
  return blob;
}

Blob Blob::MapPart(int fd, std::int64_t offset, std::int64_t size, const std::string& name,
                   ErrorKind kind) {
  const char* remedy =
      "Give a regular file that is open for reading, and where in it the contents begin and end.";
  struct stat status{};
  if (fstat(fd, &status) != 0) {
    throw Error(kind, "cannot read " + name + ": " + ErrorText(errno), remedy);
  }
  if (!S_ISREG(status.st_mode)) {
    throw Error(kind, name + " is not in a regular file", remedy);
  }
  const auto end = static_cast<std::int64_t>(status.st_size);
  if (size == -1 && offset >= 0 && offset <= end) size = end - offset;
  if (offset < 0 || size < 0 || offset > end || size > end - offset) {
    throw Error(kind,
                name + " would be " + std::to_string(size) + " bytes from " +
                    std::to_string(offset) + " on of a file of " + std::to_string(end),
                remedy);
  }
  Blob blob;
  if (size == 0) return blob;
  const auto page = static_cast<std::int64_t>(PageSize());
  const std::int64_t before = offset % page;  // mappings begin at a page
  const auto start = static_cast<off_t>(offset - before);
  const auto most = static_cast<std::uint64_t>(std::numeric_limits<std::size_t>::max());
  if (start != offset - before || static_cast<std::uint64_t>(size + before) > most) {
    throw Error(kind, name + " is too large for this machine's memory", remedy);
  }
  const auto length = static_cast<std::size_t>(size + before);
  void* mapping = mmap(nullptr, length, PROT_READ, MAP_PRIVATE, fd, start);
  if (mapping == MAP_FAILED) {
    throw Error(kind, "cannot read " + name + ": " + ErrorText(errno), remedy);
  }
  blob.mapping_ = std::make_shared<Mapping>(mapping, length, VersionOf(status, offset, size));
  blob.data_ = static_cast<const std::byte*>(mapping) + before;
  blob.size_ = static_cast<std::size_t>(size);
  return blob;
}

Blob Blob::MapFile(const std::string& path, const std::string& remedy, ErrorKind kind) {
  const FileDescriptor file = FileDescriptor::Open(path);
  if (!file.valid()) {
    throw Error(
        kind, path + (errno == ENOENT ? " does not exist" : " cannot be read: " + ErrorText(errno)),
        remedy);
  }
  return MapPart(file.get(), 0, -1, path, kind);
}

const std::string& Source::library_name() const {
  static const std::string kUnnamed = "mod.so";
  return library_path.empty() ? kUnnamed : library_path;
}

Source OpenDirectory(const std::string& directory) {
  const std::string remedy = "Give the directory of a package, as adt compile writes it.";
  Source source;
  source.manifest_name = directory + "/mod.json";
  source.params_name = directory + "/mod.params";
  source.library_path = directory + "/mod.so";
  source.manifest = Blob::MapFile(source.manifest_name, remedy);
  source.params = Blob::MapFile(source.params_name, remedy);
  source.library = Blob::MapFile(source.library_path, remedy);
  return source;
}

void UseLibrary(const std::string& path, Source* source) {
  source->library_path = path;
  if (path.find('/') == std::string::npos) return;  // the dynamic linker looks for it
  const FileDescriptor file = FileDescriptor::Open(path);
  if (file.valid()) source->library = Blob::MapPart(file.get(), 0, -1, path);
}

}  // namespace adt
