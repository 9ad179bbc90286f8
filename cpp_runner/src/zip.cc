#include "zip.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <initializer_list>
#include <set>
#include <utility>

#include "error.h"

namespace adt {
namespace {

constexpr std::uint32_t kLocalHeader = 0x04034b50;
constexpr std::uint32_t kCentralHeader = 0x02014b50;
constexpr std::uint32_t kEnd = 0x06054b50;
constexpr std::uint32_t kEnd64 = 0x06064b50;
constexpr std::uint32_t kEnd64Locator = 0x07064b50;
constexpr std::size_t kLocalHeaderSize = 30;
constexpr std::size_t kCentralHeaderSize = 46;
constexpr std::size_t kEndSize = 22;
constexpr std::size_t kEnd64Size = 56;
constexpr std::size_t kEnd64LocatorSize = 20;
constexpr std::uint64_t kMax32 = 0xFFFFFFFF;
constexpr std::uint16_t kZip64Extra = 1;
constexpr std::uint16_t kZip64Version = 45;

constexpr std::array<std::uint32_t, 256> MakeCrcTable() {
  std::array<std::uint32_t, 256> table{};
  for (std::uint32_t i = 0; i < table.size(); ++i) {
    std::uint32_t crc = i;
    for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ ((crc & 1) != 0 ? 0xEDB88320U : 0U);
    table[i] = crc;
  }
  return table;
}

// *before*: of what comes before *data*.
std::uint32_t Crc32(const std::byte* data, std::size_t size, std::uint32_t before = 0) {
  static constexpr std::array<std::uint32_t, 256> kTable = MakeCrcTable();
  std::uint32_t crc = ~before;
  for (std::size_t i = 0; i < size; ++i) {
    crc = kTable[(crc ^ std::to_integer<std::uint32_t>(data[i])) & 0xFF] ^ (crc >> 8);
  }
  return ~crc;
}

// A part of the archive; every read is checked against its end.
class ZipReader {
 public:
  ZipReader(const std::byte* data, std::size_t size, const std::string& path)
      : data_(data), size_(size), path_(path) {}

  std::size_t size() const { return size_; }

  [[noreturn]] void Fail(const std::string& problem) const {
    throw Error(ErrorKind::kInput, path_ + " " + problem,
                "Write it again, with numpy.savez (not savez_compressed).");
  }

  ZipReader Part(std::uint64_t at, std::uint64_t size) const {
    if (at > size_ || size > size_ - at) Fail("is truncated or damaged");
    return ZipReader(data_ + at, static_cast<std::size_t>(size), path_);
  }

  std::uint64_t Number(std::uint64_t at, std::size_t bytes) const {
    const ZipReader part = Part(at, bytes);
    std::uint64_t value = 0;
    for (std::size_t i = 0; i < bytes; ++i) {
      value |= std::to_integer<std::uint64_t>(part.data_[i]) << (8 * i);
    }
    return value;
  }
  std::uint16_t U16(std::uint64_t at) const { return static_cast<std::uint16_t>(Number(at, 2)); }
  std::uint32_t U32(std::uint64_t at) const { return static_cast<std::uint32_t>(Number(at, 4)); }
  std::uint64_t U64(std::uint64_t at) const { return Number(at, 8); }

  std::string Text() const { return std::string(reinterpret_cast<const char*>(data_), size_); }
  const std::byte* data() const { return data_; }
  std::uint32_t Crc() const { return Crc32(data_, size_); }

