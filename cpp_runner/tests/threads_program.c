/* threads_program DIRECTORY CACHE: many threads on the C interface of libadt_runner, with the
 * package in DIRECTORY, whose compiled OpenCL programs, if it has any, are kept below CACHE.
 *
 * Built with the thread sanitizer, which watches the executor, tickets, sessions and the thread
 * that keeps programs. Prints "ok". */
#include <adt/adt_runner.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#define REQUIRE(condition)                                                           \
  do {                                                                               \
    if (!(condition)) {                                                              \
      fprintf(stderr, "line %d: %s (%s)\n", __LINE__, #condition, adt_last_error()); \
      exit(1);                                                                       \
    }                                                                                \
  } while (0)

enum { kThreads = 4, kRounds = 20, kCancellers = 8 };

static const char* package;
static const char* cache;
static adt_runner_t* shared;

static adt_runner_t* Load(int own_executor) {
  adt_runner_options_t options = ADT_RUNNER_OPTIONS_INIT;
  adt_runner_t* runner = NULL;
  options.program_cache = cache;
  options.own_executor = own_executor;
  REQUIRE(adt_runner_create(package, &options, &runner) == ADT_OK);
  return runner;
}

static void SetInputs(adt_runner_t* runner) {
  for (int32_t i = 0; i < adt_runner_input_count(runner, 0); ++i) {
    adt_tensor_info_t info;
    info.struct_size = sizeof(info);
    REQUIRE(adt_runner_input_info(runner, 0, i, &info) == ADT_OK);
    void* zeros = calloc(1, (size_t)info.size);
    REQUIRE(adt_runner_set_input(runner, 0, i, zeros, info.size) == ADT_OK);
    free(zeros);
  }
}

static pthread_mutex_t latest_lock = PTHREAD_MUTEX_INITIALIZER;
static adt_tensor_t* latest;

/* Read an output that this thread or another one's run made, leave it, and free the one that was
 * there. */
static void Exchange(adt_tensor_t* taken) {
  adt_tensor_info_t info;
  info.struct_size = sizeof(info);
  REQUIRE(adt_tensor_describe(taken, &info) == ADT_OK);
  void* copy = malloc((size_t)info.size);
  REQUIRE(adt_tensor_copy(taken, copy, info.size) == ADT_OK);
  free(copy);
  pthread_mutex_lock(&latest_lock);
  adt_tensor_t* before = latest;
  latest = adt_tensor_retain(taken);
  pthread_mutex_unlock(&latest_lock);
  adt_tensor_free(before);
  adt_tensor_free(taken);
}

static void Count(void* data, adt_status_t status) {
  REQUIRE(status == ADT_OK || status == ADT_ERROR_CANCELLED);
  ++*(int*)data; /* of one executor's thread, and read after the wait */
}

static void* Use(void* number) {
  const int own = *(const int*)number % 2;
  int called = 0;
  for (int round = 0; round < kRounds; ++round) {
    adt_ticket_t* tickets[2];
    for (int i = 0; i < 2; ++i) {
      REQUIRE(adt_runner_run_async(shared, 0, Count, &called, &tickets[i]) == ADT_OK);
    }
    adt_ticket_cancel(tickets[1]);
    REQUIRE(adt_runner_run(shared, 0) == ADT_OK);
    REQUIRE(adt_runner_run(shared, 9) == ADT_ERROR_USAGE);
    SetInputs(shared);
    for (int i = 0; i < 2; ++i) {
      const adt_status_t status = adt_ticket_wait(tickets[i]);
      REQUIRE(status == ADT_OK || (i == 1 && status == ADT_ERROR_CANCELLED));
      adt_ticket_free(tickets[i]);
    }
    adt_tensor_t* taken = NULL;
    if (adt_runner_take_output(shared, 0, 0, &taken) == ADT_OK) Exchange(taken);
    if (round % 10 == 0) {
      adt_runner_t* runner = Load(own);
      SetInputs(runner);
      REQUIRE(adt_runner_run(runner, 0) == ADT_OK);
      REQUIRE(adt_runner_program_cache(runner) != NULL);
      REQUIRE(adt_runner_take_output(runner, 0, 0, &taken) == ADT_OK);
      REQUIRE(adt_runner_run_async(runner, 0, NULL, NULL, NULL) == ADT_OK);
      adt_runner_free(runner);
      Exchange(taken);
      REQUIRE(adt_set_threads(1, "all") == ADT_OK);
    }
  }
  REQUIRE(called == 2 * kRounds);
  return NULL;
}

/* Wrong sizes, entries and shapes, beside other threads' right ones: each is refused, and changes
 * nothing. */
static void Misuse(adt_runner_t* runner) {
  char bytes[1] = {0};
  const int64_t shape[1] = {-1};
  REQUIRE(adt_runner_set_input(runner, 0, 0, bytes, 1) != ADT_OK);
  REQUIRE(adt_runner_set_input(runner, 0, 0, bytes, INT64_MAX) != ADT_OK);
  REQUIRE(adt_runner_set_input(runner, 0, -1, bytes, 1) == ADT_ERROR_USAGE);
  REQUIRE(adt_runner_set_input_shaped(runner, 0, 0, bytes, 1, shape, 1) != ADT_OK);
  REQUIRE(adt_runner_get_output(runner, 0, 0, bytes, 1) != ADT_OK);
  REQUIRE(adt_runner_get_output(runner, 7, 0, bytes, 1) == ADT_ERROR_USAGE);
  REQUIRE(adt_runner_run_async(runner, 9, NULL, NULL, NULL) != ADT_OK);
  REQUIRE(*adt_last_error() && *adt_last_remedy());
}

static void* Cancel(void* ticket) {
  Misuse(shared);
  adt_ticket_cancel(ticket);
  adt_runner_t* session = NULL;
  REQUIRE(adt_runner_create_session(shared, &session) == ADT_OK);
  SetInputs(session);
  REQUIRE(adt_runner_run(session, 0) == ADT_OK);
  adt_ticket_cancel(ticket);
  adt_runner_free(session);
  return NULL;
}

/* One ticket that many threads cancel, before, while and after it is waited for. */
static void CancelAtOnce(void) {
  for (int round = 0; round < kRounds; ++round) {
    pthread_t threads[kCancellers];
    adt_ticket_t* ticket = NULL;
    REQUIRE(adt_runner_run_async(shared, 0, NULL, NULL, &ticket) == ADT_OK);
    for (int i = 0; i < kCancellers; ++i) {
      REQUIRE(pthread_create(&threads[i], NULL, Cancel, ticket) == 0);
    }
    const adt_status_t status = adt_ticket_wait(ticket);
    REQUIRE(status == ADT_OK || status == ADT_ERROR_CANCELLED);
    for (int i = 0; i < kCancellers; ++i) REQUIRE(pthread_join(threads[i], NULL) == 0);
    adt_ticket_free(ticket);
    REQUIRE(adt_runner_run(shared, 0) == ADT_OK);
  }
}

int main(int argc, char** argv) {
  pthread_t threads[kThreads];
  int numbers[kThreads];
  if (argc != 3) return 2;
  package = argv[1];
  cache = argv[2];
  shared = Load(0);
  SetInputs(shared);
  for (int i = 0; i < kThreads; ++i) {
    numbers[i] = i;
    REQUIRE(pthread_create(&threads[i], NULL, Use, &numbers[i]) == 0);
  }
  for (int i = 0; i < kThreads; ++i) REQUIRE(pthread_join(threads[i], NULL) == 0);
  CancelAtOnce();
  adt_runner_free(shared);
  adt_tensor_free(latest);
  puts("ok");
  return 0;
}
