/* c_program DIR: every function of the C interface, used right and wrong, on a package that
 * computes y = relu(x @ weight) and m = n + n (float32[2, 3] and int64[4] in, one parameter) on a
 * CPU.
 *
 * Built with sanitizers, which watch what the library does with what it is given. Prints "ok". */
#include <adt/adt_runner.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define REQUIRE(holds)                                                           \
  do {                                                                           \
    if (!(holds)) {                                                              \
      fprintf(stderr, "line %d: %s (%s)\n", __LINE__, #holds, adt_last_error()); \
      exit(1);                                                                   \
    }                                                                            \
  } while (0)
#define REFUSED(status, call) REQUIRE((call) == (status) && *adt_last_error() && *adt_last_remedy())

static const float kX[6] = {1, -2, 3, 4, 5, -6};
static const int64_t kN[4] = {1, 2, 3, INT64_MAX / 2};

static adt_tensor_info_t Info(void) {
  adt_tensor_info_t info;
  memset(&info, 0, sizeof(info));
  info.struct_size = sizeof(info);
  return info;
}

static void SetInputs(adt_runner_t* runner) {
  REQUIRE(adt_runner_set_input(runner, 0, 0, kX, sizeof(kX)) == ADT_OK);
  REQUIRE(adt_runner_set_input(runner, 0, 1, kN, sizeof(kN)) == ADT_OK);
}

static void ReadOutputs(adt_runner_t* runner, float y[10]) {
  int64_t m[4];
  REQUIRE(adt_runner_get_output(runner, 0, 0, y, 10 * sizeof(float)) == ADT_OK);
  REQUIRE(adt_runner_get_output(runner, 0, 1, m, sizeof(m)) == ADT_OK);
  for (int i = 0; i < 4; ++i) REQUIRE(m[i] == 2 * kN[i]);
}

static void Describe(const adt_runner_t* runner) {
  REQUIRE(adt_runner_abi_version() == ADT_RUNNER_ABI_VERSION);
  REQUIRE(*adt_runner_version() && *adt_runner_package_name(runner));
  REQUIRE(!*adt_runner_device_driver(runner) && !*adt_runner_program_cache_warning(runner));
  REQUIRE(strcmp(adt_runner_program_cache(runner), "off") == 0);
  REQUIRE(strstr(adt_runner_manifest(runner), "adt.model-package"));
  REQUIRE(strcmp(adt_runner_device(runner), "cpu") == 0 && *adt_runner_device_name(runner));
  REQUIRE(adt_runner_entry_count(runner) == 1);
  REQUIRE(strcmp(adt_runner_entry_name(runner, 0), "main") == 0);
  REQUIRE(adt_runner_find_entry(runner, "main") == 0);
  REQUIRE(adt_runner_find_input(runner, 0, "n") == 1 &&
          adt_runner_find_output(runner, 0, "m") == 1);
  REQUIRE(adt_runner_input_count(runner, 0) == 2 && adt_runner_output_count(runner, 0) == 2);
  adt_tensor_info_t info = Info();
  REQUIRE(adt_runner_input_info(runner, 0, 0, &info) == ADT_OK);
  REQUIRE(info.rank == 2 && info.shape[0] == 2 && info.shape[1] == 3 && info.size == sizeof(kX));
  REQUIRE(strcmp(info.dtype, "float32") == 0 && strcmp(info.name, "x") == 0 && !info.symbols[0]);
  REQUIRE(adt_runner_output_info(runner, 0, 1, &info) == ADT_OK && info.element_size == 8);
}

static void RefuseWrongArguments(adt_runner_t* runner) {
  char byte = 0;
  adt_tensor_info_t info = Info();
  for (int32_t wrong = -1; wrong <= 7; wrong += 8) {
    REQUIRE(!adt_runner_entry_name(runner, wrong) && *adt_last_error());
    REQUIRE(adt_runner_input_count(runner, wrong) == -1);
    REQUIRE(adt_runner_output_size(runner, 0, wrong) == -1);
    REFUSED(ADT_ERROR_USAGE, adt_runner_input_info(runner, 0, wrong, &info));
    REFUSED(ADT_ERROR_USAGE, adt_runner_output_info(runner, wrong, 0, &info));
    REFUSED(ADT_ERROR_USAGE, adt_runner_set_input(runner, 0, wrong, kX, sizeof(kX)));
    REFUSED(ADT_ERROR_USAGE, adt_runner_run(runner, wrong));
    REFUSED(ADT_ERROR_USAGE, adt_runner_get_output(runner, 0, wrong, &byte, 1));
    adt_tensor_t* none = NULL;
    REFUSED(ADT_ERROR_USAGE, adt_runner_take_output(runner, 0, wrong, &none));
    REFUSED(ADT_ERROR_USAGE, adt_runner_input_tensor(runner, 0, wrong, NULL, 0, &none));
    REFUSED(ADT_ERROR_USAGE, adt_runner_set_input_tensor(runner, 0, wrong, NULL));
    REQUIRE(none == NULL);
  }
  REQUIRE(adt_runner_find_entry(runner, "other") == -1 &&
          adt_runner_find_input(runner, 0, "z") == -1);
  REQUIRE(adt_runner_find_entry(runner, NULL) == -1);
  REQUIRE(adt_runner_set_input(runner, 0, 0, kX, sizeof(kX) - 1) != ADT_OK);
  REQUIRE(adt_runner_set_input(runner, 0, 0, kX, -1) != ADT_OK);
  REQUIRE(adt_runner_set_input(runner, 0, 0, NULL, sizeof(kX)) != ADT_OK);
  REQUIRE(adt_runner_get_output(runner, 0, 0, &byte, 1) != ADT_OK);
  const int64_t negative[2] = {-2, -3};
  REQUIRE(adt_runner_set_input_shaped(runner, 0, 0, kX, sizeof(kX), negative, 2) != ADT_OK);
  REQUIRE(adt_runner_input_info(runner, 0, 0, NULL) != ADT_OK);
  /* A null handle and null arguments are wrong arguments, too. */
  REQUIRE(adt_runner_run(NULL, 0) != ADT_OK && adt_runner_entry_count(NULL) == -1);
  REQUIRE(!adt_runner_manifest(NULL) && adt_runner_wait(NULL) != ADT_OK);
  REQUIRE(adt_runner_create(NULL, NULL, NULL) != ADT_OK);
  adt_runner_t* none = runner;
  REFUSED(ADT_ERROR_PACKAGE, adt_runner_create("/nowhere", NULL, &none));
  REQUIRE(none == NULL);
  adt_runner_free(NULL);
}

static void Count(void* released) { ++*(int*)released; }

/* Set memory as the input x, and give up the reference to it. */
static void UseMemory(adt_runner_t* runner, void* data, const int64_t* extents,
                      adt_status_t status) {
  static int released;
  adt_tensor_t* tensor = NULL;
  adt_tensor_info_t info = Info();
  REFUSED(ADT_ERROR_INPUT,
          adt_tensor_from_memory(data, 4, ADT_FLOAT32, extents, 2, Count, &released, &tensor));
  REFUSED(ADT_ERROR_USAGE,
          adt_tensor_from_memory(data, sizeof(kX), 77, extents, 2, Count, &released, &tensor));
  REQUIRE(tensor == NULL);
  released = 0;
  REQUIRE(adt_tensor_from_memory(data, sizeof(kX), ADT_FLOAT32, extents, 2, Count, &released,
                                 &tensor) == ADT_OK);
  REQUIRE(adt_tensor_describe(tensor, &info) == ADT_OK && info.type == ADT_FLOAT32);
  REQUIRE(info.rank == 2 && info.shape[1] == 3 && info.size == sizeof(kX) && !info.symbols[0]);
  REQUIRE(strcmp(adt_tensor_device(tensor), "cpu") == 0 && adt_tensor_data(tensor) == data);
  REQUIRE(adt_runner_set_input_tensor(runner, 0, 0, tensor) == status);
  REQUIRE(adt_tensor_retain(tensor) == tensor);
  adt_tensor_free(tensor);
  REQUIRE(released == 0);
  adt_tensor_free(tensor);
  REQUIRE(released == (status != ADT_OK)); /* else the runner has it */
}

static void UseEveryWay(adt_runner_t* runner) {
  float want[10];
  float found[10];
  SetInputs(runner);
  REQUIRE(adt_runner_run(runner, 0) == ADT_OK);
  ReadOutputs(runner, want);

  int64_t shape[2];
  REQUIRE(adt_runner_output_shape(runner, 0, 0, NULL, 0) == 2);
  REQUIRE(adt_runner_output_shape(runner, 0, 0, shape, 1) == 2 && shape[0] == 2);
  REQUIRE(adt_runner_output_shape(runner, 0, 0, shape, 2) == 2 && shape[1] == 5);
  REQUIRE(adt_runner_output_size(runner, 0, 0) == sizeof(want));
  adt_tensor_t* taken = NULL;
  REQUIRE(adt_runner_take_output(runner, 0, 0, &taken) == ADT_OK);
  REQUIRE(memcmp(adt_tensor_data(taken), want, sizeof(want)) == 0);
  REQUIRE(adt_tensor_copy(taken, found, sizeof(found) - 1) == ADT_ERROR_INPUT);

  const size_t alignment = (size_t)adt_runner_alignment(runner);
  void* own = aligned_alloc(alignment, alignment);
  REQUIRE(own && sizeof(kX) <= alignment);
  memcpy(own, kX, sizeof(kX));
  const int64_t extents[2] = {2, 3};
  UseMemory(runner, (char*)own + 4, extents, ADT_ERROR_INPUT);
  UseMemory(runner, own, extents, ADT_OK);
  REQUIRE(adt_runner_start(runner, 0) == ADT_OK && adt_runner_start(runner, 0) == ADT_OK);
  REQUIRE(adt_runner_wait(runner) == ADT_OK);
  ReadOutputs(runner, found);
  REQUIRE(memcmp(found, want, sizeof(want)) == 0);
  REQUIRE(adt_runner_set_input_shaped(runner, 0, 0, kX, sizeof(kX), extents, 2) == ADT_OK);
  memset(own, 0, sizeof(kX));
  free(own); /* used no longer */

  int64_t m[4];
  REFUSED(ADT_ERROR_INPUT, adt_runner_set_input_tensor(runner, 0, 0, taken)); /* is float32[2, 5] */
  REQUIRE(memcmp(adt_tensor_data(taken), want, sizeof(want)) == 0); /* after two more runs */
  adt_tensor_free(taken);
  REQUIRE(adt_runner_take_output(runner, 0, 1, &taken) == ADT_OK);
  REFUSED(ADT_ERROR_INPUT, adt_runner_set_input_tensor(runner, 0, 0, taken)); /* is int64 */
  REQUIRE(adt_runner_set_input_tensor(runner, 0, 1, taken) == ADT_OK);        /* n = m */
  adt_tensor_free(taken);
  REQUIRE(adt_runner_run(runner, 0) == ADT_OK);
  REQUIRE(adt_runner_get_output(runner, 0, 1, m, sizeof(m)) == ADT_OK && m[0] == 4 * kN[0]);

  adt_tensor_t* input = NULL;
  REQUIRE(adt_runner_input_tensor(runner, 0, 0, extents, 2, &input) == ADT_OK);
  memcpy(adt_tensor_data(input), kX, sizeof(kX));
  REQUIRE(adt_runner_run(runner, 0) == ADT_OK);
  REQUIRE(adt_runner_get_output(runner, 0, 0, found, sizeof(found)) == ADT_OK);
  REQUIRE(memcmp(found, want, sizeof(want)) == 0);
  adt_tensor_free(input);
  SetInputs(runner);
  REQUIRE(adt_runner_run(runner, 0) == ADT_OK);
  ReadOutputs(runner, found);
  REQUIRE(memcmp(found, want, sizeof(want)) == 0);
}

static void Done(void* calls, adt_status_t status) { *(int*)calls += status == ADT_OK; }

/* Runs that are asked for, of two sessions; a session that outlives what it is of. */
static void UseSessionsAndTickets(const char* directory) {
  enum { kRuns = 8 };
  adt_runner_t* one = NULL;
  adt_runner_t* two = NULL;
  adt_ticket_t* tickets[kRuns];
  int calls = 0;
  int done = 0;
  float y[10];
  REQUIRE(adt_set_threads(1, "all") == ADT_OK);
  REFUSED(ADT_ERROR_USAGE, adt_set_threads(-1, NULL));
  REQUIRE(adt_runner_create(directory, NULL, &one) == ADT_OK);
  REFUSED(ADT_ERROR_USAGE, adt_runner_create_session(NULL, &two));
  REQUIRE(adt_runner_create_session(one, &two) == ADT_OK);
  SetInputs(one);
  SetInputs(two);
  REFUSED(ADT_ERROR_USAGE, adt_runner_run_async(one, 7, Done, &calls, &tickets[0]));
  for (int i = 0; i < kRuns; ++i) {
    adt_runner_t* runner = i % 2 ? two : one;
    REQUIRE(adt_runner_run_async(runner, 0, Done, &calls, &tickets[i]) == ADT_OK);
    if (i % 3 == 2) adt_ticket_cancel(tickets[i]);
  }
  for (int i = 0; i < kRuns; ++i) {
    const adt_status_t status = adt_ticket_wait(tickets[i]);
    REQUIRE(status == ADT_OK || (i % 3 == 2 && status == ADT_ERROR_CANCELLED));
    done += status == ADT_OK;
    adt_ticket_free(tickets[i]);
  }
  REQUIRE(calls == done);
  REQUIRE(adt_runner_run_async(one, 0, Done, &calls, NULL) == ADT_OK);
  adt_runner_free(one); /* waits for it */
  REQUIRE(calls == done + 1);
  adt_ticket_cancel(NULL);
  adt_ticket_free(NULL);
  adt_trim();
  REQUIRE(adt_runner_run(two, 0) == ADT_OK);
  ReadOutputs(two, y);
  REFUSED(ADT_ERROR_USAGE, adt_runner_run_async(two, -1, NULL, NULL, NULL));
  REQUIRE(adt_last_status() == ADT_ERROR_USAGE);
  adt_runner_free(two);
}

/* To DLPack and back: it outlives the handle. */
static void UseDlpack(const char* directory) {
  adt_runner_t* runner = NULL;
  adt_tensor_t* taken = NULL;
  adt_tensor_t* again = NULL;
  struct DLManagedTensorVersioned* managed = NULL;
  float want[10];
  float found[10];
  REQUIRE(adt_runner_create(directory, NULL, &runner) == ADT_OK);
  SetInputs(runner);
  REQUIRE(adt_runner_run(runner, 0) == ADT_OK);
  ReadOutputs(runner, want);
  REQUIRE(adt_runner_take_output(runner, 0, 0, &taken) == ADT_OK);
  REFUSED(ADT_ERROR_USAGE,
          adt_tensor_from_opencl(runner, found, ADT_FLOAT32, NULL, 0, NULL, NULL, &again));
  REFUSED(ADT_ERROR_USAGE, adt_tensor_from_dlpack(NULL, &again));
  REQUIRE(adt_tensor_to_dlpack(taken, &managed) == ADT_OK && managed);
  adt_tensor_free(taken);
  adt_runner_free(runner);
  REQUIRE(adt_tensor_from_dlpack(managed, &again) == ADT_OK);
  REQUIRE(adt_tensor_copy(again, found, sizeof(found)) == ADT_OK);
  REQUIRE(memcmp(found, want, sizeof(want)) == 0);
  adt_tensor_free(again);
}

static char* ReadAll(const char* directory, const char* name, int64_t* size) {
  char path[4096];
  snprintf(path, sizeof(path), "%s/%s", directory, name);
  FILE* file = fopen(path, "rb");
  REQUIRE(file && fseek(file, 0, SEEK_END) == 0);
  *size = ftell(file);
  rewind(file);
  char* data = malloc((size_t)*size); /* no byte more: the sanitizer sees whoever reads on */
  REQUIRE(data && fread(data, 1, (size_t)*size, file) == (size_t)*size);
  fclose(file);
  return data;
}

static void RunOnce(const adt_package_source_t* source) {
  float y[10];
  adt_runner_t* runner = NULL;
  REQUIRE(adt_runner_create_from(source, NULL, &runner) == ADT_OK);
  SetInputs(runner);
  REQUIRE(adt_runner_run(runner, 0) == ADT_OK);
  ReadOutputs(runner, y);
  adt_runner_free(runner);
}

static void LoadFromMemoryAndFiles(const char* directory) {
  static const char* const kFiles[3] = {"mod.json", "mod.params", "mod.so"};
  adt_package_source_t source = ADT_PACKAGE_SOURCE_INIT;
  adt_blob_t* const blobs[3] = {&source.manifest, &source.params, &source.library};
  char* kept[3];
  for (int i = 0; i < 3; ++i) {
    kept[i] = ReadAll(directory, kFiles[i], &blobs[i]->size);
    blobs[i]->data = kept[i];
  }
  RunOnce(&source);

  /* Any shorter part of mod.json or mod.params is refused. */
  for (int i = 0; i < 2; ++i) {
    const int64_t size = blobs[i]->size;
    for (int64_t part = 0; part < size; part += 1 + size / 40) {
      adt_runner_t* none = NULL;
      blobs[i]->size = part;
      REFUSED(ADT_ERROR_PACKAGE, adt_runner_create_from(&source, NULL, &none));
      REQUIRE(none == NULL);
    }
    blobs[i]->size = size;
  }

  /* Part of a file that holds other things before and after, as an Android package does. */
  FILE* file = tmpfile();
  REQUIRE(file);
  int64_t at = 4096;
  for (int i = 0; i < 3; ++i) {
    REQUIRE(pwrite(fileno(file), kept[i], (size_t)blobs[i]->size, at) == blobs[i]->size);
    const adt_blob_t part = {NULL, blobs[i]->size, at, fileno(file)};
    *blobs[i] = part;
    at += part.size + 37;
    free(kept[i]);
  }
  RunOnce(&source);
  adt_runner_t* none = NULL;
  source.params.offset = INT64_MAX;
  REQUIRE(adt_runner_create_from(&source, NULL, &none) != ADT_OK);
  source.params.offset = -1;
  REQUIRE(adt_runner_create_from(&source, NULL, &none) != ADT_OK);
  source.params.offset = 0;
  source.params.fd = -1;
  REQUIRE(adt_runner_create_from(&source, NULL, &none) != ADT_OK);
  fclose(file);
}

static void* RunAndRead(void* handle) {
  float y[10];
  for (int i = 0; i < 20; ++i) {
    REQUIRE(adt_runner_run(handle, 0) == ADT_OK);
    ReadOutputs(handle, y);
    REQUIRE(adt_runner_run(handle, 9) != ADT_OK && *adt_last_error());
  }
  return NULL;
}

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  REQUIRE(*adt_last_error() == 0);
  adt_runner_t* runner = NULL;
  adt_runner_options_t options = ADT_RUNNER_OPTIONS_INIT;
  options.device = "cpu";
  REQUIRE(adt_runner_create(argv[1], &options, &runner) == ADT_OK);
  Describe(runner);
  RefuseWrongArguments(runner);
  UseEveryWay(runner);
  pthread_t threads[2];
  for (int i = 0; i < 2; ++i) REQUIRE(pthread_create(&threads[i], NULL, RunAndRead, runner) == 0);
  for (int i = 0; i < 2; ++i) REQUIRE(pthread_join(threads[i], NULL) == 0);
  adt_runner_free(runner);
  options.device = "opencl";
  REFUSED(ADT_ERROR_MISMATCH, adt_runner_create(argv[1], &options, &runner));
  UseSessionsAndTickets(argv[1]);
  UseDlpack(argv[1]);
  LoadFromMemoryAndFiles(argv[1]);
  puts("ok");
  return 0;
}
