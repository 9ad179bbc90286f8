"""A stand-in for NVIDIA's driver: memory is the machine's, machine code is looked at, and no kernel computes.

A launch writes zeros where memory holds nothing but bytes of 0xFF, as outputs do when candidates are compared. It is compiled with NVIDIA's cuda.h, and writes a line for each launch to the file that ``CUDA_STANDIN_LOG`` names.
"""

import hashlib
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

from adt.bundle.bundle import MANIFEST, TargetBundle, load_bundle
from adt.bundle.plan import cuda_headers
from adt.host import cache, manifest
from adt.host.cache import file_sha256
from adt.host.directories import resource

SOURCE = r"""
#include <cuda.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct CUfunc_st { char name[512]; };
struct CUmod_st { const char* image; };
static __thread CUcontext current;
static struct CUfunc_st functions[4096];
static int used;
static struct { char* at; size_t size; } blocks[4096];
static int allocated;
struct CUevent_st { long launches; };
static long launches;

CUresult cuInit(unsigned int flags) { return CUDA_SUCCESS; }
CUresult cuDeviceGetCount(int* count) { *count = 1; return CUDA_SUCCESS; }
CUresult cuDeviceGetName(char* name, int room, CUdevice d) {
  strncpy(name, "STAND-IN GPU", room); return CUDA_SUCCESS;
}
CUresult cuDeviceGetAttribute(int* value, CUdevice_attribute what, CUdevice d) {
  *value = what == CU_DEVICE_ATTRIBUTE_WARP_SIZE ? 32 : 1024; return CUDA_SUCCESS;
}
CUresult cuDeviceTotalMem(size_t* size, CUdevice d) { *size = 1u << 30; return CUDA_SUCCESS; }
CUresult cuDevicePrimaryCtxRetain(CUcontext* context, CUdevice d) {
  *context = (CUcontext)&functions; return CUDA_SUCCESS;
}
CUresult cuCtxSetCurrent(CUcontext context) { current = context; return CUDA_SUCCESS; }
#define NEEDS_CONTEXT if (current == NULL) return CUDA_ERROR_INVALID_CONTEXT
CUresult cuMemGetInfo(size_t* left, size_t* total) {
  NEEDS_CONTEXT; *left = *total = 1u << 30; return CUDA_SUCCESS;
}
CUresult cuMemAlloc(CUdeviceptr* address, size_t size) {
  NEEDS_CONTEXT;
  if (size == 0) return CUDA_ERROR_INVALID_VALUE;
  *address = (CUdeviceptr)aligned_alloc(256, (size + 255) / 256 * 256);
  memset((void*)*address, 0, size);
  if (allocated < 4096) blocks[allocated].at = (char*)*address, blocks[allocated++].size = size;
  return CUDA_SUCCESS;
}
CUresult cuMemFree(CUdeviceptr address) {
  NEEDS_CONTEXT;
  for (int i = 0; i < allocated; ++i) {
    if (blocks[i].at == (char*)address) { blocks[i] = blocks[--allocated]; break; }
  }
  free((void*)address);
  return CUDA_SUCCESS;
}
CUresult cuMemAllocHost(void** p, size_t size) { NEEDS_CONTEXT; *p = malloc(size); return CUDA_SUCCESS; }
CUresult cuMemFreeHost(void* p) { free(p); return CUDA_SUCCESS; }
CUresult cuMemcpyHtoDAsync(CUdeviceptr to, const void* from, size_t size, CUstream s) {
  NEEDS_CONTEXT; memcpy((void*)to, from, size); return CUDA_SUCCESS;
}
CUresult cuMemcpyDtoHAsync(void* to, CUdeviceptr from, size_t size, CUstream s) {
  NEEDS_CONTEXT; memcpy(to, (void*)from, size); return CUDA_SUCCESS;
}
CUresult cuMemcpyDtoDAsync(CUdeviceptr to, CUdeviceptr from, size_t size, CUstream s) {
  NEEDS_CONTEXT; memmove((void*)to, (void*)from, size); return CUDA_SUCCESS;
}
CUresult cuMemcpyPeerAsync(CUdeviceptr a, CUcontext b, CUdeviceptr c, CUcontext d, size_t e, CUstream f) {
  return CUDA_ERROR_NOT_SUPPORTED;
}
CUresult cuModuleLoadData(CUmodule* module, const void* image) {
  NEEDS_CONTEXT;
  const unsigned char* bytes = image;
  int machine = bytes[18] | bytes[19] << 8;
  if (memcmp(image, "\177ELF", 4) != 0 || machine != 190) return CUDA_ERROR_INVALID_IMAGE;
  *module = malloc(sizeof(struct CUmod_st));
  (*module)->image = image;
  return CUDA_SUCCESS;
}
CUresult cuModuleUnload(CUmodule module) { free(module); return CUDA_SUCCESS; }
/* The symbols of the image: a kernel that it lacks is not found. */
CUresult cuModuleGetFunction(CUfunction* function, CUmodule module, const char* name) {
  const char* image = module->image;
  unsigned long long sections; unsigned short count;
  memcpy(&sections, image + 40, 8); memcpy(&count, image + 60, 2);
  for (int i = 0; i < count; ++i) {
    const char* section = image + sections + 64 * i;
    unsigned int type; unsigned long long offset, size;
    memcpy(&type, section + 4, 4); memcpy(&offset, section + 24, 8); memcpy(&size, section + 32, 8);
    if (type != 3) continue;  /* SHT_STRTAB */
    for (const char* text = image + offset; text < image + offset + size; text += strlen(text) + 1) {
      if (strcmp(text, name) != 0) continue;
      *function = &functions[used++];
      strncpy((*function)->name, name, sizeof((*function)->name) - 1);
      return CUDA_SUCCESS;
    }
  }
  return CUDA_ERROR_NOT_FOUND;
}
CUresult cuModuleGetGlobal(CUdeviceptr* a, size_t* b, CUmodule m, const char* n) { return CUDA_ERROR_NOT_FOUND; }
CUresult cuFuncSetAttribute(CUfunction f, CUfunction_attribute what, int value) { return CUDA_SUCCESS; }
CUresult cuLaunchKernel(CUfunction f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,
                        unsigned shared, CUstream s, void** arguments, void** extra) {
  NEEDS_CONTEXT;
  FILE* log = fopen(getenv("CUDA_STANDIN_LOG"), "a");
  fprintf(log, "%s %u %u %u %u %u %u\n", f->name, gx, gy, gz, bx, by, bz);
  fclose(log);
  ++launches;
  for (int i = 0; i < allocated; ++i) {
    char* block = blocks[i].at;
    if (block[0] == '\377' && memcmp(block, block + 1, blocks[i].size - 1) == 0) memset(block, 0, blocks[i].size);
  }
  return CUDA_SUCCESS;
}
CUresult cuLaunchCooperativeKernel(CUfunction f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by,
                                   unsigned bz, unsigned shared, CUstream s, void** arguments) {
  return CUDA_ERROR_NOT_SUPPORTED;
}
CUresult cuStreamCreate(CUstream* s, unsigned flags) { *s = NULL; return CUDA_SUCCESS; }
CUresult cuStreamDestroy(CUstream s) { return CUDA_SUCCESS; }
CUresult cuStreamSynchronize(CUstream s) { NEEDS_CONTEXT; return CUDA_SUCCESS; }
CUresult cuStreamWaitEvent(CUstream s, CUevent e, unsigned flags) { return CUDA_SUCCESS; }
CUresult cuEventCreate(CUevent* e, unsigned flags) {
  NEEDS_CONTEXT; *e = calloc(1, sizeof(struct CUevent_st)); return CUDA_SUCCESS;
}
CUresult cuEventDestroy(CUevent e) { free(e); return CUDA_SUCCESS; }
CUresult cuEventRecord(CUevent e, CUstream s) { e->launches = launches; return CUDA_SUCCESS; }
CUresult cuEventSynchronize(CUevent e) { return CUDA_SUCCESS; }
CUresult cuEventElapsedTime(float* ms, CUevent a, CUevent b) {
  *ms = 0.25f * (b->launches - a->launches); return CUDA_SUCCESS;
}
CUresult cuGetErrorName(CUresult error, const char** text) { *text = "STAND-IN ERROR"; return CUDA_SUCCESS; }
CUresult cuGetErrorString(CUresult error, const char** text) { return cuGetErrorName(error, text); }
"""


