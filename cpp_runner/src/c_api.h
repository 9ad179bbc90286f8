// Handles of the C interface, and what its functions share: arguments checked, exceptions turned
// into a status and a text.

#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <exception>
#include <memory>
#include <mutex>
#include <new>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "adt/adt_runner.h"
#include "device_tensor.h"
#include "devices.h"
#include "dtype.h"
#include "error.h"
#include "executor.h"
#include "memory_pools.h"
#include "session.h"

namespace adt::c_api {

// What adt_tensor_info points to.
struct TensorText {
  std::string name;
  std::string dtype;
  std::vector<std::int64_t> shape;
  std::vector<std::string> names;
  std::vector<const char*> symbols;
  std::int64_t element_size = 0;
  std::int64_t size = -1;
  adt_dtype_t type = 0;

  explicit TensorText(const TensorSpec& spec) : name(spec.name), dtype(spec.dtype) {
    const DType& element = *FindDType(dtype);  // a Session takes no other
    element_size = static_cast<std::int64_t>(element.size);
    type = static_cast<adt_dtype_t>(&element - kDTypes.data() + ADT_FLOAT16);
    bool symbolic = false;
    for (const Dim& dim : spec.shape) {
      shape.push_back(dim.symbolic() ? -1 : dim.extent);
      names.push_back(dim.symbol);
      symbolic = symbolic || dim.symbolic();
    }
    for (const std::string& symbol : names) {
      symbols.push_back(symbol.empty() ? nullptr : symbol.c_str());
    }
    if (!symbolic) size = static_cast<std::int64_t>(ByteSize(element, shape));
  }
};

struct EntryText {
  std::string name;
  std::vector<std::unique_ptr<TensorText>> inputs;  // pointers: they must not move
  std::vector<std::unique_ptr<TensorText>> outputs;
  std::atomic<bool> alone{false};  // no threads shared a loop of its last run
};

struct LastError {
  adt_status_t status = ADT_OK;
  std::string text;
  std::string remedy;
};

// The error of the calling thread's latest call that failed.
LastError& Last();

adt_status_t Remember(adt_status_t status, std::string_view text, std::string_view remedy) noexcept;

// *work*'s status: nothing that it throws goes on.
template <typename Work>
adt_status_t Guard(Work&& work) noexcept {
  try {
    work();
    return ADT_OK;
  } catch (const Error& error) {
    return Remember(static_cast<adt_status_t>(error.kind()), error.what(), error.remedy());
  } catch (const std::bad_alloc&) {
    return Remember(ADT_ERROR_OUT_OF_MEMORY, "out of memory",
                    "Free memory on this machine, or use a smaller model.");
  } catch (const std::exception& error) {
    return Remember(ADT_ERROR_RUN, error.what(),
                    "This is a bug in libadt_runner; report the message.");
  } catch (...) {
    return Remember(ADT_ERROR_RUN, "something was thrown that is no error",
                    "This is a bug in libadt_runner or a driver; report it with the model.");
  }
}

struct AsyncRun {
  std::atomic<bool> cancelled{false};
  Signal over;
  adt_status_t status = ADT_OK;  // once it is over
  LastError error;               // if that is one
};

TensorSpec SpecOf(const DLTensor& tensor);

}  // namespace adt::c_api

struct adt_runner {
  adt_runner(std::shared_ptr<adt::Model> model, std::shared_ptr<adt::Executor> runs_on)
      : executor(std::move(runs_on)), session(std::move(model)) {
    for (const adt::Entry& entry : session.package().entries) {
      adt::c_api::EntryText& text = entries.emplace_back();
      text.name = entry.name;
      for (const auto& spec : entry.inputs) {
        text.inputs.push_back(std::make_unique<adt::c_api::TensorText>(spec));
      }
      for (const auto& spec : entry.outputs) {
        text.outputs.push_back(std::make_unique<adt::c_api::TensorText>(spec));
      }
    }
  }

  const std::shared_ptr<adt::Executor> executor;  // does the runs; outlives the session
  mutable std::mutex mutex;                       // for the session; the rest never changes
  adt::Session session;
  std::deque<adt::c_api::EntryText> entries;
  std::atomic<int> pending{0};  // runs that were asked for and are not over
};

struct adt_ticket {
  std::shared_ptr<adt::c_api::AsyncRun> run;  // the executor has it, too
};

struct adt_tensor {
  explicit adt_tensor(tvm::runtime::Tensor given)
      : tensor(std::move(given)),
        device(adt::KindName(tensor->device)),
        text(adt::c_api::SpecOf(*tensor.operator->())) {}

  adt::PoolUser pool_user;  // the first, and so the last to go
  const tvm::runtime::Tensor tensor;
  const std::string device;
  const adt::c_api::TensorText text;
  std::atomic<std::int32_t> references{1};
};

namespace adt::c_api {

// *work*'s result; *none* when it throws.
template <typename Value, typename Work>
Value GuardValue(Value none, Work&& work) noexcept {
  Value value = none;
  return Guard([&] { value = work(); }) == ADT_OK ? value : none;
}

[[noreturn]] void Misuse(const std::string& what, const std::string& remedy);

template <typename T>
T& Require(T* pointer, const char* name) {
  if (pointer == nullptr) {
    Misuse(std::string(name) + " is NULL", "Give a pointer; adt_runner.h says to what.");
  }
  return *pointer;
}

// A number of the caller's, for a Session, which knows how many there are.
std::size_t Index(std::int32_t number, const char* what);

// Bytes of an array at *data*.
std::size_t ArraySize(const void* data, std::int64_t size);

Extents Shape(const std::int64_t* shape, std::int32_t rank);

// *make*'s tensor, as the caller's first reference.
template <typename Make>
adt_status_t MakeTensor(adt_tensor_t** out, Make&& make) {
  if (out != nullptr) *out = nullptr;
  return Guard([&] {
    Require(out, "out");
    *out = std::make_unique<adt_tensor>(make()).release();
  });
}

// Sizes of structs in ABI 1's first version, which no program is below: numbers, so that no later
// field changes them.
constexpr std::size_t SizeV1(std::size_t of64, std::size_t of32) {
  return sizeof(void*) == 8 ? of64 : of32;
}

void RequireSize(std::uint32_t size, std::size_t first, const char* name);

void Fill(const TensorText& text, adt_tensor_info_t* info);

}  // namespace adt::c_api
