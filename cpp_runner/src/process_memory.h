// Memory of this process, as the kernel counts it.
#pragma once

#include <cstdint>
#include <optional>

namespace adt {

/// Resident memory now, in KiB; none when the kernel does not say.
std::optional<std::int64_t> ResidentKb();

/// The most that was resident at any time, in KiB; none when the kernel does not say.
std::optional<std::int64_t> PeakResidentKb();

}  // namespace adt
