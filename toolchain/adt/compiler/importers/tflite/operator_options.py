"""Options of TFLite operators that no converter reads: they are refused by name."""

from __future__ import annotations

import struct
from typing import Any

UNREAD = {
    "FullyConnectedOptions": ("WeightsFormat",),
    "LSTMOptions": ("KernelType",),
    "StridedSliceOptions": ("Offset",),
    "UnidirectionalSequenceLSTMOptions": ("DiagonalRecurrentTensors",),
}
"""Options that must have the schema's default; the converters read all others of their operators.

A test walks the schema. There are others that change nothing here: the tensors state the same, or they choose
between roundings of the interpreter's kernels.
"""


def unread_option(op: Any) -> str:
    """Name an option of *op* that no converter reads; empty when there is none."""
    import tflite

    for number in ("", "2"):
        table, code = getattr(op, f"BuiltinOptions{number}")(), getattr(op, f"BuiltinOptions{number}Type")()
        if table is None or not code:
            continue
        kinds = vars(getattr(tflite, f"BuiltinOptions{number}"))
        kind = next((name for name, value in kinds.items() if value == code and hasattr(tflite, name)), "")
        if not kind:
            return f"its options are of kind {code}, which the schema of tflite {tflite.__version__} lacks"
        options = getattr(tflite, kind)()
        options.Init(table.Bytes, table.Pos)
        slots = schema_slots(kind)
        newer = [slot for slot in _slots_in_file(table) if slot > max(slots.values(), default=-1)]
        if newer:
            return f"option {newer[0]} of {kind} is newer than the schema of tflite {tflite.__version__}"
        for name in UNREAD.get(kind, ()):
            if value := getattr(options, name)():
                return f"{name} of {kind} is {value}, which no converter reads"
    return ""


class _Slots:
    """A table of the flatbuffer that tells which slot is asked for, and has none."""

    def Offset(self, entry: int) -> int:
        self.asked = (entry - 4) // 2
        return 0


def schema_slots(kind: str) -> dict[str, int]:
    """Map the options of *kind*, a class of the schema, to their slots."""
    import tflite

    options, slots = getattr(tflite, kind)(), {}
    options._tab = table = _Slots()
    for name in vars(type(options)):
        if name.startswith("GetRootAs") or name.endswith(("AsNumpy", "IsNone", "BufferHasIdentifier")):
            continue
        if name[0].isupper() and name != "Init" and not hasattr(options, f"{name}Length"):
            getattr(options, name)()
            slots[name.removesuffix("Length")] = table.asked
    return slots


def _slots_in_file(table: Any) -> list[int]:
    """List the slots that have a value in *table*: entries of its vtable, behind its two sizes."""
    (back,) = struct.unpack_from("<i", table.Bytes, table.Pos)
    (size,) = struct.unpack_from("<H", table.Bytes, table.Pos - back)
    return [slot for slot in range(size // 2 - 2) if table.Offset(4 + 2 * slot)]
