"""Stand-ins for OpenCL libraries: they answer with fixed numbers, or misbehave as they are told.

No OpenCL is behind them. They are compiled with the OpenCL headers of the TVM
source tree, so the numbers of parameters are the header's, not adt's own.
"""

import subprocess
from pathlib import Path

from adt.package.host_run.opencl import HostOpenCl

SOURCE = r"""
#define CL_TARGET_OPENCL_VERSION 300
#include <CL/cl.h>
#include <CL/cl_ext.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "opencl_answers.h"

struct _cl_platform_id { int unused; };
struct _cl_device_id { int unused; };
static struct _cl_platform_id platform;
static struct _cl_device_id device;

__attribute__((constructor)) static void loaded(void) {
  puts("STAND-IN: drivers print");
  fflush(stdout);
#ifdef CRASH_LOADING
  abort();
#endif
#ifdef EXIT_LOADING
  _exit(3);
#endif
}

#ifdef CRASH_IN_DESTRUCTOR
__attribute__((destructor)) static void unloaded(void) { abort(); }
#endif

#ifdef PIXEL
#define API __attribute__((visibility("hidden")))
#else
#define API
#endif

#ifndef NO_FUNCTIONS
API cl_int clGetPlatformIDs(cl_uint n, cl_platform_id* out, cl_uint* count) {
#ifdef NO_DRIVER
  return CL_PLATFORM_NOT_FOUND_KHR;
#endif
  if (count) *count = 1;
  if (out && n) *out = &platform;
  return CL_SUCCESS;
}

API cl_int clGetPlatformInfo(cl_platform_id p, cl_platform_info what, size_t room, void* value, size_t* real) {
  switch (what) {
    case CL_PLATFORM_NAME: TEXT("STAND-IN platform");
    case CL_PLATFORM_VENDOR: TEXT("adt tests \xc3\xa9\n");
    case CL_PLATFORM_VERSION: TEXT("OpenCL 3.0 stand-in");
    case CL_PLATFORM_EXTENSIONS: TEXT("cl_khr_icd  cl_adt_standin ");
  }
  return CL_INVALID_VALUE;
}

API cl_int clGetDeviceIDs(cl_platform_id p, cl_device_type type, cl_uint n, cl_device_id* out, cl_uint* count) {
#ifdef NO_DEVICE
  return CL_DEVICE_NOT_FOUND;
#endif
#ifdef DEVICES_FAIL
  return CL_OUT_OF_HOST_MEMORY;
#endif
  if (count) *count = 1;
  if (out && n) *out = &device;
  return CL_SUCCESS;
}

API cl_int clGetDeviceInfo(cl_device_id d, cl_device_info what, size_t room, void* value, size_t* real) {
  switch (what) {
    case CL_DEVICE_TYPE: NUMBER(cl_device_type, CL_DEVICE_TYPE_GPU);
    case CL_DEVICE_NAME: TEXT("STAND-IN GPU");
    case CL_DEVICE_VENDOR: TEXT("adt tests");
#ifdef OLD
    case CL_DEVICE_VERSION: TEXT("OpenCL 1.1 stand-in");
#else
    case CL_DEVICE_VERSION: TEXT("OpenCL 3.0 stand-in");
#endif
    case CL_DRIVER_VERSION: TEXT("1.23");
    case CL_DEVICE_OPENCL_C_VERSION: TEXT("OpenCL C 3.0");
    case CL_DEVICE_EXTENSIONS:
#ifdef CRASH_IN_DEVICE
      *(volatile int*)0 = 1;
#endif
#ifdef HANG_IN_DEVICE
      sleep(1000);
#endif
      TEXT("cl_khr_fp16 cl_khr_image2d_from_buffer cl_qcom_ml_ops");
    case CL_DEVICE_MAX_COMPUTE_UNITS: NUMBER(cl_uint, 3);
    case CL_DEVICE_MAX_CLOCK_FREQUENCY: NUMBER(cl_uint, 700);
    case CL_DEVICE_ADDRESS_BITS: NUMBER(cl_uint, 64);
    case CL_DEVICE_MAX_WORK_GROUP_SIZE: NUMBER(size_t, 512);
    case CL_DEVICE_GLOBAL_MEM_SIZE: NUMBER(cl_ulong, 5000000000);
    case CL_DEVICE_LOCAL_MEM_SIZE: NUMBER(cl_ulong, 32768);
    case CL_DEVICE_MAX_MEM_ALLOC_SIZE: NUMBER(cl_ulong, 4294967296);
    case CL_DEVICE_MEM_BASE_ADDR_ALIGN: NUMBER(cl_uint, 1024);
    case CL_DEVICE_HOST_UNIFIED_MEMORY: NUMBER(cl_bool, CL_TRUE);
    case CL_DEVICE_PREFERRED_VECTOR_WIDTH_HALF: NUMBER(cl_uint, 8);
    case CL_DEVICE_IMAGE_SUPPORT: NUMBER(cl_bool, CL_TRUE);
    case CL_DEVICE_IMAGE2D_MAX_WIDTH: NUMBER(size_t, 16384);
    case CL_DEVICE_IMAGE2D_MAX_HEIGHT: NUMBER(size_t, 16383);
    case CL_DEVICE_IMAGE_MAX_BUFFER_SIZE: NUMBER(size_t, 134217728);
    case CL_DEVICE_IMAGE_MAX_ARRAY_SIZE: NUMBER(size_t, 2047);
#ifndef NO_PITCH
    case CL_DEVICE_IMAGE_PITCH_ALIGNMENT: NUMBER(cl_uint, 64);
#endif
    case CL_DEVICE_IMAGE_BASE_ADDRESS_ALIGNMENT: NUMBER(cl_uint, 16);
  }
  return CL_INVALID_VALUE;
}
#endif

#ifdef CLML
cl_int clQueryMLInterfaceVersionsQCOM(cl_int* major, cl_int* minor, cl_uint n, cl_uint* count) {
#ifdef CRASH_IN_CLML
  abort();
#endif
  if (count) *count = 2;
  for (cl_uint i = 0; major && i < n && i < 2; ++i) { major[i] = 3 + (int)i; minor[i] = 0; }
  return CL_SUCCESS;
}
#endif

#ifdef PIXEL
static int enabled = 0;
void enableOpenCL(void) { enabled = 1; }
void* loadOpenCLPointer(const char* name) {
  if (!enabled) return 0;
  if (!strcmp(name, "clGetPlatformIDs")) return (void*)clGetPlatformIDs;
  if (!strcmp(name, "clGetPlatformInfo")) return (void*)clGetPlatformInfo;
  if (!strcmp(name, "clGetDeviceIDs")) return (void*)clGetDeviceIDs;
  if (!strcmp(name, "clGetDeviceInfo")) return (void*)clGetDeviceInfo;
  return 0;
}
#endif
"""

