"""A child of :mod:`adt.host.child` that a stranger's file has taken over: it answers with the bytes of a file."""

import os
import sys
import time
from pathlib import Path

if __name__ == "__main__":
    os.read(0, 16)
    os.write(1, Path(sys.argv[1]).read_bytes())
    time.sleep(1000)
