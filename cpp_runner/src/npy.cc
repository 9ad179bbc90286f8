#include "npy.h"

#include <algorithm>
#include <cstring>
#include <string_view>
#include <utility>

#include "dtype.h"
#include "error.h"

namespace adt {
namespace {

constexpr std::string_view kNpyMagic = "\x93NUMPY";
constexpr std::size_t kMaxNpyRank = 64;  // numpy's own limit

[[noreturn]] void Fail(const std::string& name, const std::string& problem) {
  throw Error(ErrorKind::kInput, "array " + name + ": " + problem,
              "Write the file again, with numpy.savez and numeric or bool arrays.");
}

struct Header {
  std::string descr;
  bool fortran_order = false;
  std::vector<std::int64_t> shape;
};

// The header is a Python dictionary: {'descr': '<f4', 'fortran_order': False, 'shape': (1, 2), }
class HeaderParser {
 public:
  HeaderParser(std::string_view text, const std::string& name) : text_(text), name_(name) {}

  Header Parse() {
    Header header;
    int seen = 0;
    Expect('{');
    while (!Accept('}')) {
      const std::string key = Quoted();
      Expect(':');
      if (key == "descr") {
        if (Peek() != '\'' && Peek() != '"') Fail(name_, "has a structured element type");
        header.descr = Quoted();
      } else if (key == "fortran_order") {
        header.fortran_order = Boolean();
      } else if (key == "shape") {
        header.shape = Tuple();
      } else {
        Fail(name_, "has the unknown header field " + key);
      }
      ++seen;
      if (!Accept(',') && Peek() != '}') Fail(name_, "has a damaged header");
    }
    if (seen != 3 || header.descr.empty()) Fail(name_, "has an incomplete header");
    return header;
  }

 private:
  char Peek() {
    while (at_ < text_.size() && (text_[at_] == ' ' || text_[at_] == '\n')) ++at_;
    return at_ < text_.size() ? text_[at_] : '\0';
  }
  bool Accept(char wanted) {
    if (Peek() != wanted) return false;
    ++at_;
    return true;
  }
  void Expect(char wanted) {
    if (!Accept(wanted)) Fail(name_, "has a damaged header");
  }
  std::string Quoted() {
    const char quote = Peek();
    if (quote != '\'' && quote != '"') Fail(name_, "has a damaged header");
    const std::size_t end = text_.find(quote, at_ + 1);
    if (end == std::string_view::npos) Fail(name_, "has a damaged header");
    std::string found(text_.substr(at_ + 1, end - at_ - 1));
    at_ = end + 1;
    return found;
  }
  bool Boolean() {
    Peek();
    for (const auto& [word, value] : {std::pair<std::string_view, bool>{"True", true},
                                      std::pair<std::string_view, bool>{"False", false}}) {
      if (text_.substr(at_, word.size()) == word) {
        at_ += word.size();
        return value;
      }
    }
    Fail(name_, "has a damaged header");
  }
  std::vector<std::int64_t> Tuple() {
    std::vector<std::int64_t> extents;
    Expect('(');
    while (!Accept(')')) {
      if (extents.size() == kMaxNpyRank) Fail(name_, "has too many dimensions");
      extents.push_back(Extent());
      if (!Accept(',') && Peek() != ')') Fail(name_, "has a damaged header");
    }
    return extents;
  }
  std::int64_t Extent() {
    Peek();
    std::int64_t value = 0;
    const std::size_t start = at_;
    while (at_ < text_.size() && text_[at_] >= '0' && text_[at_] <= '9') {
      if (at_ - start == 18) Fail(name_, "has an extent beyond any memory");  // fits 63 bits
      value = value * 10 + (text_[at_++] - '0');
    }
    if (at_ == start) Fail(name_, "has a damaged header");
    return value;
  }

