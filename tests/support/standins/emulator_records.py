"""Records of virtual devices that a test makes up."""

from adt.host import manifest, process
from adt.virtual import state


def emulator_record(name: str, pid: int, start_time: int) -> state.EmulatorRecord:
    """Return the record of a virtual device of this boot with that PID 1."""
    boot = process.boot_id()
    return state.EmulatorRecord(state.SCHEMA, 1, name, 5555, pid, start_time, boot, "userns", "/userland", "")


def write_record(entry: state.EmulatorRecord) -> state.Home:
    """Write *entry* where the records of running devices lie."""
    at = state.home(entry.name)
    at.directory.mkdir(parents=True)
    manifest.write(entry, at.record)
    return at
