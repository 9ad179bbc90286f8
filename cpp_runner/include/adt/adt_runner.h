/* Run a ModelPackage: the C interface of libadt_runner.
 *
 *   adt_runner_t* runner = NULL;
 *   if (adt_runner_create("/data/local/tmp/model", NULL, &runner)) fail(adt_last_error());
 *
 *   adt_runner_set_input(runner, 0, 0, pixels, sizeof(pixels));
 *   adt_runner_run(runner, 0);
 *   adt_runner_get_output(runner, 0, 0, scores, sizeof(scores));
 *   adt_runner_free(runner);
 *
 * Entries, inputs and outputs are named by their number, from 0, in the order of mod.json; the
 * adt_runner_find_... functions give the number of a name. Sizes and offsets are in bytes. Text is
 * UTF-8, ends with a zero, and belongs to the handle unless something else is said. Arrays are
 * dense, in C order and little-endian; a bool is one byte. Structs begin with their size: a library
 * takes those of older and newer programs, and refuses what it does not know unless it is zero.
 *
 * No exception leaves a function. Wrong arguments give an error; a handle that was freed, or a
 * pointer to fewer bytes than was said, cannot be told from a right one.
 *
 * Threads: each handle has a lock, so calls with one handle may come from any thread, one is done
 * after the other, and what belongs together (inputs, run, outputs) is the caller's to keep
 * together. Several handles may be used at once. Models run on a thread of the library's own, the
 * executor, with its workers: one after the other, or side by side where handles have executors of
 * their own (options). The caller's thread waits, and its affinity is left alone.
 *
 * The class in adt/runner.h is the same for C++.
 */
#ifndef ADT_ADT_RUNNER_H_
#define ADT_ADT_RUNNER_H_

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif
#pragma GCC visibility push(default)

/* Raised when a program that was compiled with an older header would no longer work. */
#define ADT_RUNNER_ABI_VERSION 1

/* Status of a function: what went wrong, as rtvm's exit codes. */
typedef int32_t adt_status_t;
#define ADT_OK 0
#define ADT_ERROR_USAGE 2     /* the caller asked for something that does not exist */
#define ADT_ERROR_PACKAGE 3   /* the package is damaged, or a file of it is missing */
#define ADT_ERROR_INPUT 4     /* input or output data does not fit the entry */
#define ADT_ERROR_RUN 5       /* the model was loaded and failed */
#define ADT_ERROR_MISMATCH 6  /* the package is whole, and for another runner, machine or device */
#define ADT_ERROR_NO_DEVICE 7 /* this machine, or this library, has no such device */
#define ADT_ERROR_DEVICE_LOST 8   /* the device does nothing more: free its handles, load again */
#define ADT_ERROR_OUT_OF_MEMORY 9 /* this machine's, or the device's: free some, try again */
#define ADT_ERROR_CANCELLED 10    /* adt_ticket_cancel() ended the run */

/* A session: a loaded package on one device, with inputs, outputs and state. */
typedef struct adt_runner adt_runner_t;
/* A run that was asked for. */
typedef struct adt_ticket adt_ticket_t;
/* An array in the memory of a device, or of the program, and references to it. */
typedef struct adt_tensor adt_tensor_t;

/* Type of an array's elements. */
typedef int32_t adt_dtype_t;
/* clang-format off */
enum { ADT_FLOAT16 = 1, ADT_FLOAT32, ADT_FLOAT64, ADT_INT8, ADT_INT16, ADT_INT32, ADT_INT64,
       ADT_UINT8, ADT_UINT16, ADT_UINT32, ADT_UINT64, ADT_BOOL };
/* clang-format on */

/* Told by the thread that loads a package how many of its OpenCL programs are built, and how many
 * of them there are to be built; not called when there are none. It must return, and throw nothing.
 */
typedef void (*adt_build_progress_t)(void* data, int32_t done, int32_t total);

/* Options of adt_runner_create. All that is zero has its default: start with
 * ADT_RUNNER_OPTIONS_INIT. */
