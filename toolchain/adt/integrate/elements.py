"""Element types of arrays, as C++ and Java call them."""

from __future__ import annotations

from adt.errors import PackageError
from adt.integrate.describe import ElementType

_UNSIGNED = "unsigned: Java's {java} holds the same bits"

ELEMENTS = {
    element.dtype: element
    for element in (
        ElementType(
            "float16", 2, "adt::Float16", "short", "ShortBuffer", "half precision: the bits of each number"
        ),
        ElementType("float32", 4, "float", "float", "FloatBuffer", ""),
        ElementType("float64", 8, "double", "double", "DoubleBuffer", ""),
        ElementType("int8", 1, "std::int8_t", "byte", "ByteBuffer", ""),
        ElementType("int16", 2, "std::int16_t", "short", "ShortBuffer", ""),
        ElementType("int32", 4, "std::int32_t", "int", "IntBuffer", ""),
        ElementType("int64", 8, "std::int64_t", "long", "LongBuffer", ""),
        ElementType("uint8", 1, "std::uint8_t", "byte", "ByteBuffer", _UNSIGNED.format(java="byte")),
        ElementType("uint16", 2, "std::uint16_t", "short", "ShortBuffer", _UNSIGNED.format(java="short")),
        ElementType("uint32", 4, "std::uint32_t", "int", "IntBuffer", _UNSIGNED.format(java="int")),
        ElementType("uint64", 8, "std::uint64_t", "long", "LongBuffer", _UNSIGNED.format(java="long")),
        ElementType("bool", 1, "bool", "byte", "ByteBuffer", "1 for true, 0 for false"),
    )
}
"""By dtype: all that adt_runner takes (adt_runner.h)."""


def element_type(dtype: str, of: str) -> ElementType:
    """The element type called *dtype* in mod.json.

    Args:
        of: whose it is, for the message.

    Raises:
        PackageError: no runner takes it.
    """
    if dtype not in ELEMENTS:
        raise PackageError(
            f"{of} has elements of {dtype}, which adt_runner does not take",
            remedy=f"Export the model with one of: {', '.join(ELEMENTS)}.",
        )
    return ELEMENTS[dtype]
