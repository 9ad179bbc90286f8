// How many threads work on a kernel, and on which cores.
#pragma once

#include <string>
#include <vector>

namespace adt {

/// Numbers of the cores that *affinity* names, in order: "big" (all but the slowest, by their
/// highest frequency), "little" (the slowest), "all", or a list such as "0,4-7". Where all cores
/// are alike, each of the names means all. Throws Error(kUsage): none of these, or a core that is
/// not there.
std::vector<int> CoresOf(const std::string& affinity);

/// From now on *count* threads (0: one for each core), this one among them, do the work of kernels
/// that this thread calls, and the system may put them on any of the cores of *affinity*. Returns
/// their number. Throws Error(kUsage): more threads than cores, a pool that is smaller (a thread's
/// pool never grows after its first run), or cores that this process may not use.
int SetThreads(int count, const std::string& affinity);

}  // namespace adt