DEVICE = {
    "name": "STAND-IN GPU",
    "vendor": "adt tests",
    "version": "OpenCL 3.0 stand-in",
    "driver_version": "1.23",
    "opencl_c_version": "OpenCL C 3.0",
    "kind": "gpu",
    "compute_units": 3,
    "max_clock_mhz": 700,
    "address_bits": 64,
    "max_work_group_size": 512,
    "global_memory": 5_000_000_000,
    "local_memory": 32768,
    "max_allocation": 4294967296,
    "base_address_alignment_bits": 1024,
    "unified_memory": True,
    "half_vector_width": 8,
    "images": True,
    "image2d_max_width": 16384,
    "image2d_max_height": 16383,
    "image_max_buffer_size": 134217728,
    "image_max_array_size": 2047,
    "image_pitch_alignment": 64,
    "image_base_address_alignment": 16,
    "extensions": ["cl_khr_fp16", "cl_khr_image2d_from_buffer", "cl_qcom_ml_ops"],
}
"""Report of adt_probe about a stand-in that behaves."""


def make_standin_opencl(path: Path, *faults: str, headers: Path, compiler: str = "gcc") -> Path:
    """Compile a stand-in to *path*.

    Args:
        faults: macros of the source, such as ``CRASH_LOADING``.
        headers: a directory with ``CL/cl.h``.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    places = (f"-I{headers}", f"-I{Path(__file__).parent}")
    words = [compiler, "-shared", "-fPIC", "-O1", "-w", *places, *(f"-D{fault}" for fault in faults)]
    done = subprocess.run(
        [*words, "-x", "c", "-", "-o", str(path)], input=SOURCE, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return path


POCL = HostOpenCl(
    platform="Portable Computing Language",
    name="pthread",
    kind="cpu",
    version="OpenCL 3.0 PoCL",
    driver_version="3.1",
    extensions=("cl_khr_fp64",),
    images=True,
)
"""Device of this machine's OpenCL, as its query describes PoCL's."""
