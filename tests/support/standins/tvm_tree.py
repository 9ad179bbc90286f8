"""Stand-in for a tree of TVM's sources: the files by which adt knows one."""

from pathlib import Path

from adt.host import sources


def make_tvm_tree(path: Path) -> Path:
    """Create a directory with the files that identify a TVM tree, of TVM 0.25.0 with tvm-ffi 0.1.2."""
    header = "3rdparty/tvm-ffi/include/tvm/ffi/c_api.h"
    numbers = (f"#define TVM_FFI_VERSION_{n} {i}\n" for i, n in enumerate(("MAJOR", "MINOR", "PATCH")))
    texts = {"version.py": '__version__ = "0.25.0"\n', header: "".join(numbers)}
    for name, text in (dict.fromkeys(sources.NEEDED, "") | texts).items():
        (path / name).parent.mkdir(parents=True, exist_ok=True)
        (path / name).write_text(text)
    return path
