// The most multiply-adds that a core starts: twelve sums, which wait for nothing else. GFLOP/s.

#include <stdio.h>
#include <time.h>

typedef float vector __attribute__((vector_size(BYTES)));
enum { SUMS = 12, STEPS = 1 << 16, ROUNDS = 400 };

static double seconds(void) {
  struct timespec now;
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return now.tv_sec + 1e-9 * now.tv_nsec;
}

int main(void) {
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
