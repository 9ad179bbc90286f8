"""Seeds of the fuzz targets: right files, and wrong ones that a reader once took or that TVM's own takes."""

import hashlib
import io
import struct
import zipfile
from collections.abc import Sequence

import numpy as np

LIST_MAGIC, TENSOR_MAGIC = 0xF7E58D4F05049CB7, 0xDD5E40F096B4A13F
FLOAT32 = (2, 32, 1)


def params_file(
    tensors: Sequence[bytes], *, names: Sequence[bytes] | None = None, count: int | None = None
) -> bytes:
    """Return a mod.params of *tensors*, each from :func:`tensor`; *count* instead of their number."""
    names = [b"p%d" % n for n in range(len(tensors))] if names is None else names
    count = len(tensors) if count is None else count
    listed = b"".join(struct.pack("<Q", len(name)) + name for name in names)
    return struct.pack("<QQQ", LIST_MAGIC, 0, count) + listed + struct.pack("<Q", count) + b"".join(tensors)


def tensor(
    shape: Sequence[int],
    data: bytes,
    *,
    dtype: tuple[int, int, int] = FLOAT32,
    size: int | None = None,
    rank: int | None = None,
    device: int = 1,
) -> bytes:
    """Return one tensor of a mod.params; *size* and *rank* instead of those of *data* and *shape*.

    Args:
        dtype: DLPack's code, bits and lanes.
    """
    head = struct.pack("<QQiii", TENSOR_MAGIC, 0, device, 0, len(shape) if rank is None else rank)
    head += struct.pack("<BBH", *dtype) + b"".join(struct.pack("<q", extent) for extent in shape)
    return head + struct.pack("<q", len(data) if size is None else size) + data


GOOD_PARAMS = {
    "params none": params_file([]),
    "params two": params_file([tensor((2, 3), bytes(24)), tensor((), bytes(8), dtype=(0, 64, 1))]),
    "params bool": params_file([tensor((4,), bytes(4), dtype=(6, 8, 1))]),
    "params empty": params_file([tensor((0, 3), b"")]),
}
BAD_PARAMS = {
    "text": b"what is this",
    "empty": b"",
    "no tensors where some should be": params_file([], names=[b"a"], count=1),
    "more tensors than memory": params_file([], count=1 << 58),
    "name longer than memory": params_file([], count=1)[:24] + struct.pack("<Q", 1 << 62),
    "negative rank": params_file([tensor((), bytes(4), rank=-1)]),
    "rank beyond the file": params_file([tensor((), bytes(4), rank=2**31 - 1)]),
    "negative extent": params_file([tensor((-1,), bytes(4))]),
    "extents whose product wraps": params_file([tensor((2**32, 2**32), b"", size=0)]),
    "extent beyond memory": params_file([tensor((2**60,), b"", size=2**62)]),
    # TVM's reader takes these, and writes past the end of the tensor.
    "four bits": params_file([tensor((4096,), bytes(4096), dtype=(0, 4, 1))]),
    "lanes": params_file([tensor((4,), bytes(16), dtype=(2, 32, 0))]),
    "no bits": params_file([tensor((4,), b"", dtype=(2, 0, 1))]),
    "opaque": params_file([tensor((1,), bytes(8), dtype=(3, 64, 1))]),
    "on a GPU": params_file([tensor((1,), bytes(4), device=4)]),
    "two of one name": params_file([tensor((), bytes(4))] * 2, names=[b"a", b"a"]),
    "size of another shape": params_file([tensor((2,), bytes(4))]),
    "cut": GOOD_PARAMS["params two"][:-1],
    "followed by something": GOOD_PARAMS["params two"] + b"\0",
}


def npy(dtype: str, shape: tuple[int, ...], order: str = "C") -> bytes:
    file = io.BytesIO()
    np.save(file, np.zeros(shape, dtype, order="F" if order == "F" else "C"))
    return file.getvalue()


NPY = {
    f"{dtype} {len(shape)} {order}".replace("<", "").replace(">", "big "): npy(dtype, shape, order)
    for dtype in ("<f2", "<f4", ">f8", "|i1", "<i4", ">i8", "|u1", "<u2", "|b1", "<c8", "<U3")
    for shape in ((), (3,), (2, 3), (0, 4))
    for order in "CF"
}


def overlapping(members: int, data: bytes) -> bytes:
    """Return a zip of *members* that all lie in the same bytes: small, but not what is in it."""
    size = len(data)
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("0.npy", data)
    local = file.getvalue()[: 30 + len("0.npy") + size]
    directory = b""
    for n in range(members):
        name = b"%d.npy" % n
        directory += struct.pack("<IHHHHHHIIIHHHHHII", 0x02014B50, 20, 20, 0, 0, 0, 33, zipfile.crc32(data), size, size,
                                 len(name), 0, 0, 0, 0, 0, 0) + name  # fmt: skip
    end = struct.pack("<IHHHHIIH", 0x06054B50, 0, 0, members, members, len(directory), len(local), 0)
    return local + directory + end


def npz() -> dict[str, bytes]:
    files = {}
    for name, arrays in {"none": {}, "two": {"x": np.zeros((2, 3), "f4"), "y": np.arange(3)}}.items():
        for save in (np.savez, np.savez_compressed):
            file = io.BytesIO()
            save(file, **arrays)  # type: ignore[arg-type]
            files[f"{name} {save.__name__}"] = file.getvalue()
    return files | {"overlapping": overlapping(9, npy("|u1", (400,)))}


DEEP = {
    "arrays": b"[" * 100_000,
    "objects": b'{"a":' * 100_000,
    "arrays in a string": b'{"schema": "' + b"[" * 100_000 + b'"}',
    "closed arrays": b"[" * 50_000 + b"]" * 50_000,
}
"""JSON that a parser which calls itself for each level does not survive."""

KEY = b"library: 0\ndevice: device\nvendor: vendor\ndriver: driver\nplatform: platform\n"


def programs(data: bytes) -> bytes:
    """Return a file of the program cache that holds *data*, of the fuzz target's key."""
    head = b"ADTPROG\0" + struct.pack("<IIQ", 1, len(KEY), len(data))
    return head + hashlib.sha256(data).hexdigest().encode() + KEY + data


def program_list(*binaries: bytes, count: int | None = None) -> bytes:
    """Return compiled programs as TVM's runtime gives them; *count* instead of their number."""
    parts = b"".join(struct.pack("<Q", 1) + b"k" + struct.pack("<Q", len(data)) + data for data in binaries)
    return struct.pack("<Q", len(binaries) if count is None else count) + parts


PROGRAMS = {
    "none": programs(b""),
    "one": programs(struct.pack("<Q", len(program_list(b"binary"))) + program_list(b"binary")),
    "more than there are": programs(program_list(b"binary", count=1 << 60)),
    "bare list": program_list(b"binary"),
    "bare list of more than there are": program_list(b"binary", count=1 << 60),
    "cut": programs(b"binary")[:-1],
    "another version": programs(b"")[:8] + b"\2" + programs(b"")[9:],
}
