/* gpu_faults DIR CACHE: the life of a handle on a GPU that fails, once for each of its OpenCL
 * calls. Compiled programs are kept below CACHE, for each life apart; not in the lives that lose
 * the GPU: a thread beside the runs keeps them, so which call comes when would not be known.
 *
 * The OpenCL library is tests/support/standins/opencl_driver.c. Each life is a process: what a call
 * does at first, in TVM's process-wide state, is done again. Prints one line for each kind of
 * failure: how many lives there were, and in how many of them a function gave an error. */
#include <adt/adt_runner.h>
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static void (*fail)(long first, long last, int32_t code);
static long (*calls)(void);

static void die(const char* what) {
  fprintf(stderr, "%s: %s (%s)\n", what, adt_last_error(), adt_last_remedy());
  _exit(1);
}

static int set_inputs(adt_runner_t* runner) {
  int errors = 0;
  for (int32_t i = 0; i < adt_runner_input_count(runner, 0); ++i) {
    adt_tensor_info_t info;
    info.struct_size = sizeof(info);
    if (adt_runner_input_info(runner, 0, i, &info) != ADT_OK) die("input_info");
    void* zeros = calloc(1, (size_t)info.size);
    errors += adt_runner_set_input(runner, 0, i, zeros, info.size) != ADT_OK;
    free(zeros);
  }
  return errors;
}

/* Errors of one handle's functions from creation on. Its last run is
 * under way when it is freed. */
static int life(const char* package, const char* cache, int free_it) {
  adt_runner_options_t options = ADT_RUNNER_OPTIONS_INIT;
  adt_runner_t* runner = NULL;
  int errors = 0;
  options.program_cache = cache;
  options.build_threads = 1;
  if (adt_runner_create(package, &options, &runner) != ADT_OK) {
    if (runner) die("a handle in spite of an error");
    return 1;
  }
  for (int run = 0; run < 2; ++run) {
    for (int i = 0; i < 3; ++i) { /* beside the runs before */
      errors += set_inputs(runner);
      errors += adt_runner_start(runner, 0) != ADT_OK;
    }
    errors += set_inputs(runner);
    errors += adt_runner_run(runner, 0) != ADT_OK;
    for (int32_t i = 0; i < adt_runner_output_count(runner, 0); ++i) {
      const int64_t size = adt_runner_output_size(runner, 0, i);
      void* to = calloc(1, size < 0 ? 1 : (size_t)size);
      errors += size < 0 || adt_runner_get_output(runner, 0, i, to, size) != ADT_OK;
      free(to);
    }
  }
  adt_ticket_t* ticket = NULL;
  errors += set_inputs(runner);
  errors += adt_runner_run_async(runner, 0, NULL, NULL, &ticket) != ADT_OK;
  if (free_it) adt_runner_free(runner);
  errors += adt_ticket_wait(ticket) != ADT_OK;
  adt_ticket_free(ticket);
  if (errors && (!*adt_last_error() || !*adt_last_remedy())) die("an error without a text");
  return errors;
}

/* In a process of its own: 0, or 1 when there were errors. */
static int child(const char* package, const char* place, long first, long last, int32_t code) {
  fflush(stdout);
  const pid_t pid = fork();
  if (pid == 0) {
    char cache[4096] = "off";
    if (first == last) snprintf(cache, sizeof(cache), "%s/%ld%d", place, first, (int)code);
    fail(first, last, code);
    const int freed = first % 2 == 0;
    const int errors = life(package, cache, freed);
    if (!freed) exit(errors ? 77 : 0); /* with the handle, and with what fails */
    fail(1, -1, 0);
    life(package, cache, 1); /* the device may be there again, or not */
    exit(errors ? 77 : 0);
  }
  int status = 0;
  waitpid(pid, &status, 0);
  if (!WIFEXITED(status) || (WEXITSTATUS(status) != 77 && WEXITSTATUS(status) != 0)) {
    fprintf(stderr, "call %ld to %ld with code %d: status %#x\n", first, last, (int)code, status);
    exit(1);
  }
  return WEXITSTATUS(status) == 77;
}

/* OpenCL calls of a life without a failure; with its end, or without. */
static long count(const char* package, const char* cache, int free_it) {
  int channel[2];
  long number = 0;
  if (pipe(channel)) die("pipe");
  if (fork() == 0) {
    fail(1, -1, 0);
    if (life(package, cache, free_it)) die("an error without a failure");
    number = calls();
    _exit(write(channel[1], &number, sizeof(number)) != sizeof(number));
  }
  int status = 0;
  wait(&status);
  if (status || read(channel[0], &number, sizeof(number)) != sizeof(number)) exit(1);
  close(channel[0]);
  close(channel[1]);
  return number;
}

int main(int argc, char** argv) {
  static const struct {
    const char* name;
    int32_t code;
    int lasts;
  } kinds[] = {
      {"CL_OUT_OF_RESOURCES", -5, 0}, {"CL_INVALID_COMMAND_QUEUE", -36, 0}, {"lost", -2, 1}};
  if (argc != 3) return 2;
  void* driver = dlopen("libOpenCL.so", RTLD_LAZY);
  fail = driver ? (void (*)(long, long, int32_t))dlsym(driver, "standin_fail") : NULL;
  calls = driver ? (long (*)(void))dlsym(driver, "standin_calls") : NULL;
  if (!fail || !calls) die("libOpenCL.so is no stand-in");
  const long all = count(argv[1], argv[2], 1);
  const long used = count(argv[1], "off", 0);
  if (used < 10 || all <= used) die("too few calls");
  for (size_t kind = 0; kind < sizeof(kinds) / sizeof(*kinds); ++kind) {
    int lives = 0, failed = 0;
    for (long call = 1; call <= all; ++call) {
      const int lasts = kinds[kind].lasts;
      const int errors = child(argv[1], argv[2], call, lasts ? 1L << 60 : call, kinds[kind].code);
      if (lasts && call <= used && !errors) {
        fprintf(stderr, "lost from call %ld on: no error\n", call);
        return 1;
      }
      ++lives;
      failed += errors;
    }
    printf("%s %d %d\n", kinds[kind].name, lives, failed);
  }
  return 0;
}
