/* unload PACKAGE LIBRARY...: load the libraries in their order and unload them, 100 times. The last
 * one is libadt_runner where PACKAGE is not "-": the package runs on a thread that ends before, and
 * on one that ends after it. Prints "done". */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

static void* runner_library;
static const char* package;
static sem_t ran, go_on;

static void fail(const char* what, const char* why) {
  fprintf(stderr, "%s: %s\n", what, why ? why : "?");
  exit(1);
}

static void run(void) {
  typedef int32_t (*create_t)(const char*, const void*, void**);
  typedef int32_t (*set_t)(void*, int32_t, int32_t, const void*, int64_t);
  typedef int32_t (*run_t)(void*, int32_t);
  typedef void (*free_t)(void*);
  static const int64_t zeros[4];
  void* runner = NULL;
  if (((create_t)dlsym(runner_library, "adt_runner_create"))(package, NULL, &runner) ||
      ((set_t)dlsym(runner_library, "adt_runner_set_input"))(runner, 0, 0, zeros, 24) ||
      ((set_t)dlsym(runner_library, "adt_runner_set_input"))(runner, 0, 1, zeros, 32) ||
      ((run_t)dlsym(runner_library, "adt_runner_run"))(runner, 0)) {
    fail("run", ((const char* (*)(void))dlsym(runner_library, "adt_last_error"))());
  }
  ((free_t)dlsym(runner_library, "adt_runner_free"))(runner);
}

static void* ends_before(void* unused) {
  run();
  return unused;
}

static void* ends_after(void* unused) {
  run();
  sem_post(&ran);
  sem_wait(&go_on); /* TVM's data of this thread goes when the library is unloaded */
  return unused;
}

int main(int argc, char** argv) {
  package = argv[1];
  const int runs = *package != '-';
  sem_init(&ran, 0, 0);
  sem_init(&go_on, 0, 0);
  for (int round = 0; round < 100; ++round) {
    void* libraries[16];
    int count = 0;
    pthread_t before, after;
    for (int i = 2; i < argc; ++i) {
      void* library = dlopen(argv[i], RTLD_NOW | RTLD_GLOBAL);
      if (!library) fail(argv[i], dlerror());
      libraries[count++] = library;
    }
    runner_library = libraries[count - 1];
    if (runs) {
      pthread_create(&before, NULL, ends_before, NULL);
      pthread_join(before, NULL);
      pthread_create(&after, NULL, ends_after, NULL);
      sem_wait(&ran);
    }
    while (count > 0) {
      if (dlclose(libraries[--count])) fail("dlclose", dlerror());
    }
    if (runs) {
      sem_post(&go_on);
      pthread_join(after, NULL);
    }
  }
  puts("done");
  return 0;
}
