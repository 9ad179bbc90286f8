#include "random_inputs.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <string>
#include <utility>

#include "dtype.h"
#include "error.h"

namespace adt {
namespace {

constexpr std::uint64_t kGolden = 0x9E3779B97F4A7C15;

constexpr std::uint64_t Mix(std::uint64_t z) {
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EB;
  return z ^ (z >> 31);
}

std::uint64_t Fnv1a64(const std::string& text) {
  std::uint64_t hash = 0xCBF29CE484222325;
  for (char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001B3;
  return hash;
}

// The float16 with the value n * 2^scale, for n below 2048 and scale from -11: exact, never
// subnormal.
std::uint16_t Half(std::uint32_t n, int scale) {
  if (n == 0) return 0;
  int top = 10;
  while ((n >> top) == 0) --top;  // n is in [2^top, 2^(top + 1))
  const auto exponent = static_cast<std::uint32_t>(top + scale + 15);
  const std::uint32_t mantissa = (n << (10 - top)) & 0x3FF;
  return static_cast<std::uint16_t>(exponent << 10 | mantissa);
}

template <typename T>
void Store(std::byte* at, T value) {
  std::memcpy(at, &value, sizeof(value));
}

// Integers from *low*, as many as *count*.
struct Span {
  std::uint64_t low = 0;
  std::uint64_t count = 100;
};

Span SpanOf(const TensorSpec& spec) {
  if (!spec.values) return {};
  if (spec.values->unknown) {
    throw Error(ErrorKind::kInput,
                "the values of input " + spec.name +
                    " become indices by a calculation, so none can be made up",
                "Give the inputs in a file: --input in.npz.");
  }
  const std::int64_t low = std::max<std::int64_t>(spec.values->least, 0);
  const std::int64_t most = std::max(spec.values->most, low);
  return {static_cast<std::uint64_t>(low), static_cast<std::uint64_t>(most - low) + 1};
}

void StoreRandom(const DType& dtype, const Span& span, std::uint64_t z, std::byte* at) {
  if (dtype.kind == 'f') {
    if (dtype.size == 8) return Store(at, static_cast<double>(z >> 11) * 0x1p-53);
    if (dtype.size == 4) return Store(at, static_cast<float>(z >> 40) * 0x1p-24F);
    return Store(at, Half(static_cast<std::uint32_t>(z >> 53), -11));
  }
  const std::uint64_t value = dtype.kind == 'b' ? z >> 63 : span.low + z % span.count;
  std::memcpy(at, &value, dtype.size);  // its low bytes: the machine is little-endian
}

void StoreNumber(const DType& dtype, const TensorSpec& spec, const Span& span, std::uint64_t n,
                 std::byte* at) {
  if (dtype.kind == 'f') {
    if (dtype.size == 8) return Store(at, static_cast<double>(n));
    if (dtype.size == 4) return Store(at, static_cast<float>(n % (1U << 24)));
    return Store(at, Half(static_cast<std::uint32_t>(n % (1U << 11)), 0));
  }
  std::uint64_t value = dtype.kind == 'b' ? n % 2 : n;
  if (spec.values) value = span.low + (n < span.low ? 0 : (n - span.low) % span.count);
  std::memcpy(at, &value, dtype.size);
}

constexpr std::array<std::pair<const char*, FillMode>, 4> kFillModes = {
    {{"random", FillMode::kRandom},
     {"zeros", FillMode::kZeros},
     {"ones", FillMode::kOnes},
     {"arange", FillMode::kArange}}};

}  // namespace

std::optional<FillMode> FindFillMode(const std::string& name) {
  for (const auto& [known, fill] : kFillModes) {
    if (name == known) return fill;
  }
  return std::nullopt;
}

const char* FillModeName(FillMode fill) {
  return kFillModes.at(static_cast<std::size_t>(fill)).first;
}

NamedArrays RandomInputs(const std::vector<TensorSpec>& specs, std::uint64_t seed, FillMode fill) {
  NamedArrays inputs;
  for (const TensorSpec& spec : specs) {
    const DType* dtype = FindDType(spec.dtype);
    if (dtype == nullptr) {
      throw Error(ErrorKind::kInput,
                  "no values can be made up for input " + spec.name + " of type " + spec.dtype,
                  "Give the inputs in a file: --input in.npz.");
    }
    Array array;
    array.dtype = spec.dtype;
    for (const Dim& dim : spec.shape) {
      if (dim.symbolic()) {
        throw Error(ErrorKind::kInput,
                    "input " + spec.name + " has the symbolic dimension " + dim.symbol +
                        ", so there is no size for made-up values",
                    "Give the inputs in a file: --input in.npz.");
      }
      array.shape.push_back(dim.extent);
    }
    array.data.resize(ByteSize(*dtype, array.shape));
    const Span span = SpanOf(spec);
    const std::uint64_t stream = Mix(seed + Fnv1a64(spec.name));
    for (std::uint64_t k = 0; k < array.data.size() / dtype->size; ++k) {
      std::byte* at = array.data.data() + k * dtype->size;
      if (fill == FillMode::kRandom) {
        StoreRandom(*dtype, span, Mix(stream + (k + 1) * kGolden), at);
      } else {
        const std::uint64_t n = fill == FillMode::kArange ? k : fill == FillMode::kOnes ? 1 : 0;
        StoreNumber(*dtype, spec, span, n, at);
      }
    }
    inputs.push_back({spec.name, std::move(array)});
  }
  return inputs;
}

}  // namespace adt