 private:
  const std::byte* data_;
  std::size_t size_;
  const std::string& path_;
};

struct Directory {
  std::uint64_t offset = 0;
  std::uint64_t count = 0;
};

// The end record is the last thing in the file, but for a comment of up to 64 KiB.
Directory FindDirectory(const ZipReader& file) {
  if (file.size() < kEndSize) file.Fail("is no .npz file");
  const std::size_t last = file.size() - kEndSize;
  const std::size_t first = last > 0xFFFF ? last - 0xFFFF : 0;
  for (std::size_t at = last + 1; at-- > first;) {
    if (file.U32(at) != kEnd || file.U16(at + 20) != last - at) continue;
    Directory directory{file.U32(at + 16), file.U16(at + 10)};
    const bool zip64 = directory.offset == kMax32 || directory.count == 0xFFFF;
    if (zip64 && at >= kEnd64LocatorSize && file.U32(at - kEnd64LocatorSize) == kEnd64Locator) {
      const ZipReader end = file.Part(file.U64(at - kEnd64LocatorSize + 8), kEnd64Size);
      if (end.U32(0) != kEnd64) file.Fail("is damaged: its zip64 end record is missing");
      directory = {end.U64(48), end.U64(32)};
    }
    return directory;
  }
  file.Fail("is no .npz file, or is truncated");
}

// Sizes and offset of a member; zip64 keeps those that need more than 32 bits in an extra field.
struct Place {
  std::uint64_t plain_size;
  std::uint64_t stored_size;
  std::uint64_t offset;
};

Place FindPlace(const ZipReader& header, const ZipReader& extra) {
  Place place{header.U32(24), header.U32(20), header.U32(42)};
  for (std::uint64_t at = 0; at + 4 <= extra.size();) {
    const std::uint16_t size = extra.U16(at + 2);
    if (extra.U16(at) == kZip64Extra) {
      const ZipReader field = extra.Part(at + 4, size);
      std::uint64_t next = 0;
      for (std::uint64_t* value : {&place.plain_size, &place.stored_size, &place.offset}) {
        if (*value == kMax32) {
          *value = field.U64(next);
          next += 8;
        }
      }
    }
    at += 4U + size;
  }
  return place;
}

ZipMember ReadMember(const ZipReader& file, const ZipReader& header, const ZipReader& extra,
                     const std::string& name, std::uint64_t* left) {
  if ((header.U16(8) & 1) != 0) file.Fail("holds " + name + ", which is encrypted");
  if (header.U16(10) != 0) file.Fail("holds " + name + ", which is compressed");
  const Place place = FindPlace(header, extra);
  if (place.plain_size != place.stored_size) file.Fail("is damaged: sizes of " + name);

  const ZipReader local = file.Part(place.offset, kLocalHeaderSize);
  if (local.U32(0) != kLocalHeader) file.Fail("is damaged: no header for " + name);
  const std::uint64_t data_at =
      place.offset + kLocalHeaderSize + local.U16(26) + local.U16(28);  // name, extra field
  const ZipReader data = file.Part(data_at, place.stored_size);
  if (data.size() > *left) file.Fail("is damaged: its members overlap");
  *left -= data.size();
  if (data.Crc() != header.U32(16)) file.Fail("is damaged: the checksum of " + name + " differs");
  return {name, data.data(), data.size()};
}

void PutNumber(std::string* out, std::uint64_t value, std::size_t bytes) {
  for (std::size_t i = 0; i < bytes; ++i) {
    *out += static_cast<char>(static_cast<unsigned char>((value >> (8 * i)) & 0xFF));
  }
}

// From the version needed to the length of the extra field: what local and central headers share.
// Sizes are in the extra field.
void PutCommonHeader(std::string* out, const std::string& name, std::uint32_t crc,
                     std::size_t extra) {
  constexpr std::uint16_t kUtf8Names = 1U << 11;
  constexpr std::uint16_t kDate = 1 << 5 | 1;  // 1980-01-01: the same arrays give the same bytes
  PutNumber(out, kZip64Version, 2);
  PutNumber(out, kUtf8Names, 2);
  PutNumber(out, 0, 2);  // stored
  PutNumber(out, 0, 2);  // time
  PutNumber(out, kDate, 2);
  PutNumber(out, crc, 4);
  PutNumber(out, kMax32, 4);
  PutNumber(out, kMax32, 4);
  PutNumber(out, name.size(), 2);
  PutNumber(out, extra, 2);
}

// The extra field with a member's *numbers*.
std::string Zip64Field(std::initializer_list<std::uint64_t> numbers) {
  std::string field;
  PutNumber(&field, kZip64Extra, 2);
  PutNumber(&field, 8 * numbers.size(), 2);
  for (const std::uint64_t number : numbers) PutNumber(&field, number, 8);
  return field;
}

}  // namespace

std::vector<ZipMember> ReadZip(const std::byte* bytes, std::size_t size, const std::string& path) {
  const ZipReader file(bytes, size, path);
  const Directory directory = FindDirectory(file);
  std::vector<ZipMember> members;
  std::set<std::string> names;
  std::uint64_t at = directory.offset;
  std::uint64_t left = size;  // members share no bytes: all of them fit into the file
  for (std::uint64_t i = 0; i < directory.count; ++i) {  // ends at the file's end at the latest
    const ZipReader header = file.Part(at, kCentralHeaderSize);
    if (header.U32(0) != kCentralHeader)
      file.Fail("is damaged: its directory is not where it says");
    at += kCentralHeaderSize;
    const std::string name = file.Part(at, header.U16(28)).Text();
    at += header.U16(28);
    const ZipReader extra = file.Part(at, header.U16(30));
    at += std::uint64_t{header.U16(30)} + header.U16(32);  // extra field, comment
    if (!names.insert(name).second) file.Fail("holds " + name + " twice");
    members.push_back(ReadMember(file, header, extra, name, &left));
  }
  return members;
}

void ZipWriter::Put(const std::string& bytes) {
  write_(bytes.data(), bytes.size());
  written_ += bytes.size();
}

void ZipWriter::Add(const std::string& name, const std::string& head, const std::byte* data,
                    std::size_t size) {
  if (name.size() > 0xFFFF) {
    throw Error(ErrorKind::kInput, "the name of an array is too long for an .npz file",
                "Rename the model's outputs.");
  }
  const std::uint64_t all = std::uint64_t{head.size()} + size;
  const auto* bytes = reinterpret_cast<const std::byte*>(head.data());
  const std::uint32_t crc = Crc32(data, size, Crc32(bytes, head.size()));
  const std::string local = Zip64Field({all, all});
  const std::string central = Zip64Field({all, all, written_});

  PutNumber(&directory_, kCentralHeader, 4);
  PutNumber(&directory_, kZip64Version, 2);  // made by
  PutCommonHeader(&directory_, name, crc, central.size());
  PutNumber(&directory_, 0, 2);       // comment
  PutNumber(&directory_, 0, 2);       // disk
  PutNumber(&directory_, 0, 2 + 4);   // attributes
  PutNumber(&directory_, kMax32, 4);  // offset
  directory_ += name + central;
  ++count_;

  std::string header;
  PutNumber(&header, kLocalHeader, 4);
  PutCommonHeader(&header, name, crc, local.size());
  Put(header + name + local + head);
  write_(data, size);
  written_ += size;
}

void ZipWriter::Finish() {
  const std::uint64_t at = written_;
  std::string end = std::move(directory_);
  const std::uint64_t size = end.size();
  PutNumber(&end, kEnd64, 4);
  PutNumber(&end, kEnd64Size - 12, 8);  // of what follows
  PutNumber(&end, kZip64Version, 2);    // made by
  PutNumber(&end, kZip64Version, 2);    // needed
  PutNumber(&end, 0, 4 + 4);            // disks
  PutNumber(&end, count_, 8);
  PutNumber(&end, count_, 8);
  PutNumber(&end, size, 8);
  PutNumber(&end, at, 8);
  PutNumber(&end, kEnd64Locator, 4);
  PutNumber(&end, 0, 4);  // disk
  PutNumber(&end, at + size, 8);
  PutNumber(&end, 1, 4);  // disks
  PutNumber(&end, kEnd, 4);
  PutNumber(&end, 0, 2 + 2);  // disks
  PutNumber(&end, 0xFFFF, 2);
  PutNumber(&end, 0xFFFF, 2);
  PutNumber(&end, kMax32, 4);
  PutNumber(&end, kMax32, 4);
  PutNumber(&end, 0, 2);  // comment
  Put(end);
}

}  // namespace adt
