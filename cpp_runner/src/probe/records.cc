#include "probe/records.h"

#include <unistd.h>

#include <cerrno>

namespace adt::probe {

void RecordWriter::Write(Kind kind, const std::string& text) const {
  const std::string bytes = static_cast<char>(kind) + text + '\0';
  std::size_t written = 0;
  while (written < bytes.size()) {
    const ssize_t n = write(fd_, bytes.data() + written, bytes.size() - written);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return;
    written += static_cast<std::size_t>(n);
  }
}

std::vector<Record> ParseRecords(const std::string& bytes) {
  std::vector<Record> records;
  std::size_t start = 0;
  while (true) {
    const std::size_t end = bytes.find('\0', start);
    if (end == std::string::npos) return records;
    if (end > start) {
      records.push_back(
          {static_cast<Kind>(bytes[start]), bytes.substr(start + 1, end - start - 1)});
    }
    start = end + 1;
  }
}

}  // namespace adt::probe
