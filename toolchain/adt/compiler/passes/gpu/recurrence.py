"""Recurrent layers on a GPU: plain loops over packed weights, of which kernels are made last.

As plain loops any machine runs them, so that the kernels can be compared with what they should compute.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tvm import te, tirx

from adt.compiler.ir.flops import SCHEDULED
from adt.compiler.ir.passes import kernel_pass
from adt.compiler.passes.gpu.recurrent_kernels import LayerKernel, PlainLoops, SingleSteps, WholeLayer
from adt.compiler.passes.gpu.recurrent_tile import StepTile, step_tile
from adt.compiler.passes.recurrence import STEPS, Recurrence
from adt.compiler.targets.gpu import Gpu
from adt.package.reports import LANES

LAYER = "adt.recurrence"
"""Attribute of the plain loops of a layer: its fields, and its tile's, as JSON."""


@dataclass(frozen=True)
class GpuSteps:
    """Steps of recurrent layers on a GPU."""

    gpu: Gpu

    def width(self, layer: Recurrence) -> int:
        """Return the number of terms that gives work-items as many each."""
        return step_tile(layer, self.gpu).width

    def state_width(self, layer: Recurrence) -> int:
        """Return the number of units of the layer: the kernels leave out what is beyond."""
        return layer.hidden

    def packed(self, layer: Recurrence, weights: NDArray[np.generic]) -> NDArray[np.generic]:
        """Pack ``[directions, groups, terms, gates, work-items·4]``: neighbours read neighbouring vectors."""
        tile = step_tile(layer, self.gpu)
        rows = layer.filled(weights, tile.width)
        rows = np.pad(rows, [(0, 0), (0, 0), (0, tile.width - layer.hidden)])
        shape = (layer.directions, layer.gates, tile.groups, tile.units, tile.terms, tile.shares, LANES)
        ordered = rows.reshape(shape).transpose(0, 2, 4, 1, 5, 3, 6)
        return np.ascontiguousarray(ordered.reshape(*ordered.shape[:4], tile.items * LANES))

    def attributes(self, layer: Recurrence) -> Mapping[str, Any]:
        """Return what :func:`bind_recurrences` makes the kernels of."""
        return {LAYER: json.dumps([asdict(layer), asdict(step_tile(layer, self.gpu))])}

    def compute(self, layer: Recurrence, rows: Any, weights: Any, bias: Any, *states: Any) -> list[Any]:
        """Compute the layer as plain loops, which any machine runs; with room that the kernels use."""
        return _function(PlainLoops, layer, step_tile(layer, self.gpu), [rows, weights, bias, *states])


@kernel_pass("adt.BindRecurrences")
def bind_recurrences(function: tirx.PrimFunc) -> tirx.PrimFunc:
    """Make kernels for a GPU of the plain loops of :class:`GpuSteps`."""
    if function.attrs is None or LAYER not in function.attrs:
        return function
    fields, sizes = json.loads(str(function.attrs[LAYER]))
    layer = Recurrence(**{**fields, "backwards": tuple(fields["backwards"])})
    tile = StepTile(**sizes)
    buffers = [function.buffer_map[parameter] for parameter in function.params]
    count = 5 if layer.kind == "LSTM" else 4
    inputs = [te.placeholder([int(extent) for extent in b.shape], b.dtype) for b in buffers[:count]]
    outputs = _function(WholeLayer if tile.alone else SingleSteps, layer, tile, inputs)
    bound = te.create_prim_func([*inputs, *outputs])
    result = tirx.PrimFunc(bound.params, bound.body, bound.ret_type, bound.buffer_map, function.attrs)
    return result.with_attr(SCHEDULED, True).without_attr(LAYER)


def _function(kernel: type[LayerKernel], layer: Recurrence, tile: StepTile, tensors: list[Any]) -> list[Any]:
    """Build the *kernel* of *tensors*: what is given, weights, bias and states."""
    every = (layer.steps, layer.directions, layer.batch, layer.hidden)
    room = (4 if layer.resets_first else 2, layer.directions, layer.batch, tile.width)
    shapes = [every, *(every[1:] for _ in tensors[3:]), *([] if tile.alone else [room])]

    def buffers(shapes: Iterable[Any], stem: str) -> list[Any]:
        """Make buffers that begin where the memory does: with an offset, no vector would be aligned."""
        numbered = enumerate(shapes)
        return [tirx.decl_buffer(shape, "float32", f"{stem}{n}", layout=None) for n, shape in numbered]

    return te.extern(  # type: ignore[no-any-return]
        shapes,
        tensors,
        lambda inputs, outputs: kernel(layer, tile, inputs, outputs).statements(),
        name=STEPS,
        in_buffers=buffers((tensor.shape for tensor in tensors), "given"),
        out_buffers=buffers(shapes, "result"),
    )