def make_driver(directory: Path) -> Path:
    """Compile the stand-in to *directory*/libcuda.so.1."""
    source = directory / "driver.c"
    source.write_text(SOURCE)
    headers = f"-I{cuda_headers()}"
    library = directory / "libcuda.so.1"
    subprocess.run(["gcc", "-shared", "-fPIC", "-w", headers, source, "-o", library], check=True)
    return library


def make_runtime(directory: Path, tree: Path, bundle: Path) -> Path:
    """Link TVM's CUDA runtime, as a bundle has it, for a runtime that was built without, to preload it.

    Building a whole bundle takes minutes; these are the same sources with the same headers, compiled once.
    """
    ours = resource("cmake_presets") / "src/cuda"
    sources = [tree / f"src/runtime/cuda/cuda_{name}.cc" for name in ("device_api", "module")]
    ffi = tree / "3rdparty/tvm-ffi"
    headers = (
        ours,
        cuda_headers(),
        tree / "include",
        ffi / "include",
        ffi / "3rdparty/dlpack/include",
        tree / "src",
    )
    name = "libcuda_runtime.so"

    def compile_runtime(place: Path) -> None:
        subprocess.run(
            [
                *(
                    "g++",
                    "-std=c++17",
                    "-shared",
                    "-fPIC",
                    "-O0",
                    "-w",
                    *(f"-I{header}" for header in headers),
                ),
                *(*sources, *sorted(ours.glob("*.cc")), "-o", place / name),
                *(f"-L{bundle / 'lib'}", "-ltvm_runtime", "-ltvm_ffi", "-Wl,--no-undefined"),
            ],
            check=True,
        )

    read = [*sources, *sorted(ours.iterdir()), bundle / "lib/libtvm_runtime.so", Path(__file__)]
    digest = hashlib.sha256("".join(map(file_sha256, read)).encode()).hexdigest()
    path, _ = cache.entry(f"tests/cuda-runtime-{digest[:12]}", compile_runtime)
    (directory / name).symlink_to(path / name)
    return directory / name


def make_bundle(directory: Path, tree: Path, bundle: TargetBundle) -> TargetBundle:
    """Copy *bundle*, of this machine and without CUDA; add CUDA's runtime and a stand-in RPC server.

    Only the server sees the driver: NVRTC would open it in processes that compile.
    """
    place = directory / "bundle"
    shutil.copytree(bundle.path, place)
    runtime, driver = make_runtime(directory, tree, bundle.path), make_driver(directory)
    server = place / "bin/tvm_rpc"
    server.rename(directory / "tvm_rpc")
    server.write_text(
        f"#!/bin/sh\nexport LD_PRELOAD={runtime} LD_LIBRARY_PATH={driver.parent}:{place}/lib "
        f'CUDA_STANDIN_LOG={directory}/log\nexec {directory}/tvm_rpc "$@"\n'
    )
    server.chmod(0o755)
    facts = bundle.manifest
    file = replace(facts.files["bin/tvm_rpc"], sha256=file_sha256(server), size=server.stat().st_size)
    changed = replace(
        facts, files={**facts.files, "bin/tvm_rpc": file}, options=replace(facts.options, cuda=True)
    )
    manifest.write(changed, place / MANIFEST)
    return load_bundle(place)
