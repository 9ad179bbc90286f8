"""Libraries that a fleet can measure without a compiler of models: they sleep, crash or hang, as is asked.

What they do may depend on the server that runs them: on ROLE in its environment.
"""

import subprocess
from pathlib import Path

ROLE = "ADT_TEST_ROLE"

SOURCE = r"""
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int __tvm_ffi_main(void* self, const void* arguments, int count, void* result) {
  const char* role = getenv(ROLE);
  (void)self; (void)arguments; (void)count; (void)result;
  usleep(MICROSECONDS);
  if (*WHERE && (!role || strcmp(WHERE, role))) return 0;
  if (!strcmp(DOES, "crash")) raise(SIGSEGV);
  if (!strcmp(DOES, "hang")) for (;;) pause();
  return 0;
}
"""


def candidate(directory: Path, does: str = "", *, seconds: float = 0.002, compiler: str = "cc") -> bytes:
    """Compile a library whose ``main`` sleeps.

    Args:
        does: after that: ``crash`` or ``hang``; ``crash@ROLE`` only on a server with that role.
        seconds: of sleep in each call.
        compiler: for the machine that measures.
    """
    source, library = directory / "candidate.c", directory / "candidate.so"
    source.write_text(SOURCE)
    behaviour, _, device = does.partition("@")
    texts = [f'-D{name}="{text}"' for name, text in (("DOES", behaviour), ("WHERE", device), ("ROLE", ROLE))]
    words = [*texts, f"-DMICROSECONDS={round(seconds * 1e6)}"]
    subprocess.run([compiler, "-shared", "-fPIC", "-O1", *words, source, "-o", library], check=True)
    return library.read_bytes()
