#include "memory_pools.h"

#include <dlfcn.h>
#include <malloc.h>
#include <tvm/ffi/function.h>
#include <tvm/runtime/device_api.h>
#include <tvm/runtime/memory/memory_manager.h>

#include <atomic>

namespace adt {
namespace {

using tvm::runtime::DeviceAPI;
using tvm::runtime::memory::AllocatorType;
using tvm::runtime::memory::MemoryManager;

// Of loaded packages: as TVM's pools, one for the process.
std::atomic<int>& Users() {
  static std::atomic<int> users{0};
  return users;
}

}  // namespace

void TrimMemory() noexcept {
  try {
    for (const DLDeviceType kind : {kDLCPU, kDLOpenCL, kDLCUDA}) {
      const DLDevice device{kind, 0};
      if (DeviceAPI::Get(device, /*allow_missing=*/true) == nullptr) continue;
      // Not MemoryManager::Clear(): it holds the lock that releasing an image's buffer takes.
      MemoryManager::GetOrCreateAllocator(device, AllocatorType::kPooled)->Clear();
    }
    if (const auto release = tvm::ffi::Function::GetGlobal("adt.release_opencl_images")) {
      (*release)();
    }
  } catch (...) {  // a device that is lost keeps it
  }
#if defined(__GLIBC__)
  malloc_trim(0);
#elif defined(M_PURGE)
  using Mallopt = int (*)(int, int);  // of bionic from API level 26 on
  if (const auto purge = reinterpret_cast<Mallopt>(dlsym(RTLD_DEFAULT, "mallopt"))) {
    purge(M_PURGE, 0);
  }
#endif
}

PoolUser::PoolUser() { ++Users(); }

PoolUser::~PoolUser() {
  if (--Users() == 0) TrimMemory();
}

void PoolLimit::AfterNewShape(DLDevice device) {
  constexpr std::size_t kShapes = 4;
  constexpr std::size_t kSmall = std::size_t{16} << 20;  // not worth a thought
  const std::size_t used =
      MemoryManager::GetOrCreateAllocator(device, AllocatorType::kPooled)->UsedMemory();
  if (need_ == 0 || used < need_) need_ = used;  // others trim, too
  if (used <= kShapes * need_ + kSmall) return;
  TrimMemory();
  need_ = 0;
}

}  // namespace adt
