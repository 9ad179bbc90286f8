"""PID 1 of a virtual device that takes faults: what a test gives the product's starter in place of its own."""

import sys
from pathlib import Path

from adt.virtual import init

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[2]))
    from support.devices.faulty_device import FaultyDaemon

    init.launch(FaultyDaemon)
