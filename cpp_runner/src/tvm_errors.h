// Turns TVM's exceptions into ours.
#pragma once

#include <exception>
#include <new>
#include <string>
#include <type_traits>
#include <utility>

#include "error.h"

namespace adt {

/// Throw Error("<doing>: <message>"), of the kind that TVM's *message* tells when it is about a
/// device that is lost or has no memory left, which has a remedy of its own; else of *kind*.
[[noreturn]] void ThrowTvmError(ErrorKind kind, const std::string& doing, std::string message,
                                const char* remedy);

/// Call *work*; when TVM throws, throw Error(kind, "<doing>: <TVM's message>", remedy) instead, as
/// ThrowTvmError does. *doing* is text, or a function that gives it: it is asked for only when
/// there is an error.
template <typename Doing, typename Work>
auto WithTvmErrors(ErrorKind kind, const Doing& doing, const char* remedy, Work&& work) {
  try {
    return std::forward<Work>(work)();
  } catch (const Error&) {
    throw;
  } catch (const std::bad_alloc&) {
    throw;
  } catch (const std::exception& error) {
    // Not tvm::ffi::Error: its type information is hidden in this library and another one in TVM's,
    // and Android's C++ library takes them for two types.
    if constexpr (std::is_invocable_v<const Doing&>) {
      ThrowTvmError(kind, doing(), error.what(), remedy);
    } else {
      ThrowTvmError(kind, doing, error.what(), remedy);
    }
  }
}

}  // namespace adt
