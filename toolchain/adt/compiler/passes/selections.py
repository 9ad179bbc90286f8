"""TopK and sorting of rows on a CPU, by unsigned keys, of which the least comes first.

Equal elements keep the order of their indices; NaN comes last, whichever order is asked for. A block of a row
whose least key is above the last kept one's is passed over. The others' elements are inserted where few are
kept, else they are candidates, which are sorted by the bytes of their keys once there is no room for more:
TVM's own heap compares through memory for each of its levels.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tvm import DataType, te, tirx
from tvm.script.ir_builder import IRBuilder
from tvm.script.ir_builder import tirx as T

from adt.compiler.ir.flops import SCHEDULED
from adt.compiler.ir.nodes import operator_name
from adt.compiler.ir.passes import replaced_calls
from adt.compiler.ir.rewriter import static_shape

MOST_INSERTED = 48  # elements that are kept in order by insertion
LEAST_ROOM = 256  # candidates beside those that are kept, at least
BLOCK = 32
DIGITS = 256
WORTH_THREADS = 1 << 14  # elements from which on all threads take rows
INFINITY = {16: 0x7C00, 32: 0x7F800000, 64: 0x7FF << 52}
"""Bits of the infinity of floats of so many bits: NaN is above."""


def selections() -> Any:
    """Return a pass that replaces ``relax.topk``, ``sort`` and ``argsort`` of numbers with known extents."""

    def replaced(builder: Any, call: Any) -> Any:
        (data,), attributes, name = call.args, call.attrs, operator_name(call)
        extents, dtype = static_shape(data), str(data.struct_info.dtype)
        if not extents or 0 in extents or max(extents) >= 1 << 31 or dtype in ("bool", "bfloat16"):
            return call
        axis, topk = int(attributes.axis) % len(extents), name == "relax.topk"
        length, descending = extents[axis], bool(attributes.largest if topk else attributes.descending)
        kept = min(int(attributes.k), length) if topk and attributes.k > 0 else length
        rows = _Rows(extents, axis, length, kept, descending)
        both = builder.emit_te(
            lambda x: _selected(rows, x, "int32" if name == "relax.sort" else str(attributes.dtype)),
            data,
            primfunc_name_hint=name.rpartition(".")[2],
            primfunc_attrs={SCHEDULED: True},
        )
        if topk and attributes.ret_type == "both":
            return both
        return both[0 if name == "relax.sort" or (topk and attributes.ret_type == "values") else 1]

    return replaced_calls("adt.Selections", ("relax.topk", "relax.sort", "relax.argsort"), replaced)


@dataclass(frozen=True)
class _Rows:
    """Rows along an axis of a tensor, of each of which the first *kept* of *length* are asked for."""

    extents: Sequence[int]
    axis: int
    length: int
    kept: int
    descending: bool

    def indices(self, row: Any, at: Any) -> list[Any]:
        """Return the indices of the element *at* in the row of this number."""
        indices = []
        for axis in reversed(range(len(self.extents))):
            indices.append(at if axis == self.axis else row % self.extents[axis])
            row = row if axis == self.axis else row // self.extents[axis]
        return indices[::-1]


def _selected(rows: _Rows, x: Any, dtype: str) -> Any:
    """Compute the first elements of each row, and their indices of type *dtype*."""
    count = math.prod(rows.extents) // rows.length
    shape = [rows.kept if axis == rows.axis else extent for axis, extent in enumerate(rows.extents)]
    select = _inserted if rows.kept <= MOST_INSERTED else _sorted

    def body(inputs: list[Any], outputs: list[Any]) -> Any:
        shared = count > 1 and count * rows.length >= WORTH_THREADS
        with IRBuilder() as builder:
            with (T.parallel if shared else T.serial)(count) as row:

                def element(at: Any) -> Any:
                    return inputs[0][tuple(rows.indices(row, at))]

                def write(order: Any, at: Any) -> None:
                    T.buffer_store(outputs[0], element(at), rows.indices(row, order))
                    T.buffer_store(outputs[1], at.astype(dtype), rows.indices(row, order))

                select(rows, lambda at: _key(element(at), rows.descending), write)
            return builder.get()

    return te.extern([shape, shape], [x], body, name="selection", dtype=[x.dtype, dtype])


def _key(value: Any, descending: bool) -> Any:
    """Return the unsigned integer by which *value* is ordered, of 32 or 64 bits."""
    bits, size = value, DataType(value.dtype).bits
    unsigned = f"uint{size}"
    highest, every = (tirx.const(number, unsigned) for number in (1 << size - 1, (1 << size) - 1))
    turned = every if descending else tirx.const(0, unsigned)
    if not value.dtype.startswith("uint"):
        bits = tirx.reinterpret(unsigned, value)
        turned = turned ^ highest
    if value.dtype.startswith("float"):
        magnitude = bits & (every ^ highest)
        negative = tirx.Select(bits >= highest, every ^ highest, tirx.const(0, unsigned))
        ordered = tirx.Select(magnitude == 0, turned, bits ^ negative ^ turned)
        bits, turned = tirx.Select(magnitude > tirx.const(INFINITY[size], unsigned), every, ordered), None
    key = bits if turned is None else bits ^ turned
    return key.astype("uint32") if size < 32 else key


def _room(dtype: str, *shape: int) -> Any:
    return T.decl_buffer(shape, dtype, scope="global", layout=None)


def _store(place: Any, value: Any) -> None:
    """Store *value* where the BufferLoad *place* reads."""
    T.buffer_store(place.buffer, value, list(place.indices))


def _variable(value: Any, dtype: str = "int32") -> Any:
    """Return a new variable, as what reads it."""
    variable = _room(dtype, 1)[0]
    _store(variable, value)
    return variable


def _least(key: Any, first: Any) -> Any:
    least = _variable(key(first), key(first).dtype)
    with T.serial(BLOCK) as n:
        _store(least, tirx.Min(least, key(first + n)))
    return least


def _inserted(rows: _Rows, key: Any, write: Any) -> None:
    """Keep the first elements of a row in order, behind a key that is below all."""
    dtype, kept = key(0).dtype, rows.kept
    keys, places = _room(dtype, kept + 1), _room("int32", kept + 1)
    _store(keys[0], tirx.const(0, dtype))
    slot = _variable(0)

    def insert(at: Any, free: Any) -> None:
        own = T.bind(key(at))
        _store(slot, free)
        with T.While(own < keys[slot - 1]):
            _store(keys[slot], keys[slot - 1])
            _store(places[slot], places[slot - 1])
            _store(slot, slot - 1)
        _store(keys[slot], own)
        _store(places[slot], at)

    def compare(at: Any) -> None:
        with T.If(key(at) < keys[kept]), T.Then():
            insert(at, kept)

    with T.serial(kept) as at:
        insert(at, at + 1)
    blocks, rest = divmod(rows.length - kept, BLOCK)
    with T.serial(blocks) as block:
        first = kept + block * BLOCK
        with T.If(_least(key, first) < keys[kept]), T.Then(), T.serial(BLOCK) as n:
            compare(first + n)
    with T.serial(rest) as n:
        compare(kept + blocks * BLOCK + n)
    with T.serial(kept) as order:
        write(order, places[order + 1])


def _sorted(rows: _Rows, key: Any, write: Any) -> None:
    dtype, kept = key(0).dtype, rows.kept
    room = min(rows.length, kept + max(kept, LEAST_ROOM)) + 2 * BLOCK
    keys, places = _room(dtype, 2, room), _room("int32", 2, room)
    side, count, limit = _variable(0), _variable(0), _variable(tirx.max_value(dtype), dtype)

    def collect(at: Any) -> None:
        own = T.bind(key(at))
        _store(keys[side, count], own)
        _store(places[side, count], at)
        _store(count, count + (own <= limit).astype("int32"))

    blocks, rest = divmod(rows.length, BLOCK)
    with T.serial(blocks + 1) as block:
        with T.If(block == blocks), T.Then(), T.serial(rest) as n:
            collect(blocks * BLOCK + n)
        with T.If(tirx.any(block == blocks, count > room - 2 * BLOCK)), T.Then():
            _sort(keys, places, side, count)
            _store(count, kept)
            _store(limit, keys[side, kept - 1] - 1)  # equal keys from here on have greater indices
        with T.If(block < blocks), T.Then():
            least = _least(key, block * BLOCK)
            with T.If(least <= limit), T.Then(), T.serial(BLOCK) as n:
                collect(block * BLOCK + n)
    with T.serial(kept) as order:
        write(order, places[side, order])


def _sort(keys: Any, places: Any, side: Any, count: Any) -> None:
    """Sort *count* keys and their places, from the lowest byte to the highest, from one side to the other."""
    size = DataType(keys.dtype).bits // 8
    slots = _room("int32", size, DIGITS)

    def digit(at: Any, byte: Any) -> Any:
        return (keys[side, at] >> (byte * 8).astype(keys.dtype)).astype("int32") & (DIGITS - 1)

    with T.serial(size) as byte, T.serial(DIGITS) as n:
        _store(slots[byte, n], 0)
    with T.serial(count) as at, T.unroll(size) as byte:
        _store(slots[byte, digit(at, byte)], slots[byte, digit(at, byte)] + 1)
    with T.serial(size) as byte, T.If(slots[byte, digit(0, byte)] < count), T.Then():  # else all are equal
        total = _variable(0)
        with T.serial(DIGITS) as n:
            own = _variable(slots[byte, n])
            _store(slots[byte, n], total)
            _store(total, total + own)
        with T.serial(count) as at:
            own = _variable(digit(at, byte))
            slot = _variable(slots[byte, own])
            _store(keys[1 - side, slot], keys[side, at])
            _store(places[1 - side, slot], places[side, at])
            _store(slots[byte, own], slot + 1)
        _store(side, 1 - side)
