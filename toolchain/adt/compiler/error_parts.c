// Linked into each mod.so: TVM's kernels report a wrong argument by this function, the only one that they would take
// from TVM's libraries by name. All others are pointers that the runtime fills when it loads mod.so, and so is the
// one below. With it a mod.so runs with the runtime that loads it, whichever others the process has, under any names.

// weak: a kernel's own object may have it, too
__attribute__((weak)) void (*__TVMFFIErrorSetRaisedFromCStr)(const char *kind, const char *message);

__attribute__((visibility("hidden"))) void TVMFFIErrorSetRaisedFromCStrParts(const char *kind, const char **parts,
                                                                             int count) {
  unsigned long length = 0;
  for (int i = 0; i < count; ++i) {
    for (const char *c = parts[i]; c && *c; ++c) ++length;
  }
  char message[length + 1];  // some hundred bytes: names, types and extents of a kernel's arguments
  char *end = message;
  for (int i = 0; i < count; ++i) {
    for (const char *c = parts[i]; c && *c; ++c) *end++ = *c;
  }
  *end = '\0';
  __TVMFFIErrorSetRaisedFromCStr(kind, message);
}
