"""Schedules of softmax and normalizations for CPUs: what is computed at a time."""

import pytest
from tvm import te, tirx

from adt.compiler.passes.cpu.schedules import scheduled
from adt.compiler.passes.cpu.vectors import Vectors
from adt.package.inspection.graph import CPU_SCHEDULE


@pytest.mark.parametrize(
    ("axis", "words"), [(2, "a row at a time"), (1, "a vector of rows at a time")], ids=["last", "across"]
)
@pytest.mark.parametrize("batch", [1, 3])
def test_rows_are_where_sums_are_not(batch: int, axis: int, words: str) -> None:
    x = te.placeholder((batch, 32, 64))
    of_sums = 3 - axis

    def terms(n: tirx.Var, place: tirx.Var, k: tirx.Var) -> tirx.PrimExpr:
        return x(n, place, k) if axis == 2 else x(n, k, place)

    shape = (batch, x.shape[of_sums])
    k, j = (te.reduce_axis((0, x.shape[axis])) for _ in range(2))
    most = te.compute(shape, lambda n, place: te.max(terms(n, place, k), k), name="most")
    power = te.compute(x.shape, lambda *at: tirx.exp(x(*at) - most(at[0], at[of_sums])), name="power")
    total = te.compute(
        shape,
        lambda n, place: te.sum(power(n, place, j) if axis == 2 else power(n, j, place), j),
        name="total",
    )
    out = te.compute(x.shape, lambda *at: power(*at) / total(at[0], at[of_sums]), name="out")
    kernel = scheduled(te.create_prim_func([x, out]), Vectors(16, 32))
    assert kernel.attrs[CPU_SCHEDULE] == words
