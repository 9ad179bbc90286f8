// c_api.cc: a package from memory, and one run of each entry of what could be loaded.
//
// An input is mod.json, a zero byte, mod.params. "@PARAMS@" and "@SIZE@" in mod.json become the
// params' hash and size, so that changed ones are not refused for these alone. $ADT_FUZZ_LIBRARY is
// the package's mod.so.
#include <adt/adt_runner.h>

#include <cstdlib>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

#include "sha256.h"
#include "target.h"

namespace {

constexpr std::string_view kDigest = "@PARAMS@";
constexpr std::string_view kSize = "@SIZE@";
constexpr std::int64_t kLargest = std::int64_t{1} << 20;
constexpr std::int32_t kMost = 8;  // entries, inputs, outputs

// A failure says why.
adt_status_t Said(adt_status_t status) {
  adt::Require(status == ADT_OK ||
               (std::strlen(adt_last_error()) > 0 && std::strlen(adt_last_remedy()) > 0));
  return status;
}

adt_tensor_info_t Info() {
  adt_tensor_info_t info{};
  info.struct_size = sizeof(info);
  return info;
}

void Run(adt_runner_t* runner, std::int32_t entry) {
  const std::int32_t inputs = adt_runner_input_count(runner, entry);
  for (std::int32_t i = 0; i < inputs && i < kMost; ++i) {
    adt_tensor_info_t info = Info();
    adt::Require(adt_runner_input_info(runner, entry, i, &info) == ADT_OK);
    if (info.size < 0 || info.size > kLargest) return;
    const std::vector<char> zeros(static_cast<std::size_t>(info.size));
    if (Said(adt_runner_set_input(runner, entry, i, zeros.data(), info.size)) != ADT_OK) return;
  }
  if (Said(adt_runner_run(runner, entry)) != ADT_OK) return;
  const std::int32_t outputs = adt_runner_output_count(runner, entry);
  for (std::int32_t i = 0; i < outputs && i < kMost; ++i) {
    const std::int64_t size = adt_runner_output_size(runner, entry, i);
    if (size < 0 || size > kLargest) continue;
    std::vector<char> data(static_cast<std::size_t>(size));
    Said(adt_runner_get_output(runner, entry, i, data.data(), size));
  }
}

}  // namespace

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  const std::size_t end = bytes.find('\0');
  std::string manifest(bytes.substr(0, end));
  const std::string params(end == std::string_view::npos ? "" : bytes.substr(end + 1));
  const auto fill = [&](std::string_view placeholder, const std::string& value) {
    const std::size_t at = manifest.find(placeholder);
    if (at != std::string::npos) manifest.replace(at, placeholder.size(), value);
  };
  fill(kDigest, adt::Sha256(params.data(), params.size()));
  fill(kSize, std::to_string(params.size()));

  adt_package_source_t source = ADT_PACKAGE_SOURCE_INIT;
  source.manifest.data = manifest.data();
  source.manifest.size = static_cast<std::int64_t>(manifest.size());
  source.params.data = params.data();
  source.params.size = static_cast<std::int64_t>(params.size());
  source.library_name = std::getenv("ADT_FUZZ_LIBRARY");
  adt_runner_t* runner = nullptr;
  const adt_status_t status = Said(adt_runner_create_from(&source, nullptr, &runner));
  adt::Require((status == ADT_OK) == (runner != nullptr));
  if (runner == nullptr) return 0;
  const std::int32_t entries = adt_runner_entry_count(runner);
  for (std::int32_t entry = 0; entry < entries && entry < kMost; ++entry) Run(runner, entry);
  adt_runner_free(runner);
  return 0;
}
