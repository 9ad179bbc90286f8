// The most multiply-adds that a core starts: twelve sums, which wait for nothing else. GFLOP/s.
// With a number of bytes: how fast it reads as many, again and again. GB/s.

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

typedef float vector __attribute__((vector_size(BYTES)));
enum { SUMS = 12, STEPS = 1 << 16, ROUNDS = 400, READS = 100 };

static double seconds(void) {
  struct timespec now;
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return now.tv_sec + 1e-9 * now.tv_nsec;
}

static int read_bytes(size_t size) {
  size_t count = size / sizeof(vector) / SUMS * SUMS;
  vector *bytes = aligned_alloc(sizeof(vector), count * sizeof(vector));
  if (count == 0 || bytes == NULL) return 1;
  memset(bytes, 1, count * sizeof(vector));
  vector sums[SUMS] = {0};
  double least = 1e9;
  for (int round = 0; round < READS; ++round) {
    double began = seconds();
    for (size_t at = 0; at < count; at += SUMS) {
#pragma GCC unroll 12
      for (int i = 0; i < SUMS; ++i) {
        sums[i] += bytes[at + i];
        __asm__ volatile("" : "+v"(sums[i]));
      }
    }
    double taken = seconds() - began;
    if (taken < least) least = taken;
  }
  printf("%.1f\n", count * sizeof(vector) / least / 1e9);
  free(bytes);
  return 0;
}

int main(int count, char **words) {
  if (count > 1) return read_bytes(strtoull(words[1], NULL, 10));
  vector sums[SUMS] = {0}, factor = {0};
  double least = 1;
  __asm__ volatile("" : "+v"(factor));  // a number that the compiler does not know
  for (int round = 0; round < ROUNDS; ++round) {
    double began = seconds();
    for (int step = 0; step < STEPS; ++step) {
#pragma GCC unroll 12
      for (int i = 0; i < SUMS; ++i) {
        sums[i] = sums[i] * factor + factor;
        __asm__ volatile("" : "+v"(sums[i]));
      }
    }
    double taken = seconds() - began;
    if (taken < least) least = taken;
  }
  printf("%.1f\n", 2.0 * SUMS * STEPS * sizeof(vector) / sizeof(float) / least / 1e9);
}
