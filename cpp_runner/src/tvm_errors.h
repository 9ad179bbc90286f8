// Turns TVM's exceptions into ours.
#pragma once

#include <tvm/ffi/error.h>

#include <string>
#include <utility>

#include "adt/error.h"

namespace adt {

/// Call *work*; when TVM throws, throw Error(kind, "<doing>: <TVM's message>", remedy) instead.
template <typename Work>
auto WithTvmErrors(ErrorKind kind, const std::string& doing, const std::string& remedy,
                   Work&& work) {
  try {
    return std::forward<Work>(work)();
  } catch (const tvm::ffi::Error& error) {
    std::string message = error.message();
    while (!message.empty() && message.back() == '\n') message.pop_back();
    throw Error(kind, doing + ": " + message, remedy);
  }
}

}  // namespace adt
