#include "params.h"

#include <cstring>
#include <set>
#include <utility>

#include "dtype.h"
#include "error.h"

namespace adt {
namespace {

constexpr std::uint64_t kListMagic = 0xF7E58D4F05049CB7;
constexpr std::uint64_t kTensorMagic = 0xDD5E40F096B4A13F;
constexpr std::int32_t kMaxParamRank = 64;

// The file from a place on; every read is checked against its end.
class ParamReader {
 public:
  ParamReader(const std::byte* data, std::size_t size, const std::string& path)
      : data_(data), left_(size), path_(path) {}

  [[noreturn]] void Fail(const std::string& problem) const {
    throw Error(ErrorKind::kPackage, path_ + " " + problem,
                "Deploy the package again (adt deploy); if that does not help, compile it again.");
  }

  const std::byte* Take(std::uint64_t size) {
    if (size > left_) Fail("is truncated or damaged");
    const std::byte* taken = data_;
    data_ += size;
    left_ -= static_cast<std::size_t>(size);
    return taken;
  }

  template <typename T>
  T Number() {
    T value;
    std::memcpy(&value, Take(sizeof(value)), sizeof(value));  // both are little-endian
    return value;
  }

  std::string Text() {
    const auto size = Number<std::uint64_t>();
    return std::string(reinterpret_cast<const char*>(Take(size)), static_cast<std::size_t>(size));
  }

  // Whether *magic* comes next, with a reserved number behind it; both are taken.
  bool Magic(std::uint64_t magic) {
    if (left_ < 2 * sizeof(magic) || Number<std::uint64_t>() != magic) return false;
    Number<std::uint64_t>();
    return true;
  }

  bool AtEnd() const { return left_ == 0; }

 private:
  const std::byte* data_;
  std::size_t left_;
  const std::string& path_;
};

bool Known(DLDataType dtype) {
  switch (dtype.code) {
    case kDLInt:
    case kDLUInt:
    case kDLFloat:
    case kDLBfloat:
    case kDLBool:
      break;
    default:
      return false;
  }
  const bool whole = dtype.bits == 8 || dtype.bits == 16 || dtype.bits == 32 || dtype.bits == 64;
  return whole && dtype.lanes == 1;
}

void ReadTensor(ParamReader* file, Param* param) {
  const auto damaged = [&] { return "is damaged: parameter " + param->name + " "; };
  if (!file->Magic(kTensorMagic)) file->Fail(damaged() + "is not where it should be");
  if (file->Number<std::int32_t>() != kDLCPU) file->Fail(damaged() + "is not for a CPU");
  file->Number<std::int32_t>();  // the CPU's number
  const auto rank = file->Number<std::int32_t>();
  if (rank < 0 || rank > kMaxParamRank)
    file->Fail(damaged() + "has an impossible number of dimensions");
  param->dtype.code = file->Number<std::uint8_t>();
  param->dtype.bits = file->Number<std::uint8_t>();
  param->dtype.lanes = file->Number<std::uint16_t>();
  if (!Known(param->dtype)) {
    file->Fail(damaged() + "has an element type that no parameter has");
  }
  for (std::int32_t i = 0; i < rank; ++i) param->shape.push_back(file->Number<std::int64_t>());
  const auto size = file->Number<std::uint64_t>();
  const auto bytes = ByteSize(param->dtype.bits / 8U, param->shape.data(), param->shape.size());
  if (!bytes || size != *bytes) file->Fail(damaged() + "has a size that its shape does not have");
  param->data = file->Take(size);
  param->size = static_cast<std::size_t>(size);
}

}  // namespace

std::vector<Param> ParseParams(const std::byte* bytes, std::size_t size, const std::string& path) {
  ParamReader file(bytes, size, path);
  if (!file.Magic(kListMagic)) file.Fail("is not a file of parameters");
  const auto count = file.Number<std::uint64_t>();
  std::vector<Param> params;
  std::set<std::string> names;
  for (std::uint64_t i = 0; i < count; ++i) {  // ends at the file's end at the latest
    Param param;
    param.name = file.Text();
    if (!names.insert(param.name).second) file.Fail("is damaged: it has two " + param.name);
    params.push_back(std::move(param));
  }
  if (file.Number<std::uint64_t>() != count) file.Fail("is damaged: its numbers of tensors differ");
  for (Param& param : params) ReadTensor(&file, &param);
  if (!file.AtEnd()) file.Fail("is damaged: something follows the last parameter");
  return params;
}

}  // namespace adt