typedef struct adt_runner_options {
  uint32_t struct_size; /* sizeof(adt_runner_options_t): which fields this program knows */
  /* "cpu", "opencl" or "cuda", or one of several ("opencl:1" is the second); NULL: the first of
   * what the package was compiled for. */
  const char* device;
  /* Directory where compiled OpenCL kernels are kept, or "off"; NULL: $ADT_PROGRAM_CACHE, else the
   * user's cache directory, else none. */
  const char* program_cache;
  const char* scratch; /* directory for a library that cannot be loaded from memory; NULL: none */
  /* Threads that build the OpenCL programs that are not in the cache, while the package is loaded;
   * 0: one for each core; -1: none, a program is built when its kernel is first called. */
  int32_t build_threads;
  adt_build_progress_t build_progress; /* NULL: none */
  void* build_progress_data;           /* its first argument */
  /* Not 0: the handle's runs have a thread and workers of their own, beside other handles' runs. */
  int32_t own_executor;
} adt_runner_options_t;
#define ADT_RUNNER_OPTIONS_INIT \
  {(uint32_t)sizeof(adt_runner_options_t), NULL, NULL, NULL, 0, NULL, NULL, 0}

/* A file's contents: in memory when data is not NULL, else in a part of an open file. Only read
 * while the function that takes it runs; the file's position is neither used nor changed. */
typedef struct adt_blob {
  const void* data;
  int64_t size;   /* of a file: -1 for all from offset on */
  int64_t offset; /* of a file: where the contents begin */
  int32_t fd;     /* of a file */
} adt_blob_t;

/* The three files of a package, each from wherever it is. Start with ADT_PACKAGE_SOURCE_INIT. */
typedef struct adt_package_source {
  uint32_t struct_size; /* sizeof(adt_package_source_t) */
  adt_blob_t manifest;  /* mod.json */
  adt_blob_t params;    /* mod.params */
  adt_blob_t library;   /* mod.so; not used when library_name is set */
  /* mod.so as the dynamic linker finds it: a path, or the name of a library that an application
   * carries. Its hash is checked only when it is a path that can be read. */
  const char* library_name;
} adt_package_source_t;
#define ADT_BLOB_NONE {NULL, -1, 0, -1}
#define ADT_PACKAGE_SOURCE_INIT \
  {(uint32_t)sizeof(adt_package_source_t), ADT_BLOB_NONE, ADT_BLOB_NONE, ADT_BLOB_NONE, NULL}

/* An input or output as mod.json describes it, or a tensor. Pointers are valid until the handle or
 * the tensor is freed. */
typedef struct adt_tensor_info {
  uint32_t struct_size; /* set by the caller: sizeof(adt_tensor_info_t) */
  int32_t rank;
  const char* name;
  const char* dtype;    /* float16, float32, float64, int8 ... int64, uint8 ... uint64 or bool */
  const int64_t* shape; /* rank extents; -1 where the extent is symbolic */
  const char* const* symbols; /* rank names; NULL where the extent is a number */
  int64_t element_size;
  int64_t size;     /* of the whole array; -1 when the shape has a symbolic extent */
  adt_dtype_t type; /* dtype as a number */
} adt_tensor_info_t;

/* ---- the library ---- */

/* ADT_RUNNER_ABI_VERSION of the library; a program compares it with that of its header. */
uint32_t adt_runner_abi_version(void);
/* "0.1.0 (TVM 0.25.0, tvm-ffi 0.1.0)", never freed. */
const char* adt_runner_version(void);

/* Last error of this thread, and its remedy; "" when there was none. Valid
 * until the thread's next adt_ function fails. */
const char* adt_last_error(void);
const char* adt_last_remedy(void);
/* Its status, for the functions that return a value; ADT_OK when nothing has gone wrong. */
adt_status_t adt_last_status(void);

/* Threads that work on a kernel, and their cores: those of the executor that handles share,
 * from its next run on, and of all that are made later; the caller's thread is not among them.
 * count: 0 for one per core of the affinity. affinity: "big" (all but the slowest cores), "little"
 * (the slowest), "all", or cores such as "0,4-7"; NULL for "big". Where all cores are alike, each
 * of the names means all. TVM_THREAD_POOL_SPIN_COUNT=0 in the environment, before the first run,
 * lets no thread stay awake between runs and kernels. */
adt_status_t adt_set_threads(int32_t count, const char* affinity);

/* Give back the memory that is kept for later runs, of the CPU and of OpenCL, and that no handle
 * uses now; a later run allocates it again. For Android's onTrimMemory, from any thread. Done by
 * itself when the last handle is freed. */
void adt_trim(void);

/* ---- a handle ---- */

/* Check the package against this runner, this machine and its own hashes, and load it. *out is the
 * handle, or NULL when there is an error. options may be NULL. */
