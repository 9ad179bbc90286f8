"""Schedules of matrix products in plain buffers: of tensors that the model computes, and of few rows.

A work-item keeps a tile of sums in registers, *wide* rows of *deep* vectors of four columns, and reads for
each four terms four of each row at once, and four columns, wherever these lie together in memory:

    for four in terms / 4:                        # or the part of it that a work-item has
        left[wide][4], right[4][deep × 4] = …
        for term in 4:  for row in wide:  for vector in deep:
            sum[row][vector] += left[row][term] * right[term][vector]
    what follows the sums, and a store

Rows and columns that tiles do not divide are computed up to the next whole tile, of the last ones again, and
not stored: no operand is copied to be padded. Where there are few sums, as of a vector times a matrix,
work-items of a group share each sum, put their parts into local memory and one of them adds them up.

The kernel is written anew from what it computes (:class:`Terms`), in tiles, and only bound to work-items by
TVM's scheduling, which would put conditions into all loops of tiles that do not divide.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from tvm import arith, ir, s_tir, te, tirx

from adt.compiler.ir.nodes import tir_nodes
from adt.compiler.passes.gpu.tiles import Product, ProductTile, best_product_tile
from adt.compiler.passes.layout.blocks import FLOATS, ceil_blocks
from adt.compiler.passes.layout.signature import REDUCE, SPATIAL, reduces, variables_of
from adt.compiler.passes.scheduling import Decisions, NoSchedule, unroll_all
from adt.compiler.targets.gpu import Gpu
from adt.package.reports import LANES

LEFT, RIGHT, SUMS, PARTS, TOTAL, STORE = "left", "right", "sums", "parts", "total", "product"
"""The blocks of such a kernel."""


@dataclass(frozen=True)
class Axis:
    """Axes of a product's result that are one for its schedule: its batch, rows, columns or terms."""

    variables: tuple[tirx.Var, ...]
    extents: tuple[int, ...]

    @property
    def extent(self) -> int:
        """Product of all extents."""
        return math.prod(self.extents)

    @property
    def has_fours(self) -> bool:
        """True if neighbouring places of the innermost one are in fours."""
        return bool(self.extents) and self.extents[-1] % LANES == 0

    def places(self, place: tirx.PrimExpr) -> dict[tirx.Var, tirx.PrimExpr]:
        """Return the variables' values at *place*."""
        result, stride = {}, self.extent
        for number, (variable, extent) in enumerate(zip(self.variables, self.extents, strict=True)):
            stride //= extent
            inner = tirx.floordiv(place, stride) if stride > 1 else place
            result[variable] = tirx.floormod(inner, extent) if number else inner
        return result


@dataclass(frozen=True)
class Terms:
    """Sums of products of *left* and *right* that a kernel computes, and what it stores of them."""

    batch: Axis
    rows: Axis
    columns: Axis
    terms: Axis
    left: tirx.PrimExpr
    right: tirx.PrimExpr
    """Expressions of the axes' variables."""
    dtype: str
    """Type of the sums."""
    output: tirx.Buffer
    """The buffer that is written, at the variables of *at*."""
    at: tuple[tirx.Var, ...]
    stored: Callable[[tirx.PrimExpr], tirx.PrimExpr]
    """Function of a sum that is stored: an expression of the axes' variables."""

    @property
    def product(self) -> Product:
        """Its extents, and what can be read as vectors."""
        by_columns = self.columns.has_fours and _lies_along(self.right, self.columns)
        fours = self.terms.has_fours
        return Product(
            self.batch.extent,
            self.rows.extent,
            self.columns.extent,
            self.terms.extent,
            left_by_terms=fours and _lies_along(self.left, self.terms),
            right_by_terms=fours and not by_columns and _lies_along(self.right, self.terms),
            right_by_columns=by_columns,
            lanes=LANES if self.columns.has_fours else 1,
            unit=LANES if fours else 1,
            bytes=2 if str(self.right.dtype) == "float16" else 4,
        )


def product(
    schedule: s_tir.Schedule, gpu: Gpu, _decisions: Decisions, *, by_lane: bool = False
) -> s_tir.Schedule:
    """Schedule a matrix product in buffers anew; *by_lane*: TVM has no vectors of its epilogue (``erf``)."""
    function = schedule.mod["main"]
    terms = terms_of(function)
    computed = terms.product
    tile = best_product_tile(computed, gpu)
    tiles = s_tir.Schedule(_Tiles(terms, computed, tile).function(function))
    _bind(tiles, computed, tile, by_lane=by_lane)
    return tiles