  std::string_view text_;
  const std::string& name_;
  std::size_t at_ = 0;
};

const DType& ParseDescr(const std::string& descr, const std::string& name, bool* big_endian) {
  // Byte order, kind, size: "<f4", "|b1". Text, dates and objects have kinds that we do not know.
  const DType* dtype = nullptr;
  if (descr.size() == 3 && descr[2] >= '1' && descr[2] <= '8') {
    dtype = FindDType(descr[1], static_cast<std::size_t>(descr[2] - '0'));
  }
  if (dtype == nullptr || std::string_view("<>|=").find(descr[0]) == std::string_view::npos) {
    Fail(name, "has the element type " + descr + ", which models do not take");
  }
  *big_endian = descr[0] == '>';
  return *dtype;
}

// *data* holds the elements with the first index running fastest.
std::vector<std::byte> FromFortranOrder(const std::vector<std::byte>& data,
                                        const std::vector<std::int64_t>& shape, std::size_t item) {
  std::vector<std::byte> out(data.size());
  std::vector<std::size_t> strides(shape.size());
  std::size_t stride = item;
  for (std::size_t d = 0; d < shape.size(); ++d) {
    strides[d] = stride;
    stride *= static_cast<std::size_t>(shape[d]);
  }
  std::vector<std::int64_t> index(shape.size(), 0);
  std::size_t from = 0;
  for (std::size_t to = 0; to < out.size(); to += item) {
    std::memcpy(out.data() + to, data.data() + from, item);
    for (std::size_t d = shape.size(); d-- > 0;) {  // next index in C order
      from += strides[d];
      if (++index[d] < shape[d]) break;
      from -= strides[d] * static_cast<std::size_t>(shape[d]);
      index[d] = 0;
    }
  }
  return out;
}

}  // namespace

Array ParseNpy(const std::byte* bytes, std::size_t size, const std::string& name) {
  const auto byte_at = [bytes](std::size_t i) { return std::to_integer<std::size_t>(bytes[i]); };
  if (size < 10 || std::memcmp(bytes, kNpyMagic.data(), kNpyMagic.size()) != 0) {
    Fail(name, "is not in the npy format");
  }
  const std::size_t major = byte_at(6);
  if (major < 1 || major > 3) Fail(name, "has npy version " + std::to_string(major));
  const std::size_t length_bytes = major == 1 ? 2 : 4;
  const std::size_t start = 8 + length_bytes;
  std::size_t length = 0;
  if (size < start) Fail(name, "is truncated");
  for (std::size_t i = 0; i < length_bytes; ++i) length |= byte_at(8 + i) << (8 * i);
  if (length > size - start) Fail(name, "is truncated");

  const std::string_view text(reinterpret_cast<const char*>(bytes) + start, length);
  Header header = HeaderParser(text, name).Parse();
  bool big_endian = false;
  const DType& dtype = ParseDescr(header.descr, name, &big_endian);

  const std::size_t wanted = ByteSize(dtype, header.shape);
  const std::size_t found = size - start - length;
  if (found != wanted) {
    Fail(name, "holds " + std::to_string(found) + " bytes, " + Describe(dtype.name, header.shape) +
                   " takes " + std::to_string(wanted));
  }
  Array array;
  array.dtype = std::string(dtype.name);
  const std::byte* data = bytes + start + length;
  array.data.assign(data, data + wanted);
  if (big_endian) {
    for (std::size_t at = 0; at < wanted; at += dtype.size) {
      const auto element = array.data.begin() + static_cast<std::ptrdiff_t>(at);
      std::reverse(element, element + static_cast<std::ptrdiff_t>(dtype.size));
    }
  }
  if (header.fortran_order) array.data = FromFortranOrder(array.data, header.shape, dtype.size);
  array.shape = std::move(header.shape);
  return array;
}

std::string NpyHeader(const Array& array) {
  const DType* dtype = FindDType(array.dtype);
  if (dtype == nullptr || array.data.size() != ByteSize(*dtype, array.shape)) {
    Fail("of type " + array.dtype, "cannot be written for numpy");
  }
  std::string header = "{'descr': '";
  header += dtype->size == 1 ? '|' : '<';
  header += dtype->kind;
  header += std::to_string(dtype->size) + "', 'fortran_order': False, 'shape': (";
  for (std::int64_t extent : array.shape) header += std::to_string(extent) + ", ";
  header += "), }";
  const std::size_t prefix = kNpyMagic.size() + 4;
  header.append(63 - (prefix + header.size()) % 64, ' ');
  header += '\n';

  std::string out(kNpyMagic);
  out += '\x01';
  out += '\x00';
  out += static_cast<char>(header.size() & 0xFF);
  out += static_cast<char>(header.size() >> 8);
  return out + header;
}

}  // namespace adt