adt_status_t adt_runner_create(const char* directory, const adt_runner_options_t* options,
                               adt_runner_t** out);
adt_status_t adt_runner_create_from(const adt_package_source_t* source,
                                    const adt_runner_options_t* options, adt_runner_t** out);
/* Another session of the package: it shares weights, code and compiled kernels with *of*, and has
 * inputs, outputs and state of its own. Sessions run at once, and are freed in any order. */
adt_status_t adt_runner_create_session(const adt_runner_t* of, adt_runner_t** out);
/* NULL does nothing. Waits for what was started; outputs that were viewed are gone. */
void adt_runner_free(adt_runner_t* runner);

/* ---- what it holds: NULL or -1, with an error, for a wrong handle, number or name ---- */

const char* adt_runner_package_name(const adt_runner_t* runner);
const char* adt_runner_manifest(const adt_runner_t* runner);      /* the text of mod.json */
const char* adt_runner_device(const adt_runner_t* runner);        /* "cpu", "opencl" or "cuda" */
const char* adt_runner_device_name(const adt_runner_t* runner);   /* what it calls itself */
const char* adt_runner_device_driver(const adt_runner_t* runner); /* its version; "" for a CPU */

/* State of the compiled OpenCL kernels: "off", "hit", "written", "rebuilt" or "unsupported".
 * They are written by a thread beside the calls that follow the first run; waits for it. */
const char* adt_runner_program_cache(const adt_runner_t* runner);
/* Remark on the last run, until the handle's next one; "" for none. */
const char* adt_runner_program_cache_warning(const adt_runner_t* runner);

int32_t adt_runner_entry_count(const adt_runner_t* runner);
const char* adt_runner_entry_name(const adt_runner_t* runner, int32_t entry);
int32_t adt_runner_find_entry(const adt_runner_t* runner, const char* name);

int32_t adt_runner_input_count(const adt_runner_t* runner, int32_t entry);
int32_t adt_runner_output_count(const adt_runner_t* runner, int32_t entry);
int32_t adt_runner_find_input(const adt_runner_t* runner, int32_t entry, const char* name);
int32_t adt_runner_find_output(const adt_runner_t* runner, int32_t entry, const char* name);
adt_status_t adt_runner_input_info(const adt_runner_t* runner, int32_t entry, int32_t input,
                                   adt_tensor_info_t* info);
adt_status_t adt_runner_output_info(const adt_runner_t* runner, int32_t entry, int32_t output,
                                    adt_tensor_info_t* info);

/* ---- inputs; each stays set for later runs ---- */

/* Copy an array of the input's own shape. The device's memory is allocated the first time; on
 * OpenCL the copy is made beside the last runs that were started: they have what was set before.
 * Indices out of the range that mod.json knows are refused (ADT_ERROR_INPUT), as they would read
 * other memory; those of a tensor by adt_runner_start, where they lie in this machine's memory. */
adt_status_t adt_runner_set_input(adt_runner_t* runner, int32_t entry, int32_t input,
                                  const void* data, int64_t size);
/* Binds an input with symbolic extents: *shape* has *rank* extents. */
adt_status_t adt_runner_set_input_shaped(adt_runner_t* runner, int32_t entry, int32_t input,
                                         const void* data, int64_t size, const int64_t* shape,
                                         int32_t rank);
/* Binds a tensor, which is used where it lies: of any session or package on the device, of
 * the program's memory on a CPU. The program's memory is copied to another device, now. */
adt_status_t adt_runner_set_input_tensor(adt_runner_t* runner, int32_t entry, int32_t input,
                                         adt_tensor_t* tensor);
/* Memory of the device, set as the input: write there before a run. An input that takes *shape*,
 * which may be NULL with rank 0 when no extent is symbolic. */
adt_status_t adt_runner_input_tensor(adt_runner_t* runner, int32_t entry, int32_t input,
                                     const int64_t* shape, int32_t rank, adt_tensor_t** out);
/* Bytes that memory must be aligned to in order to be used in place; -1 for a wrong handle. */
int64_t adt_runner_alignment(const adt_runner_t* runner);

/* ---- runs ---- */

/* adt_runner_start and adt_runner_wait. */
adt_status_t adt_runner_run(adt_runner_t* runner, int32_t entry);
/* Run. On OpenCL this returns when all kernels are in the device's queue (a driver may begin only
 * when somebody waits); on a CPU, when the model is done. Several runs may be started before one
 * wait. */
