"""A package's model in a virtual machine at the other end of an RPC session.

Of the package only ``mod.so`` becomes a file over there, when it is not deployed already; it goes when the
block ends. The parameters go straight into the memory of the device. The machine keeps a copy of all
arguments from :meth:`RemoteModel.set_inputs` on, so a model needs its parameters' size twice; weights that
its kernels read as images become such there.
"""

from __future__ import annotations

import contextlib
import logging
import secrets
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from adt.errors import AdtError, MismatchError, RunError, last_line
from adt.package.files import LIBRARY, PARAMS, read_tensors
from adt.package.manifest import Entry, check_inputs
from adt.package.package import ModelPackage
from adt.rpc.session import lost

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Array = NDArray[np.generic]

log = logging.getLogger("adt.rpc")

SET_INPUT = "adt.set_input"
"""The server's function that takes tensors as images; TVM's own copies all of them into buffers."""


@dataclass(frozen=True)
class RemoteModel:
    """A loaded model; usable as long as the block of :func:`remote_model` runs."""

    session: Any
    """``tvm.rpc.RPCSession``."""
    package: ModelPackage
    device: Any
    """``tvm.runtime.Device`` of the server on which inputs, parameters and outputs live."""
    machine: Any
    """``tvm.runtime.vm.VirtualMachine`` on the server; ``machine.module`` is its handle, which remote
    functions take as an argument."""
    params: Mapping[str, Any]
    """Every parameter as a tensor of the device, by its key in mod.params."""

    def entry(self, name: str = "main") -> Entry:
        """Return the entry function *name* of the package."""
        return self.package.manifest.entry(name)

    def set_inputs(self, inputs: Mapping[str, Array], entry: str = "main") -> None:
        """Give the machine the inputs of *entry*, with its parameters after them."""
        import numpy as np
        import tvm

        function = self.entry(entry)
        check_inputs(self.package.manifest.name, function, inputs)
        with explain_errors(self.package, "take its inputs"):
            given = [
                tvm.runtime.tensor(np.asarray(inputs[spec.name], order="C"), self.device)
                for spec in function.inputs
            ]
            if not function.images:
                self.machine.set_input(entry, *given, *(self.params[name] for name in function.params))
                return
            pairs = [(False, tensor) for tensor in given]
            pairs += [(name in function.images, self.params[name]) for name in function.params]
            set_input = self._function(SET_INPUT)
            set_input(self.machine.module, entry, *(part for pair in pairs for part in pair))

    def _function(self, name: str) -> Any:
        try:
            return self.session.get_function(name)
        except Exception as error:  # TVM raises AttributeError, RPCError, …
            if lost(error):
                raise
            raise MismatchError(
                f"{self.package.manifest.name} has weights in images, which the RPC server does not take: "
                f"it has no function {name}",
                remedy="Serve from a bundle that this adt built (adt build-target, then adt rpc start), or "
                "run it without RPC (--via native).",
                details=str(error),
            ) from error

    def run(self, entry: str = "main") -> None:
        """Run *entry* once on the inputs that were set, and wait until the device is done."""
        with explain_errors(self.package, "run"):
            self.machine.invoke_stateful(entry)
            self.device.sync()

    def outputs(self, entry: str = "main") -> dict[str, Array]:
        """Return the outputs of the last run of *entry*, by name."""
        with explain_errors(self.package, "give its outputs"):
            given = self.machine.get_outputs(entry)
            tensors = [given] if hasattr(given, "numpy") else list(given)
            specs = self.entry(entry).outputs
            if len(tensors) != len(specs):
                raise ValueError(f"{len(tensors)} outputs, where mod.json says {len(specs)}")
            return {spec.name: tensor.numpy() for spec, tensor in zip(specs, tensors, strict=True)}


@contextlib.contextmanager
def remote_model(session: Any, package: ModelPackage, *, library: str = "") -> Iterator[RemoteModel]:
    """Load *package* into a virtual machine on the server of *session*, for as long as the block runs.

    *library* is the path of its mod.so there, when it is deployed; empty: it is uploaded, and removed at the
    end.
    """
    import tvm

    target = package.manifest.target
    with _on_server(session, package, library) as path:
        with explain_errors(package, "find its device"):
            devices = [session.device(kind, 0) for kind in target.vdevices]
        for kind, device in zip(target.vdevices, devices, strict=True):
            _require_device(package, kind, device)
        mismatch = (
            f"The package is for {target.platform} ({target.machine}) and TVM "
            f"{package.manifest.tvm.version}: serve from the bundle it was compiled against, or compile it "
            "for that server's."
        )
        with explain_errors(package, "be loaded", kind=MismatchError, remedy=mismatch):
            loaded = session.load_module(path)
            machine = tvm.runtime.vm.VirtualMachine(loaded, list(devices))
        with explain_errors(package, "take its parameters"):
            read = read_tensors(package.path / PARAMS)
            params = {name: tvm.runtime.tensor(value.numpy(), devices[0]) for name, value in read.items()}
        yield RemoteModel(session, package, devices[0], machine, params)


@contextlib.contextmanager
def _on_server(session: Any, package: ModelPackage, library: str) -> Iterator[str]:
    """Yield the path of mod.so on the server."""
    if library:
        yield library
        return
    name = f"{package.manifest.name}-{secrets.token_hex(4)}.so"  # dlopen knows a library by its name
    try:
        with explain_errors(package, "be uploaded"):
            session.upload(str(package.path / LIBRARY), target=name)
        log.debug("uploaded %s as %s", package.path / LIBRARY, name)
        yield name
    finally:
        # At ctrl-C the server may have stalled; it removes itself what a session left.
        if not isinstance(sys.exc_info()[1], KeyboardInterrupt):
            with contextlib.suppress(Exception):  # the server may be gone, with all that was on it
                session.remove(name)


def _require_device(package: ModelPackage, kind: str, device: Any) -> None:
    reason = ""
    try:
        if device.exist:
            return
    except Exception as error:  # TVM has no OpenCL there, or finds no driver
        if lost(error):
            raise
        reason = str(error)
    raise MismatchError(
        f"the RPC server has no {kind} device, on which {package.manifest.name} computes",
        remedy="Serve from a bundle with OpenCL on a device that has a driver (adt probe), or compile for "
        "the CPU: adt compile --target cpu.",
        details=reason,
    )


@contextlib.contextmanager
def explain_errors(
    package: ModelPackage,
    doing: str,
    *,
    kind: type[AdtError] = RunError,
    remedy: str = "Run it without RPC (--via native), which says more; adt rpc status names the log.",
) -> Iterator[None]:
    """Turn what TVM raises in the block into a *kind*; the end of the session passes as it is."""
    try:
        yield
    except Exception as error:
        if isinstance(error, AdtError) or lost(error):
            raise
        what = f"{package.manifest.name} cannot {doing} over RPC: {last_line(error)}"
        raise kind(what, remedy=remedy, details=str(error)) from error
