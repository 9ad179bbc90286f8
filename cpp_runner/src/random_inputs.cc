#include "random_inputs.h"

#include <algorithm>
#include <cstring>
#include <string>

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

// The float16 with the value n / 2048, for n below 2048: exact, and never subnormal.
std::uint16_t HalfOf2048th(std::uint32_t n) {
  if (n == 0) return 0;
  int top = 10;
  while ((n >> top) == 0) --top;  // n is in [2^top, 2^(top + 1))
  const auto exponent = static_cast<std::uint32_t>(top - 11 + 15);
  const std::uint32_t mantissa = (n << (10 - top)) & 0x3FF;
  return static_cast<std::uint16_t>(exponent << 10 | mantissa);
}

template <typename T>
void Store(std::byte* at, T value) {
  std::memcpy(at, &value, sizeof(value));
}

// Whole numbers from *low*, as many as *count*.
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

void StoreElement(const DType& dtype, const Span& span, std::uint64_t z, std::byte* at) {
  if (dtype.kind == 'f') {
    if (dtype.size == 8) return Store(at, static_cast<double>(z >> 11) * 0x1p-53);
    if (dtype.size == 4) return Store(at, static_cast<float>(z >> 40) * 0x1p-24F);
    return Store(at, HalfOf2048th(static_cast<std::uint32_t>(z >> 53)));
  }
  const std::uint64_t value = dtype.kind == 'b' ? z >> 63 : span.low + z % span.count;
  std::memcpy(at, &value, dtype.size);  // its low bytes: the machine is little-endian
}

}  // namespace

NamedArrays RandomInputs(const std::vector<TensorSpec>& specs, std::uint64_t seed) {
  NamedArrays inputs;
  for (const TensorSpec& spec : specs) {
    const DType* dtype = FindDType(spec.dtype);
    if (dtype == nullptr) {
      throw Error(ErrorKind::kInput,
                  "no random values for input " + spec.name + " of type " + spec.dtype,
                  "Give the inputs in a file: --input in.npz.");
    }
    Array array;
    array.dtype = spec.dtype;
    for (const Dim& dim : spec.shape) {
      if (dim.symbolic()) {
        throw Error(ErrorKind::kInput,
                    "input " + spec.name + " has the symbolic dimension " + dim.symbol +
                        ", so there is no size for random values",
                    "Give the inputs in a file: --input in.npz.");
      }
      array.shape.push_back(dim.extent);
    }
    array.data.resize(ByteSize(*dtype, array.shape));
    const Span span = SpanOf(spec);
    const std::uint64_t stream = Mix(seed + Fnv1a64(spec.name));
    std::uint64_t counter = stream;
    for (std::size_t at = 0; at < array.data.size(); at += dtype->size) {
      counter += kGolden;
      StoreElement(*dtype, span, Mix(counter), array.data.data() + at);
    }
    inputs.push_back({spec.name, std::move(array)});
  }
  return inputs;
}

}  // namespace adt
