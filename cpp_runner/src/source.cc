#include "source.h"

#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <limits>
#include <utility>

#include "error.h"
#include "file.h"

namespace adt {

void Blob::Forget(const std::byte* part, std::size_t size) const noexcept {
  if (mapping_ == nullptr) return;
  const auto page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  auto* pages = static_cast<std::byte*>(mapping_.get());
  const auto from = static_cast<std::size_t>(part - pages);
  const std::size_t begin = (from + page - 1) / page * page;
  const std::size_t end = (from + size) / page * page;
  if (begin < end) madvise(pages + begin, end - begin, MADV_DONTNEED);
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
  const std::int64_t before = offset % sysconf(_SC_PAGESIZE);  // mappings begin at a page
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
  blob.mapping_.reset(mapping, [length](void* pages) { munmap(pages, length); });
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