adt_status_t adt_runner_start(adt_runner_t* runner, int32_t entry);
/* Wait until the device's queue is empty. Reading an output waits by itself. */
adt_status_t adt_runner_wait(adt_runner_t* runner);

/* Ask for adt_runner_run and return: it is done after what was asked for before, with the inputs as
 * they are then. *done*, which may be NULL, is called by the executor when it is over, with *data*
 * and what adt_runner_run would have returned; it must return soon, and may ask for runs, but
 * neither wait for one nor free a handle. *ticket*, when it is not NULL, gets one. */
typedef void (*adt_run_done_t)(void* data, adt_status_t status);
adt_status_t adt_runner_run_async(adt_runner_t* runner, int32_t entry, adt_run_done_t done,
                                  void* data, adt_ticket_t** ticket);
/* Wait until the run is over and *done* has returned; the result is the run's. */
adt_status_t adt_ticket_wait(adt_ticket_t* ticket);
/* End the run with ADT_ERROR_CANCELLED: at once when it has not begun, else before its next kernel,
 * unless it is over by then. From any thread. Other runs go on; the entry has no outputs. */
void adt_ticket_cancel(adt_ticket_t* ticket);
/* The run is not cancelled by it. NULL does nothing. */
void adt_ticket_free(adt_ticket_t* ticket);

/* ---- outputs of the entry's last run ---- */

/* Write up to *capacity* extents to *shape*; the result is their number, or -1 for an error. shape
 * may be NULL when capacity is 0. */
int32_t adt_runner_output_shape(adt_runner_t* runner, int32_t entry, int32_t output, int64_t* shape,
                                int32_t capacity);
/* Size of the array; -1 for an error. */
int64_t adt_runner_output_size(adt_runner_t* runner, int32_t entry, int32_t output);
/* Copy the array; *size* must be its size. */
adt_status_t adt_runner_get_output(adt_runner_t* runner, int32_t entry, int32_t output, void* data,
                                   int64_t size);
/* The array itself. It stays as it is: the entry's next run has other memory, while anybody has it.
 */
adt_status_t adt_runner_take_output(adt_runner_t* runner, int32_t entry, int32_t output,
                                    adt_tensor_t** out);

/* ---- tensors: from any thread; they outlive the handles that they come from ---- */

/* The program's memory of *size* bytes. *release*, which may be NULL, is called with *release_data*
 * when nobody uses it any more, by whoever was the last: it must return soon, and call no function
 * of a handle. Not when there is an error. */
typedef void (*adt_tensor_release_t)(void* release_data);
adt_status_t adt_tensor_from_memory(void* data, int64_t size, adt_dtype_t dtype,
                                    const int64_t* shape, int32_t rank,
                                    adt_tensor_release_t release, void* release_data,
                                    adt_tensor_t** out);
/* Wraps a cl_mem that is a buffer of the runner's context. */
adt_status_t adt_tensor_from_opencl(adt_runner_t* runner, void* buffer, adt_dtype_t dtype,
                                    const int64_t* shape, int32_t rank,
                                    adt_tensor_release_t release, void* release_data,
                                    adt_tensor_t** out);
/* DLPack's, of a CPU, dense: *managed* is the tensor's from now on, or the caller's. */
struct DLManagedTensorVersioned;
adt_status_t adt_tensor_from_dlpack(struct DLManagedTensorVersioned* managed, adt_tensor_t** out);
adt_status_t adt_tensor_to_dlpack(adt_tensor_t* tensor, struct DLManagedTensorVersioned** out);
/* Another reference, and one less; NULL does nothing. */
adt_tensor_t* adt_tensor_retain(adt_tensor_t* tensor);
void adt_tensor_free(adt_tensor_t* tensor);

adt_status_t adt_tensor_describe(const adt_tensor_t* tensor, adt_tensor_info_t* info);
const char* adt_tensor_device(const adt_tensor_t* tensor); /* as adt_runner_device */
/* Address of the first byte, or on OpenCL the cl_mem; NULL with an error for an
 * image. On OpenCL runs that were started may still write there: adt_runner_wait. */
void* adt_tensor_data(adt_tensor_t* tensor);
/* Copy it to the program's memory, after the runs that were started; *size* must be its size. */
adt_status_t adt_tensor_copy(adt_tensor_t* tensor, void* data, int64_t size);

#pragma GCC visibility pop
#ifdef __cplusplus
}
#endif

#endif /* ADT_ADT_RUNNER_H_ */
