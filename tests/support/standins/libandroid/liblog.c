// STAND-IN for Android's liblog: stderr, one line for each entry's first.

#include <android/log.h>
#include <stdio.h>

int __android_log_write(int prio, const char* tag, const char* text) {
  const char letters[] = "..VDIWEF";
  return fprintf(stderr, "%c %s: %s\n", prio >= 0 && prio < 8 ? letters[prio] : '?', tag, text);
}