def terms_of(function: tirx.PrimFunc) -> Terms:
    """Describe the unscheduled TIR *function*, a matrix product of floats with narrow indices."""
    schedule = s_tir.Schedule(function)
    root = schedule.get_sblock("root")
    blocks = schedule.get_child_blocks(root)
    sums = [block for block in blocks if reduces(schedule.get(block))]
    outputs = schedule.get_output_blocks(root)
    if len(sums) != 1 or len(outputs) != 1 or any(schedule.get_child_blocks(block) for block in blocks):
        raise NoSchedule("it is no single sum")
    names = [schedule.get(block).name_hint for block in (*sums, *outputs)]
    for block in blocks:
        if schedule.get(block).name_hint not in names:
            schedule.compute_inline(block)
    sum_block, store_block = (schedule.get(schedule.get_sblock(name)) for name in names)
    places = [axis.var for axis in sum_block.iter_vars if int(axis.iter_type) == SPATIAL]
    store = sum_block.body
    left, right = _factors(sum_block, places)
    summed = store.buffer
    extents = {axis.var: int(axis.dom.extent) for axis in sum_block.iter_vars}
    if str(left.dtype) not in FLOATS or str(right.dtype) not in FLOATS or str(summed.dtype) not in FLOATS:
        raise NoSchedule(f"it multiplies {left.dtype}")

    if places[-1] not in variables_of([right]):
        left, right = right, left
    of_left, of_right = variables_of([left]), variables_of([right])
    if places[-1] in of_left:
        raise NoSchedule("neighbouring results have no factor in common")

    def axis(variables: Sequence[tirx.Var]) -> Axis:
        return Axis(tuple(variables), tuple(extents[variable] for variable in variables))

    if names[0] == names[1]:
        output, stored = summed, lambda total: total
    else:
        output, stored = store_block.body.buffer, _epilogue(store_block, summed, places, extents)
    return Terms(
        batch=axis([place for place in places if (place in of_left) == (place in of_right)]),
        rows=axis([place for place in places if place in of_left and place not in of_right]),
        columns=axis([place for place in places if place in of_right and place not in of_left]),
        terms=axis([axis.var for axis in sum_block.iter_vars if int(axis.iter_type) == REDUCE]),
        left=left,
        right=right,
        dtype=str(summed.dtype),
        output=output,
        at=tuple(places),
        stored=stored,
    )


def _factors(block: tirx.SBlock, places: Sequence[tirx.Var]) -> tuple[tirx.PrimExpr, tirx.PrimExpr]:
    """Return the two factors of a block's sum of products, without the casts to the type of the sums."""
    store = block.body
    reduced = [axis for axis in block.iter_vars if int(axis.iter_type) == REDUCE and int(axis.dom.extent) > 1]
    if len(reduced) > 1 or not isinstance(store, tirx.BufferStore) or list(store.indices) != list(places):
        raise NoSchedule("it is no matrix product")
    value = store.value
    if not isinstance(value, tirx.Add) or not isinstance(value.b, tirx.Mul):
        raise NoSchedule("it does not add up products")
    if not isinstance(value.a, tirx.BufferLoad) or not value.a.buffer.same_as(store.buffer):
        raise NoSchedule("it does not add up products")
    left, right = (
        factor.value if isinstance(factor, tirx.Cast) and str(factor.value.dtype) in FLOATS else factor
        for factor in (value.b.a, value.b.b)
    )
    return left, right


def _epilogue(
    block: tirx.SBlock, summed: tirx.Buffer, places: Sequence[tirx.Var], extents: Mapping[tirx.Var, int]
) -> Callable[[tirx.PrimExpr], tirx.PrimExpr]:
    """Return what *block* stores of an element of *summed*, as an expression of *places*."""
    store, axes = block.body, [axis.var for axis in block.iter_vars]
    if not isinstance(store, tirx.BufferStore) or list(store.indices) != axes:
        raise NoSchedule("what follows its sums is no element for each")
    loads = [load for load in tir_nodes(store.value, tirx.BufferLoad) if load.buffer.same_as(summed)]
    if any(list(load.indices) != axes for load in loads):
        raise NoSchedule("what follows its sums reads them in another order")
    if [int(axis.dom.extent) for axis in block.iter_vars] != [extents[place] for place in places]:
        raise NoSchedule("its result is larger than its sums")

    def stored(total: tirx.PrimExpr) -> tirx.PrimExpr:
        def load(node: tirx.BufferLoad) -> tirx.PrimExpr | None:
            return total if node.buffer.same_as(summed) else None

        value = tirx.stmt_functor.ir_transform(tirx.Evaluate(store.value), None, load, ["tirx.BufferLoad"])
        return tirx.stmt_functor.substitute(value.value, dict(zip(axes, places, strict=True)))

    return stored


