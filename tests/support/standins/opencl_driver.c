/* STAND-IN for an OpenCL driver: no GPU is behind it, and kernels compute nothing.
 *
 * It keeps memory, counts its objects and calls, and fails when it is told to. Compiled with the
 * OpenCL headers of the TVM source tree. */
#define CL_TARGET_OPENCL_VERSION 120
#define CL_USE_DEPRECATED_OPENCL_1_2_APIS
#include <CL/cl.h>
#include <CL/cl_ext.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "opencl_answers.h"

enum kind { PLATFORM, DEVICE, CONTEXT, QUEUE, MEMORY, PROGRAM, KERNEL, EVENT, KINDS };
struct object {
  enum kind kind;
  int references;
  size_t size;
  char* data;
  struct object* parent; /* what it keeps alive */
};
#define HANDLE(name)      \
  struct _cl_##name {     \
    struct object object; \
  };
HANDLE(platform_id)
HANDLE(device_id)
HANDLE(context)
HANDLE(command_queue)
HANDLE(mem)
HANDLE(program)
HANDLE(kernel)
HANDLE(event)

static struct _cl_platform_id platform = {{PLATFORM, 1, 0, 0, 0}};
static struct _cl_device_id device = {{DEVICE, 1, 0, 0, 0}};
static long alive[KINDS];
static long calls, first_failure, last_failure = -1;
static cl_int failure;

/* ---- what tests ask and set ---- */

/* From now on count calls, and let those from *first* to *last*, counted from 1, fail with *code*.
 */
void standin_fail(long first, long last, cl_int code) {
  calls = 0;
  first_failure = first;
  last_failure = last;
  failure = code;
}
long standin_calls(void) { return calls; }
/* How often clFinish() was called, and something was written to memory. */
static long finishes, writes;
long standin_finishes(void) { return finishes; }
long standin_writes(void) { return writes; }
/* Commands that were to wait for others'. */
static long ordered;
long standin_ordered(void) { return ordered; }
/* Memory objects, programs, kernels and events that were not released. */
long standin_alive(void) { return alive[MEMORY] + alive[PROGRAM] + alive[KERNEL] + alive[EVENT]; }
/* Bytes of memory objects. */
static long bytes;
long standin_bytes(void) { return bytes; }

/* Kernel objects among them. */
long standin_kernels(void) { return alive[KERNEL]; }
/* STANDIN_LOST: from that call on, all of them fail, in a program that cannot be told otherwise. */
__attribute__((constructor)) static void lose(void) {
  const char* given = getenv("STANDIN_LOST");
  if (given) standin_fail(atol(given), 1L << 60, CL_DEVICE_NOT_AVAILABLE);
}

static cl_int next(void) {
  const long call = __atomic_add_fetch(&calls, 1, __ATOMIC_SEQ_CST);
  return call >= first_failure && call <= last_failure ? failure : CL_SUCCESS;
}
#define CALL()                             \
  do {                                     \
    const cl_int code_ = next();           \
    if (code_ != CL_SUCCESS) return code_; \
  } while (0)
#define MAKE()                            \
  do {                                    \
    const cl_int code_ = next();          \
    if (code) *code = code_;              \
    if (code_ != CL_SUCCESS) return NULL; \
  } while (0)

static void wrong(const char* what) {
  fprintf(stderr, "STAND-IN: %s\n", what);
  abort();
}

static void* make(enum kind kind, size_t size, void* parent) {
  struct object* object = calloc(1, sizeof(*object));
  object->kind = kind;
  object->references = 1;
  object->size = size;
  object->data = size ? calloc(1, size) : NULL;
  object->parent = parent;
  if (parent) ++object->parent->references;
  __atomic_add_fetch(&alive[kind], 1, __ATOMIC_SEQ_CST);
  if (kind == MEMORY) __atomic_add_fetch(&bytes, (long)size, __ATOMIC_SEQ_CST);
  return object;
}
static struct object* the(void* handle, enum kind kind) {
  struct object* object = handle;
  if (!object || object->kind != kind || object->references < 1) wrong("a handle that is none");
  return object;
}
static cl_int drop(void* handle, enum kind kind) {
  struct object* object = the(handle, kind);
  if (--object->references > 0) return CL_SUCCESS;
  __atomic_sub_fetch(&alive[kind], 1, __ATOMIC_SEQ_CST);
  if (kind == MEMORY) __atomic_sub_fetch(&bytes, (long)object->size, __ATOMIC_SEQ_CST);
  if (object->parent) drop(object->parent, object->parent->kind);
  free(object->data);
  object->kind = KINDS; /* the rest is kept, so that a second release is seen */
  return CL_SUCCESS;
}

