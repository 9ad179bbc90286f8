// The C interface: what is loaded, its entries, and their inputs and outputs.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "adt/adt_runner.h"
#include "c_api.h"
#include "session.h"

namespace adt::c_api {

constexpr std::size_t kInfoSizeV1 = SizeV1(56, 40);
static_assert(kInfoSizeV1 <= sizeof(adt_tensor_info_t));

void Fill(const TensorText& text, adt_tensor_info_t* info) {
  adt_tensor_info_t full{};
  full.struct_size = Require(info, "info").struct_size;
  full.rank = static_cast<std::int32_t>(text.shape.size());
  full.name = text.name.c_str();
  full.dtype = text.dtype.c_str();
  full.shape = text.shape.data();
  full.symbols = text.symbols.data();
  full.element_size = text.element_size;
  full.size = text.size;
  full.type = text.type;
  RequireSize(info->struct_size, kInfoSizeV1, "adt_tensor_info");
  auto* bytes = reinterpret_cast<std::byte*>(info);
  std::memset(bytes, 0, info->struct_size);  // a newer program's fields: nothing is known of them
  std::memcpy(bytes, &full, std::min<std::size_t>(full.struct_size, sizeof(full)));
}

}  // namespace adt::c_api

namespace {

using adt::c_api::EntryText;
using adt::c_api::Fill;
using adt::c_api::Guard;
using adt::c_api::GuardValue;
using adt::c_api::Index;
using adt::c_api::Misuse;
using adt::c_api::Require;
using adt::c_api::TensorText;

const EntryText& EntryAt(const adt_runner_t* runner, std::int32_t entry) {
  const adt_runner& r = Require(runner, "runner");
  const std::size_t index = Index(entry, "entry");
  r.session.RequireEntry(index);
  return r.entries[index];
}

const TensorText& TensorAt(const std::vector<std::unique_ptr<TensorText>>& tensors,
                           std::int32_t number, const char* what) {
  if (Index(number, what) >= tensors.size()) {
    Misuse("the entry has no " + std::string(what) + " " + std::to_string(number),
           "It has " + std::to_string(tensors.size()) + ", numbered from 0.");
  }
  return *tensors[static_cast<std::size_t>(number)];
}

std::int32_t Find(const std::vector<std::unique_ptr<TensorText>>& tensors, const char* name,
                  const char* what) {
  Require(name, "name");
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    if (tensors[i]->name == name) return static_cast<std::int32_t>(i);
  }
  std::string names;
  for (const auto& tensor : tensors) names += (names.empty() ? "" : ", ") + tensor->name;
  Misuse("the entry has no " + std::string(what) + " " + name, "It has: " + names + ".");
}

template <typename Text>
const char* TextOf(const adt_runner_t* runner, Text&& text) {
  return GuardValue<const char*>(nullptr, [&] { return text(Require(runner, "runner")).c_str(); });
}

}  // namespace

extern "C" {

const char* adt_runner_package_name(const adt_runner_t* runner) {
  return TextOf(runner, [](const adt_runner& r) -> auto& { return r.session.package().name; });
}

const char* adt_runner_manifest(const adt_runner_t* runner) {
  return TextOf(runner, [](const adt_runner& r) -> auto& { return r.session.model()->manifest(); });
}

const char* adt_runner_device(const adt_runner_t* runner) {
  return TextOf(runner, [](const adt_runner& r) -> auto& { return r.session.model()->device(); });
}

const char* adt_runner_device_name(const adt_runner_t* runner) {
  return TextOf(runner,
                [](const adt_runner& r) -> auto& { return r.session.model()->device_name(); });
}

const char* adt_runner_device_driver(const adt_runner_t* runner) {
  return TextOf(runner,
                [](const adt_runner& r) -> auto& { return r.session.model()->device_driver(); });
}

const char* adt_runner_program_cache(const adt_runner_t* runner) {
  return GuardValue<const char*>(nullptr, [&] {
    return adt::Name(Require(runner, "runner").session.model()->programs().state)
        .data();  // a literal's
  });
}

const char* adt_runner_program_cache_warning(const adt_runner_t* runner) {
  return GuardValue<const char*>(nullptr, [&] {
    return Require(runner, "runner").session.model()->programs().warning.c_str();
  });
}

std::int32_t adt_runner_entry_count(const adt_runner_t* runner) {
  return GuardValue<std::int32_t>(
      -1, [&] { return static_cast<std::int32_t>(Require(runner, "runner").entries.size()); });
}

const char* adt_runner_entry_name(const adt_runner_t* runner, std::int32_t entry) {
  return GuardValue<const char*>(nullptr, [&] { return EntryAt(runner, entry).name.c_str(); });
}

std::int32_t adt_runner_find_entry(const adt_runner_t* runner, const char* name) {
  return GuardValue<std::int32_t>(-1, [&] {
    const adt_runner& r = Require(runner, "runner");
    return static_cast<std::int32_t>(r.session.EntryIndex(&Require(name, "name")));
  });
}

std::int32_t adt_runner_input_count(const adt_runner_t* runner, std::int32_t entry) {
  return GuardValue<std::int32_t>(
      -1, [&] { return static_cast<std::int32_t>(EntryAt(runner, entry).inputs.size()); });
}

std::int32_t adt_runner_output_count(const adt_runner_t* runner, std::int32_t entry) {
  return GuardValue<std::int32_t>(
      -1, [&] { return static_cast<std::int32_t>(EntryAt(runner, entry).outputs.size()); });
}

std::int32_t adt_runner_find_input(const adt_runner_t* runner, std::int32_t entry,
                                   const char* name) {
  return GuardValue<std::int32_t>(
      -1, [&] { return Find(EntryAt(runner, entry).inputs, name, "input"); });
}

std::int32_t adt_runner_find_output(const adt_runner_t* runner, std::int32_t entry,
                                    const char* name) {
  return GuardValue<std::int32_t>(
      -1, [&] { return Find(EntryAt(runner, entry).outputs, name, "output"); });
}

adt_status_t adt_runner_input_info(const adt_runner_t* runner, std::int32_t entry,
                                   std::int32_t input, adt_tensor_info_t* info) {
  return Guard([&] { Fill(TensorAt(EntryAt(runner, entry).inputs, input, "input"), info); });
}

adt_status_t adt_runner_output_info(const adt_runner_t* runner, std::int32_t entry,
                                    std::int32_t output, adt_tensor_info_t* info) {
  return Guard([&] { Fill(TensorAt(EntryAt(runner, entry).outputs, output, "output"), info); });
}

std::int64_t adt_runner_alignment(const adt_runner_t* runner) {
  return GuardValue<std::int64_t>(
      -1, [&] { return Require(runner, "runner").session.package().alignment; });
}

}  // extern "C"