def _lies_along(expression: tirx.PrimExpr, axis: Axis) -> bool:
    """Return True if all that *expression* reads at neighbouring places of *axis* lies together."""
    variable = axis.variables[-1]
    loads = tir_nodes(expression, tirx.BufferLoad)
    for load in loads:
        *outer, last = load.indices
        if variable in variables_of(outer) or int(load.buffer.shape[-1]) % LANES:
            return False
        linear = arith.detect_linear_equation(last, [variable])
        if not linear or not isinstance(linear[0], tirx.IntImm) or int(linear[0]) != 1:
            return False
        if not arith.Analyzer().can_prove_equal(tirx.floormod(linear[1], LANES), 0) and variables_of(
            [linear[1]]
        ):
            return False
    return bool(loads) and not tir_nodes(expression, tirx.Call)


class _Tiles:
    """Writer of a kernel in tiles: its blocks, each in its loops, none of them bound."""

    def __init__(self, terms: Terms, product: Product, tile: ProductTile) -> None:
        self.terms = terms
        self.product = product
        self.tile = tile
        lanes, unit = product.lanes, product.unit
        self.batch = product.batch
        self.rows = _up(product.rows, tile.wide * tile.down)
        self.columns = _up(product.columns, tile.deep * tile.across * lanes)
        """Extents that tiles divide. Columns are in the order of work-items, all vectors of one together."""
        self.steps = product.terms // unit // tile.parts
        """Iterations of a work-item."""

    def function(self, function: tirx.PrimFunc) -> tirx.PrimFunc:
        """Tile *function*."""
        terms, tile = self.terms, self.tile
        count = self.product.terms
        by_terms = self.product.right_by_terms
        left = tirx.decl_buffer((self.batch, self.rows, count), terms.left.dtype, LEFT)
        shape = (self.columns, count) if by_terms else (count, self.columns)
        right = tirx.decl_buffer((self.batch, *shape), terms.right.dtype, RIGHT)
        result = (self.batch, self.rows, self.columns)
        sums = tirx.decl_buffer((tile.parts, *result), terms.dtype, SUMS)
        parts = tirx.decl_buffer((tile.parts, *result), terms.dtype, PARTS)
        total = tirx.decl_buffer(result, terms.dtype, TOTAL)
        shared = tile.parts > 1
        statements = [
            self._read(left, terms.left, rows=True),
            self._read(right, terms.right, rows=False),
            self._sums(sums, left, right),
            *([self._move(parts, sums), self._total(total, parts)] if shared else []),
            self._store(total if shared else sums),
        ]
        buffers = [left, right, sums, *([parts, total] if shared else [])]
        root = tirx.SBlock([], [], [], "root", tirx.SeqStmt(statements), None, buffers)
        return function.with_body(tirx.SBlockRealize([], True, root))

    def _at(self, expression: tirx.PrimExpr, places: Mapping[str, tirx.PrimExpr]) -> tirx.PrimExpr:
        """Evaluate *expression* at places of the batch, rows, columns and terms."""
        values: dict[tirx.Var, tirx.PrimExpr] = {}
        for name, place in places.items():
            values |= getattr(self.terms, name).places(place)
        return tirx.stmt_functor.substitute(expression, values)

    def _column(self, place: tirx.PrimExpr) -> tuple[tirx.PrimExpr, tirx.PrimExpr]:
        """Return the vector of columns at the *place* of the order of work-items, and the lane in it."""
        tile, lanes = self.tile, self.product.lanes
        lane: tirx.PrimExpr = tirx.floormod(place, lanes) if lanes > 1 else 0
        vector = tirx.floordiv(place, lanes) if lanes > 1 else place
        if tile.deep == 1:
            return vector, lane
        group = tirx.floordiv(vector, tile.deep * tile.across)
        item = tirx.floormod(tirx.floordiv(vector, tile.deep), tile.across)
        number = tirx.floormod(vector, tile.deep)
        return (group * tile.deep + number) * tile.across + item, lane

    def _read(self, buffer: tirx.Buffer, expression: tirx.PrimExpr, *, rows: bool) -> tirx.Stmt:
        """Read an operand, its last row or vector of columns again beyond their end."""
        product = self.product

        def body(places: Sequence[tirx.PrimExpr]) -> tirx.Stmt:
            batch, first, second = places
            if rows:
                row = tirx.min(first, product.rows - 1) if self.rows > product.rows else first
                value = self._at(expression, {"batch": batch, "rows": row, "terms": second})
            else:
                term, place = (second, first) if product.right_by_terms else (first, second)
                vector, lane = self._column(place)
                if self.columns > product.columns:
                    vector = tirx.min(vector, product.columns // product.lanes - 1)
                column = vector * product.lanes + lane
                value = self._at(expression, {"batch": batch, "columns": column, "terms": term})
            return tirx.BufferStore(buffer, value, list(places))

        return _block(buffer.name, buffer.shape, body)

    def _sums(self, sums: tirx.Buffer, left: tirx.Buffer, right: tirx.Buffer) -> tirx.Stmt:
        unit, parts = self.product.unit, self.tile.parts

        def body(places: Sequence[tirx.PrimExpr]) -> tirx.Stmt:
            part, batch, row, column, step, four = places
            term = (step * parts + part) * unit + four
            at = (column, term) if self.product.right_by_terms else (term, column)
            factors = [
                load if str(load.dtype) == self.terms.dtype else tirx.Cast(self.terms.dtype, load)
                for load in (left[batch, row, term], right[(batch, *at)])
            ]
            here = [part, batch, row, column]
            return tirx.BufferStore(sums, sums[tuple(here)] + factors[0] * factors[1], here)

        return _block(SUMS, sums.shape, body, reduce=(self.steps, unit))

    def _move(self, parts: tirx.Buffer, sums: tirx.Buffer) -> tirx.Stmt:
        return _block(PARTS, parts.shape, lambda at: tirx.BufferStore(parts, sums[tuple(at)], list(at)))

    def _total(self, total: tirx.Buffer, parts: tirx.Buffer) -> tirx.Stmt:
        def body(places: Sequence[tirx.PrimExpr]) -> tirx.Stmt:
            *at, part = places
            return tirx.BufferStore(total, total[tuple(at)] + parts[(part, *at)], at)

        return _block(TOTAL, total.shape, body, reduce=(self.tile.parts,))

    def _store(self, sums: tirx.Buffer) -> tirx.Stmt:
        terms, product = self.terms, self.product

        def body(places: Sequence[tirx.PrimExpr]) -> tirx.Stmt:
            batch, row, place = places
            vector, lane = self._column(place)
            at = {"batch": batch, "rows": row, "columns": vector * product.lanes + lane}
            own = places if len(sums.shape) == len(places) else (0, *places)
            value = self._at(terms.stored(sums[tuple(own)]), at)
            indices = [self._at(variable, at) for variable in terms.at]
            store = tirx.BufferStore(terms.output, value, indices)
            inside = []
            if self.rows > product.rows:
                inside.append(row < product.rows)
            if self.columns > product.columns:
                inside.append(vector < product.columns // product.lanes)
            return tirx.IfThenElse(te.all(*inside), store, None) if inside else store

        return _block(STORE, [self.batch, self.rows, self.columns], body)


def _up(extent: int, size: int) -> int:
    return ceil_blocks(extent, size) * size


def _block(
    name: str,
    extents: Sequence[int],
    body: Callable[[Sequence[tirx.PrimExpr]], tirx.Stmt],
    reduce: Sequence[int] = (),
) -> tirx.Stmt:
    """Build the loops over a block that stores what *body* says for each of its places."""
    sizes = [*map(int, extents), *reduce]
    kinds = [SPATIAL] * len(extents) + [REDUCE] * len(reduce)
    axes = [
        tirx.IterVar(ir.Range(0, size), tirx.Var(f"v{place}", "int32"), kind)
        for place, (size, kind) in enumerate(zip(sizes, kinds, strict=True))
    ]
    statement = body([axis.var for axis in axes])
    (store,) = tir_nodes(statement, tirx.BufferStore)
    loads = [load for load in tir_nodes(statement, tirx.BufferLoad) if not load.buffer.same_as(store.buffer)]
    init = (
        tirx.BufferStore(store.buffer, tirx.const(0, store.buffer.dtype), store.indices) if reduce else None
    )
    block = tirx.SBlock(axes, [_point(load) for load in loads], [_point(store)], name, statement, init)
    loops = [tirx.Var(f"i{place}", "int32") for place in range(len(sizes))]
    nest: tirx.Stmt = tirx.SBlockRealize(loops, True, block)
    for loop, size in reversed(list(zip(loops, sizes, strict=True))):
        nest = tirx.For(loop, 0, size, tirx.ForKind.SERIAL, nest)
    return nest


def _point(access: tirx.BufferLoad | tirx.BufferStore) -> tirx.BufferRegion:
    return tirx.BufferRegion(access.buffer, [ir.Range.from_min_extent(index, 1) for index in access.indices])


def _bind(schedule: s_tir.Schedule, product: Product, tile: ProductTile, *, by_lane: bool) -> None:
    """Bind the blocks of :class:`_Tiles` to work-groups and work-items."""
    left, right, sums, store = (schedule.get_sblock(name) for name in (LEFT, RIGHT, SUMS, STORE))
    shared = tile.parts > 1
    # Neighbours read what lies together: terms of one column, or vectors of columns.
    threads = ("threadIdx.x", "threadIdx.y", "threadIdx.z")
    of_part, of_column, of_row = threads if product.right_by_terms else (threads[2], *threads[:2])
    for block in (left, right, sums):
        schedule.set_scope(block, 0, "local")

    batch, row, column = schedule.get_loops(store)
    groups_down, down, wide = schedule.split(row, [None, tile.down, tile.wide])
    groups_across, across, deep, lane = schedule.split(column, [None, tile.across, tile.deep, product.lanes])
    schedule.reorder(batch, groups_down, groups_across, down, across, wide, deep, lane)
    for loop, name in ((batch, "z"), (groups_down, "y"), (groups_across, "x")):
        schedule.bind(loop, f"blockIdx.{name}")
    schedule.bind(down, of_row)
    schedule.bind(across, of_column)
    lanes = product.lanes > 1
    unroll_all(schedule, (wide, deep), lane, vector=lanes and not by_lane)
    inner, depth = across, 5
    if shared:
        parts, total = schedule.get_sblock(PARTS), schedule.get_sblock(TOTAL)
        schedule.set_scope(parts, 0, "shared")
        schedule.set_scope(total, 0, "local")
        # Of the work-items that share a sum the first adds its parts up. A loop of extent 1 is in no index.
        alone = schedule.add_unit_loop(wide)
        _, first = schedule.split(alone, [None, tile.parts])
        schedule.bind(first, of_part)
        schedule.compute_at(total, first, preserve_unit_loops=True)
        *places, part = schedule.get_loops(total)[7:]
        _batch, row, column = places
        deep, lane = schedule.split(column, [None, product.lanes])
        schedule.reorder(part, row, deep, lane)
        unroll_all(schedule, (row, deep), lane, vector=lanes)
        schedule.decompose_reduction(total, part)

        schedule.compute_at(parts, groups_across, preserve_unit_loops=True)
        part, _batch, row, column = schedule.get_loops(parts)[3:]
        down, wide = schedule.split(row, [tile.down, tile.wide])
        across, deep, lane = schedule.split(column, [tile.across, tile.deep, product.lanes])
        schedule.reorder(down, part, across, _batch, wide, deep, lane)
        schedule.bind(part, of_part)
        schedule.bind(down, of_row)
        schedule.bind(across, of_column)
        unroll_all(schedule, (_batch, wide, deep), lane, vector=lanes)
        inner, depth = across, 6
    schedule.compute_at(sums, inner, preserve_unit_loops=True)
    part, _batch, row, column, step, four = schedule.get_loops(sums)[depth:]
    deep, lane = schedule.split(column, [None, product.lanes])
    schedule.reorder(step, four, part, _batch, row, deep, lane)
    tile_loops = (four, part, _batch, row, deep)
    unroll_all(schedule, tile_loops, lane, vector=lanes and not product.right_by_terms)
    for block in (left, right):
        schedule.compute_at(block, step, preserve_unit_loops=True)
        *outer, last = schedule.get_loops(block)[depth + 1 :]
        by_lanes = product.left_by_terms if block is left else product.right_by_terms
        if block is right and product.right_by_columns:
            deep, last = schedule.split(last, [None, product.lanes])
            outer.append(deep)
            by_lanes = True
        unroll_all(schedule, outer, last, vector=by_lanes)
    schedule.decompose_reduction(sums, step)