/* STANDIN_VENDOR=QUALCOMM: with what the runtime does for that vendor alone. */
static const char* vendor(void) {
  const char* given = getenv("STANDIN_VENDOR");
  return given ? given : "adt tests";
}

/* ---- OpenCL ---- */

cl_int clGetPlatformIDs(cl_uint n, cl_platform_id* out, cl_uint* count) {
  CALL();
  if (count) *count = 1;
  if (out && n) *out = &platform;
  return CL_SUCCESS;
}
cl_int clGetPlatformInfo(cl_platform_id p, cl_platform_info what, size_t room, void* value,
                         size_t* real) {
  CALL();
  the(p, PLATFORM);
  if (what == CL_PLATFORM_VERSION) TEXT("OpenCL 2.0 STAND-IN");
  TEXT("STAND-IN platform");
}
cl_int clGetDeviceIDs(cl_platform_id p, cl_device_type type, cl_uint n, cl_device_id* out,
                      cl_uint* count) {
  CALL();
  the(p, PLATFORM);
  if (!(type & CL_DEVICE_TYPE_GPU)) return CL_DEVICE_NOT_FOUND;
  if (count) *count = 1;
  if (out && n) *out = &device;
  return CL_SUCCESS;
}
cl_int clGetDeviceInfo(cl_device_id d, cl_device_info what, size_t room, void* value,
                       size_t* real) {
  CALL();
  the(d, DEVICE);
  switch (what) {
    case CL_DEVICE_TYPE:
      NUMBER(cl_device_type, CL_DEVICE_TYPE_GPU);
    case CL_DEVICE_NAME:
      TEXT("STAND-IN: computes nothing");
    case CL_DEVICE_VENDOR:
      TEXT(vendor());
    case CL_DEVICE_VERSION:
      TEXT("OpenCL 2.0 STAND-IN");
    case CL_DRIVER_VERSION:
      TEXT("0");
    case CL_DEVICE_PLATFORM:
      NUMBER(cl_platform_id, &platform);
    case CL_DEVICE_EXTENSIONS:
      TEXT("cl_khr_fp16 cl_khr_image2d_from_buffer");
    case CL_DEVICE_IMAGE_PITCH_ALIGNMENT_KHR:
      NUMBER(cl_uint, 64);
    case CL_DEVICE_MAX_WORK_GROUP_SIZE:
      NUMBER(size_t, 1024);
  }
  return CL_INVALID_VALUE;
}

cl_context clCreateContext(const cl_context_properties* properties, cl_uint n,
                           const cl_device_id* devices,
                           void (*notify)(const char*, const void*, size_t, void*), void* data,
                           cl_int* code) {
  MAKE();
  return make(CONTEXT, 0, NULL);
}
cl_int clReleaseContext(cl_context c) {
  CALL();
  return drop(c, CONTEXT);
}
cl_command_queue clCreateCommandQueue(cl_context c, cl_device_id d,
                                      cl_command_queue_properties properties, cl_int* code) {
  MAKE();
  if (!c) { /* the runtime does not look at what clCreateContext said */
    *code = CL_INVALID_CONTEXT;
    return NULL;
  }
  struct object* queue = make(QUEUE, sizeof(properties), the(c, CONTEXT));
  memcpy(queue->data, &properties, sizeof(properties));
  return (cl_command_queue)queue;
}
cl_int clReleaseCommandQueue(cl_command_queue q) {
  CALL();
  return drop(q, QUEUE);
}
cl_int clGetCommandQueueInfo(cl_command_queue q, cl_command_queue_info what, size_t room,
                             void* value, size_t* real) {
  CALL();
  if (what != CL_QUEUE_PROPERTIES) return CL_INVALID_VALUE;
  return give(the(q, QUEUE)->data, sizeof(cl_command_queue_properties), room, value, real);
}
cl_int clFlush(cl_command_queue q) {
  CALL();
  the(q, QUEUE);
  return CL_SUCCESS;
}
cl_int clFinish(cl_command_queue q) {
  CALL();
  ++finishes;
  the(q, QUEUE);
  return CL_SUCCESS;
}

