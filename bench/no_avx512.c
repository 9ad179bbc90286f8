// Preloaded, a program sees a processor without AVX-512, AVX-VNNI and AMX: CPUID faults, and is
// answered here. Linux on a processor with cpuid faulting (cpuid_fault in /proc/cpuinfo); exits
// with 3 elsewhere.

#define _GNU_SOURCE
#include <asm/prctl.h>
#include <dlfcn.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <ucontext.h>
#include <unistd.h>

static uint32_t without(uint32_t features, const int* bits, int count) {
  for (int i = 0; i < count; ++i) features &= ~(UINT32_C(1) << bits[i]);
  return features;
}
#define WITHOUT(features, ...) \
  without(features, (int[]){__VA_ARGS__}, sizeof((int[]){__VA_ARGS__}) / sizeof(int))

static void allow_cpuid(int allowed) {
  if (syscall(SYS_arch_prctl, ARCH_SET_CPUID, allowed)) {
    perror("CPUID cannot be made to fault");
    _exit(3);
  }
}

static int set_action(int, const struct sigaction*, struct sigaction*);

static void answer(int number, siginfo_t* info, void* context) {
  (void)info;
  greg_t* registers = ((ucontext_t*)context)->uc_mcontext.gregs;
  const uint8_t* code = (const uint8_t*)registers[REG_RIP];
  if (code[0] != 0x0f || code[1] != 0xa2) {  // not CPUID: the fault is the program's own
    set_action(number, &(struct sigaction){.sa_handler = SIG_DFL}, NULL);
    return;
  }
  uint32_t leaf = registers[REG_RAX], part = registers[REG_RCX], a, b, c, d;
  allow_cpuid(1);
  __asm__ volatile("cpuid" : "=a"(a), "=b"(b), "=c"(c), "=d"(d) : "a"(leaf), "c"(part));
  allow_cpuid(0);
  if (leaf == 7 && part == 0) {
    b = WITHOUT(b, 16, 17, 21, 26, 27, 28, 30, 31);  // F, DQ, IFMA, PF, ER, CD, BW, VL
    c = WITHOUT(c, 1, 6, 11, 12, 14);                // VBMI, VBMI2, VNNI, BITALG, VPOPCNTDQ
    d = WITHOUT(d, 2, 3, 8, 22, 23, 24, 25);         // 4VNNIW, 4FMAPS, VP2INTERSECT, AMX, FP16
  } else if (leaf == 7 && part == 1) {
    a = WITHOUT(a, 4, 5);  // AVX-VNNI, AVX512_BF16
  }
  registers[REG_RAX] = a;
  registers[REG_RBX] = b;
  registers[REG_RCX] = c;
  registers[REG_RDX] = d;
  registers[REG_RIP] += 2;
}

static int set_action(int number, const struct sigaction* action, struct sigaction* before) {
  int (*set)(int, const struct sigaction*, struct sigaction*) = dlsym(RTLD_NEXT, "sigaction");
  return set(number, action, before);
}

// The handler stays: TVM sets one of its own.
int sigaction(int number, const struct sigaction* action, struct sigaction* before) {
  return set_action(number, number == SIGSEGV ? NULL : action, before);
}

sighandler_t signal(int number, sighandler_t handler) {
  struct sigaction action = {.sa_handler = handler, .sa_flags = SA_RESTART}, before;
  return sigaction(number, &action, &before) ? SIG_ERR : before.sa_handler;
}

__attribute__((constructor)) static void hide(void) {
  struct sigaction action = {.sa_sigaction = answer, .sa_flags = SA_SIGINFO | SA_NODEFER};
  set_action(SIGSEGV, &action, NULL);
  allow_cpuid(0);  // threads inherit it, and so do children, until they execute a program: that
                   // preloads this
}
