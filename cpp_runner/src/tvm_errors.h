// Turns TVM's exceptions into ours.
#pragma once

#include <algorithm>
#include <exception>
#include <new>
#include <string>
#include <type_traits>
#include <utility>

#include "error.h"

namespace adt {

/// Call *work*; when TVM throws, throw Error(kind, "<doing>: <TVM's message>", remedy) instead.
/// *doing* is text, or a function that gives it: it is asked for only when there is an error.
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
    // A driver's build log, which TVM quotes, may hold a NUL and other characters that no terminal
    // wants.
    std::string message = error.what();
    message.erase(std::remove_if(message.begin(), message.end(),
                                 [](unsigned char c) {
                                   return (c < 0x20 && c != '\n' && c != '\t') || c == 0x7F;
                                 }),
                  message.end());
    while (!message.empty() && message.back() == '\n') message.pop_back();
    if constexpr (std::is_invocable_v<const Doing&>) {
      throw Error(kind, doing() + ": " + message, remedy);
    } else {
      throw Error(kind, std::string(doing) + ": " + message, remedy);
    }
  }
}

}  // namespace adt