cl_mem clCreateBuffer(cl_context c, cl_mem_flags flags, size_t size, void* host, cl_int* code) {
  MAKE();
  if (!size) wrong("a buffer of no bytes");
  return make(MEMORY, size, the(c, CONTEXT));
}
cl_mem clCreateImage(cl_context c, cl_mem_flags flags, const cl_image_format* format,
                     const cl_image_desc* about, void* host, cl_int* code) {
  MAKE();
  const size_t texel = format->image_channel_data_type == CL_FLOAT ? 16 : 8;
  const size_t size = texel * about->image_width * about->image_height * about->image_array_size;
  if (!size) wrong("an image of no texels");
  if (about->buffer) return make(MEMORY, 0, the(about->buffer, MEMORY));
  return make(MEMORY, size, the(c, CONTEXT));
}
cl_int clReleaseMemObject(cl_mem m) {
  CALL();
  return drop(m, MEMORY);
}
cl_int clGetMemObjectInfo(cl_mem m, cl_mem_info what, size_t room, void* value, size_t* real) {
  CALL();
  return CL_INVALID_VALUE;
}
cl_int clGetImageInfo(cl_mem m, cl_image_info what, size_t room, void* value, size_t* real) {
  CALL();
  return CL_INVALID_VALUE;
}

cl_program clCreateProgramWithSource(cl_context c, cl_uint n, const char** text, const size_t* size,
                                     cl_int* code) {
  MAKE();
  return make(PROGRAM, 0, the(c, CONTEXT));
}
cl_program clCreateProgramWithBinary(cl_context c, cl_uint n, const cl_device_id* devices,
                                     const size_t* size, const unsigned char** binary,
                                     cl_int* status, cl_int* code) {
  MAKE();
  if (*size != 6 || memcmp(*binary, "binary", 6)) wrong("a binary that this driver did not give");
  if (status) *status = CL_SUCCESS;
  return make(PROGRAM, 0, the(c, CONTEXT));
}
cl_int clReleaseProgram(cl_program p) {
  CALL();
  return drop(p, PROGRAM);
}
cl_int clBuildProgram(cl_program p, cl_uint n, const cl_device_id* devices, const char* options,
                      void (*notify)(cl_program, void*), void* data) {
  CALL();
  the(p, PROGRAM);
  return CL_SUCCESS;
}
cl_int clGetProgramInfo(cl_program p, cl_program_info what, size_t room, void* value,
                        size_t* real) {
  CALL();
  the(p, PROGRAM);
  if (what == CL_PROGRAM_BINARY_SIZES) NUMBER(size_t, 6);
  if (what != CL_PROGRAM_BINARIES) return CL_INVALID_VALUE;
  memcpy(*(unsigned char**)value, "binary", 6);
  return CL_SUCCESS;
}
cl_int clGetProgramBuildInfo(cl_program p, cl_device_id d, cl_program_build_info what, size_t room,
                             void* value, size_t* real) {
  CALL();
  the(p, PROGRAM);
  TEXT("STAND-IN log");
}
cl_kernel clCreateKernel(cl_program p, const char* name, cl_int* code) {
  MAKE();
  return make(KERNEL, 0, the(p, PROGRAM));
}
cl_int clReleaseKernel(cl_kernel k) {
  CALL();
  return drop(k, KERNEL);
}
cl_int clSetKernelArg(cl_kernel k, cl_uint index, size_t size, const void* value) {
  CALL();
  the(k, KERNEL);
  return CL_SUCCESS;
}

