/* pipelines DIR RUNS ROUNDS: what starting several runs before one wait gains.
 *
 * A line of JSON for each round, milliseconds for one of RUNS: [kernels alone, copies of the inputs
 * alone, set_input and run each, set_input and start each with one wait]. */
#include <adt/adt_runner.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static void check(adt_status_t status) {
  if (status == ADT_OK) return;
  fprintf(stderr, "%s (%s)\n", adt_last_error(), adt_last_remedy());
  exit(1);
}

static double now(void) {
  struct timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return (double)time.tv_sec * 1e3 + (double)time.tv_nsec / 1e6;
}

enum { kMostInputs = 16 };
static adt_runner_t* runner;
static int32_t inputs;
static void* data[2][kMostInputs]; /* of two runs, in turns */
static int64_t sizes[kMostInputs];

static void set_inputs(int run) {
  for (int32_t i = 0; i < inputs; ++i)
    check(adt_runner_set_input(runner, 0, i, data[run % 2][i], sizes[i]));
}

static char* get_output(char* to, int64_t size) {
  check(adt_runner_get_output(runner, 0, 0, to, size));
  return to;
}

int main(int argc, char** argv) {
  if (argc != 4) return 2;
  const int runs = atoi(argv[2]), rounds = atoi(argv[3]);
  check(adt_runner_create(argv[1], NULL, &runner));
  inputs = adt_runner_input_count(runner, 0);
  if (inputs > kMostInputs) return 2;
  for (int32_t i = 0; i < inputs; ++i) {
    adt_tensor_info_t info;
    info.struct_size = sizeof(info);
    check(adt_runner_input_info(runner, 0, i, &info));
    sizes[i] = info.size;
    for (int turn = 0; turn < 2; ++turn) {
      data[turn][i] = malloc((size_t)info.size);
      memset(data[turn][i], 1 + turn, (size_t)info.size); /* also small numbers of any type */
    }
  }
  set_inputs(0);
  check(adt_runner_run(runner, 0));
  const int64_t size = adt_runner_output_size(runner, 0, 0);
  char *each = malloc((size_t)size), *piped = malloc((size_t)size);
  for (int round = -1; round < rounds; ++round) { /* the first one warms up */
    double began = now(), took[4];
    set_inputs(0);
    check(adt_runner_run(runner, 0));
    began = now();
    for (int i = 0; i < runs; ++i) check(adt_runner_start(runner, 0));
    check(adt_runner_wait(runner));
    took[0] = now() - began;

    began = now();
    for (int i = 0; i < runs; ++i) {
      set_inputs(i);
      check(adt_runner_wait(runner));
    }
    took[1] = now() - began;

    began = now();
    for (int i = 0; i < runs; ++i) {
      set_inputs(i);
      check(adt_runner_run(runner, 0));
    }
    took[2] = now() - began;
    get_output(each, size);

    began = now();
    for (int i = 0; i < runs; ++i) {
      set_inputs(i);
      check(adt_runner_start(runner, 0));
    }
    check(adt_runner_wait(runner));
    took[3] = now() - began;
    if (memcmp(each, get_output(piped, size), (size_t)size) != 0) {
      fprintf(stderr, "the two disagree\n");
      return 1;
    }
    if (round < 0) continue;
    printf("[%.4f, %.4f, %.4f, %.4f]\n", took[0] / runs, took[1] / runs, took[2] / runs,
           took[3] / runs);
    fflush(stdout);
  }
  adt_runner_free(runner);
}
