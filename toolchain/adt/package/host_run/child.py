"""Run packages in a process of their own: ``python -m adt.package.host_run.child``.

A driver that crashes or hangs takes this process along, not the caller's. What is
asked and answered is described in :mod:`adt.package.host_run.run`, which starts this.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from adt.host.child import serve
from adt.package.files import LIBRARY, PARAMS, read_tensors
from adt.package.reports import SCOPE


class Runner:
    """The packages of one call that were loaded so far."""

    def __init__(self) -> None:
        self._loaded: dict[str, tuple[Any, Any, list[Any]]] = {}
        """Machine, first device and parameters of each."""
        self._stage = ""

    def __call__(self, request: dict[str, Any]) -> dict[str, Any]:
        """Return the outputs of one run, or what TVM raised and where."""
        self._stage = "start"
        try:
            return {"outputs": self._run(request)}
        except Exception as error:  # TVM raises InternalError, RuntimeError, ValueError, …
            return {"stage": self._stage, "error": f"{type(error).__name__}: {error}"}

    def _run(self, request: dict[str, Any]) -> list[Any]:
        import tvm

        if request["package"] not in self._loaded:
            self._loaded[request["package"]] = self._load(request)
        machine, first, params = self._loaded[request["package"]]
        self._stage = "run"
        arrays = [tvm.runtime.tensor(array, first) for array in request["inputs"]]
        answer = machine[request["entry"]](*arrays, *params)
        tensors = [answer] if hasattr(answer, "numpy") else list(answer)
        if request["last"]:
            self._loaded.clear()  # the next call may have another package at the same path
        return [tensor.numpy() for tensor in tensors]

    def _load(self, request: dict[str, Any]) -> tuple[Any, Any, list[Any]]:
        import tvm

        from adt.bundle.plugins import load_plugin

        for plugin in request["plugins"]:
            load_plugin(Path(plugin))
        self._stage = "device"
        devices = [_device(kind, request["opencl"]) for kind in request["vdevices"]]
        self._stage = "load"
        package = Path(request["package"])
        module = tvm.runtime.load_module(str(package / LIBRARY))
        machine = tvm.runtime.vm.VirtualMachine(module, devices)
        params = read_tensors(package / PARAMS)
        held = []
        for name in request["params"]:
            scope = SCOPE if name in request["images"] else None
            tensor = tvm.runtime.empty(params[name].shape, params[name].dtype, devices[0], mem_scope=scope)
            held.append(tensor.copyfrom(params[name].numpy()))
        return machine, devices[0], held


def _device(kind: str, opencl: dict[str, str]) -> Any:
    """Return TVM's device for *kind* of the VM's virtual devices."""
    import tvm

    if kind == "cpu":
        return tvm.cpu()
    if kind != "opencl":
        raise ValueError(f"this machine runs no package for {kind}")
    flat = [str(text) for text in tvm.get_global_func("adt.opencl_devices")()]
    devices = list(zip(flat[::2], flat[1::2], strict=True))
    device = (opencl["platform"], opencl["name"])
    if device not in devices:
        raise ValueError(f"TVM's OpenCL runtime does not offer {device[1]} of {device[0]}; it has {devices}")
    return tvm.opencl(devices.index(device))


if __name__ == "__main__":
    serve(Runner())