static cl_int queued(cl_command_queue q, cl_event* event) {
  the(q, QUEUE);
  if (event) *event = make(EVENT, 0, NULL);
  return CL_SUCCESS;
}
static char* at(cl_mem m, size_t offset, size_t size) {
  struct object* memory = the(m, MEMORY);
  if (offset > memory->size || size > memory->size - offset) wrong("a copy beyond a buffer's end");
  return memory->data + offset;
}
static void known(cl_uint n, const cl_event* events) {
  ordered += n != 0;
  for (cl_uint i = 0; i < n; ++i) the(events[i], EVENT);
}
cl_int clEnqueueReadBuffer(cl_command_queue q, cl_mem m, cl_bool wait, size_t offset, size_t size,
                           void* to, cl_uint n, const cl_event* list, cl_event* event) {
  CALL();
  memcpy(to, at(m, offset, size), size);
  return queued(q, event);
}
cl_int clEnqueueWriteBuffer(cl_command_queue q, cl_mem m, cl_bool wait, size_t offset, size_t size,
                            const void* from, cl_uint n, const cl_event* list, cl_event* event) {
  CALL();
  ++writes;
  known(n, list);
  memcpy(at(m, offset, size), from, size);
  return queued(q, event);
}
void* clEnqueueMapBuffer(cl_command_queue q, cl_mem m, cl_bool wait, cl_map_flags flags,
                         size_t offset, size_t size, cl_uint n, const cl_event* list,
                         cl_event* event, cl_int* code) {
  MAKE();
  the(q, QUEUE);
  return at(m, offset, size);
}
cl_int clEnqueueUnmapMemObject(cl_command_queue q, cl_mem m, void* mapped, cl_uint n,
                               const cl_event* list, cl_event* event) {
  CALL();
  the(q, QUEUE);
  if (mapped != the(m, MEMORY)->data) wrong("memory that was not mapped");
  return CL_SUCCESS;
}
cl_int clEnqueueCopyBuffer(cl_command_queue q, cl_mem from, cl_mem to, size_t from_offset,
                           size_t to_offset, size_t size, cl_uint n, const cl_event* list,
                           cl_event* event) {
  CALL();
  ++writes;
  memmove(at(to, to_offset, size), at(from, from_offset, size), size);
  return queued(q, event);
}
cl_int clEnqueueReadImage(cl_command_queue q, cl_mem m, cl_bool wait, const size_t* origin,
                          const size_t* region, size_t row, size_t slice, void* to, cl_uint n,
                          const cl_event* list, cl_event* event) {
  CALL();
  the(m, MEMORY);
  return queued(q, event);
}
cl_int clEnqueueWriteImage(cl_command_queue q, cl_mem m, cl_bool wait, const size_t* origin,
                           const size_t* region, size_t row, size_t slice, const void* from,
                           cl_uint n, const cl_event* list, cl_event* event) {
  CALL();
  ++writes;
  the(m, MEMORY);
  return queued(q, event);
}
cl_int clEnqueueCopyImage(cl_command_queue q, cl_mem from, cl_mem to, const size_t* from_origin,
                          const size_t* to_origin, const size_t* region, cl_uint n,
                          const cl_event* list, cl_event* event) {
  CALL();
  the(from, MEMORY), the(to, MEMORY);
  return queued(q, event);
}
cl_int clEnqueueCopyImageToBuffer(cl_command_queue q, cl_mem from, cl_mem to, const size_t* origin,
                                  const size_t* region, size_t offset, cl_uint n,
                                  const cl_event* list, cl_event* event) {
  CALL();
  the(from, MEMORY), the(to, MEMORY);
  return queued(q, event);
}
cl_int clEnqueueCopyBufferToImage(cl_command_queue q, cl_mem from, cl_mem to, size_t offset,
                                  const size_t* origin, const size_t* region, cl_uint n,
                                  const cl_event* list, cl_event* event) {
  CALL();
  the(from, MEMORY), the(to, MEMORY);
  return queued(q, event);
}
cl_int clEnqueueNDRangeKernel(cl_command_queue q, cl_kernel k, cl_uint dimensions,
                              const size_t* offset, const size_t* global, const size_t* local,
                              cl_uint n, const cl_event* list, cl_event* event) {
  CALL();
  the(k, KERNEL);
  return queued(q, event);
}
cl_int clWaitForEvents(cl_uint n, const cl_event* events) {
  CALL();
  known(n, events);
  return CL_SUCCESS;
}
cl_int clEnqueueMarkerWithWaitList(cl_command_queue q, cl_uint n, const cl_event* list,
                                   cl_event* event) {
  CALL();
  known(n, list);
  return queued(q, event);
}
cl_int clEnqueueBarrierWithWaitList(cl_command_queue q, cl_uint n, const cl_event* list,
                                    cl_event* event) {
  CALL();
  known(n, list);
  return queued(q, event);
}
cl_int clReleaseEvent(cl_event e) {
  CALL();
  return drop(e, EVENT);
}
cl_int clGetEventProfilingInfo(cl_event e, cl_profiling_info what, size_t room, void* value,
                               size_t* real) {
  CALL();
  the(e, EVENT);
  NUMBER(cl_ulong, what == CL_PROFILING_COMMAND_END ? 1000 : 0);
}
