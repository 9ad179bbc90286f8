// What a fuzz target does: it hands bytes to a reader, which takes them or throws adt::Error.
#pragma once

#include <cstddef>
#include <cstdint>

#include "error.h"

/// libFuzzer's entry point.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);

namespace adt {

/// Call *read*; adt::Error is the answer to bad bytes, any other exception ends the process.
template <typename Read>
int TakeOrRefuse(Read&& read) {
  try {
    read();
  } catch (const Error&) {
  }
  return 0;
}

/// End the process unless *holds*.
inline void Require(bool holds) {
  if (!holds) __builtin_trap();
}

}  // namespace adt
