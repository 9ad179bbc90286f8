"""Recurrent layers, whatever computes them: what a layer is, what its gates do, and how weights are laid out.

What the steps share, the product of the inputs with their weights, is a product of its own before them; all
steps are one function: a call for each step and gate would take longer than they do.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from tvm import te

STEPS = "recurrent_steps"  # the block of such a function
GATES = {"RNN": 1, "GRU": 3, "LSTM": 4}


@dataclass(frozen=True)
class Recurrence:
    """The steps of a layer; symbols as in ONNX's documents, gates in its order."""

    kind: str
    """``RNN``, ``GRU`` or ``LSTM``."""
    steps: int
    batch: int
    hidden: int
    backwards: tuple[bool, ...] = (False,)
    """Directions: True for one that goes from the last step to the first."""
    reset_after: bool = True
    """A GRU's reset gate applies to the product of the state, not to the state (linear_before_reset)."""

    @property
    def gates(self) -> int:
        """The gates of a unit."""
        return GATES[self.kind]

    @property
    def directions(self) -> int:
        """1 or 2."""
        return len(self.backwards)

    @property
    def resets_first(self) -> bool:
        """True if a step is two products, of which the second is of what the first resets."""
        return self.kind == "GRU" and not self.reset_after

    def filled(self, gates: NDArray[np.generic], width: int) -> NDArray[np.generic]:
        """Fill *gates* ``[directions, gates·H, …]`` with zeros: ``[directions, gates·width, …]``."""
        rest = gates.shape[2:]
        each = gates.reshape(self.directions, self.gates, self.hidden, *rest)
        spare = [(0, width - self.hidden) if axis == 2 else (0, 0) for axis in range(each.ndim)]
        return np.pad(each, spare).reshape(self.directions, self.gates * width, *rest)


class RecurrentSteps(Protocol):
    """Form of a function of all steps of a layer."""

    def width(self, layer: Recurrence) -> int:
        """Return the units that weights and rows have: the layer's, and those of zeros behind them."""

    def state_width(self, layer: Recurrence) -> int:
        """Return the number of units that states have."""

    def packed(self, layer: Recurrence, weights: NDArray[np.generic]) -> NDArray[np.generic]:
        """Pack the weights R ``[directions, gates·H, H]`` as the function reads them."""

    def attributes(self, layer: Recurrence) -> Mapping[str, Any]:
        """Return the attributes of the TIR function."""

    def compute(
        self, layer: Recurrence, rows: te.Tensor, weights: te.Tensor, bias: te.Tensor, *states: te.Tensor
    ) -> list[Any]:
        """Compute the states of all steps ``[steps, directions, batch, state_width]``, the last *states*, and
        perhaps room that was used.

        Args:
            rows: ``[steps, batch, directions·gates·width]``, the inputs' product and what is added to it.
            weights: see :meth:`packed`.
            bias: ``[directions, gates·width]``, what a GRU that resets after the product adds to it.
            states: h before the first step ``[directions, batch, state_width]``, and c of an LSTM.
        """
