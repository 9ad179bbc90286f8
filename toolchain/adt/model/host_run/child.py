"""Run packages in a process of their own: ``python -m adt.model.host_run.child REQUEST.json``.

A driver that crashes or hangs takes this process along, not the caller's. What is
asked and answered is described in :mod:`adt.model.host_run.running`, which starts this.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np

from adt.model.texture.specialized import SCOPE


def main() -> int:
    """Do what the request says and write ``result`` in any case that is not a crash."""
    request: dict[str, Any] = json.loads(Path(sys.argv[1]).read_text())
    result: dict[str, Any] = {"done": 0, "stage": "start"}
    try:
        _run(request, result)
    except Exception as why:  # TVM raises InternalError, RuntimeError, ValueError, …
        result["error"] = f"{type(why).__name__}: {why}"
    Path(request["result"]).write_text(json.dumps(result))
    return 0


def _run(request: dict[str, Any], result: dict[str, Any]) -> None:
    import tvm

    from adt.model.plugins.loading import load_plugin

    for plugin in request["plugins"]:
        load_plugin(Path(plugin))
    loaded: dict[str, Any] = {}
    for number, wanted in enumerate(request["runs"]):
        result["done"] = number
        if wanted["package"] not in loaded:
            result["stage"] = "device"
            devices = [_device(kind, request["opencl"]) for kind in wanted["vdevices"]]
            result["stage"] = "load"
            module = tvm.runtime.load_module(str(Path(wanted["package"]) / wanted["library"]))
            machine = tvm.runtime.vm.VirtualMachine(module, list(devices))
            params = tvm.runtime.load_param_dict_from_file(
                str(Path(wanted["package"]) / wanted["params_file"])
            )
            first = devices[0]
            images = frozenset(wanted["images"])
            held = [_on_device(params[name], first, image=name in images) for name in wanted["params"]]
            loaded[wanted["package"]] = machine, first, held
        machine, first, held = loaded[wanted["package"]]
        result["stage"] = "run"
        with np.load(wanted["inputs"], allow_pickle=False) as archive:
            arrays = [tvm.runtime.tensor(archive[f"arr_{i}"], first) for i in range(len(archive.files))]
        answer = machine[wanted["entry"]](*arrays, *held)
        tensors = [answer] if hasattr(answer, "numpy") else list(answer)
        np.savez(wanted["outputs"], *(tensor.numpy() for tensor in tensors))
    result["done"] = len(request["runs"])


def _on_device(param: Any, device: Any, *, image: bool) -> Any:
    """The parameter on *device*, in a buffer or an image."""
    import tvm

    made = tvm.runtime.empty(param.shape, param.dtype, device, mem_scope=SCOPE if image else None)
    return made.copyfrom(param.numpy())


def _device(kind: str, opencl: dict[str, str]) -> Any:
    """The device of TVM for *kind* of the VM's virtual devices."""
    import tvm

    if kind == "cpu":
        return tvm.cpu()
    if kind != "opencl":
        raise ValueError(f"this machine runs no package for {kind}")
    flat = [str(text) for text in tvm.get_global_func("adt.opencl_devices")()]
    devices = list(zip(flat[::2], flat[1::2], strict=True))
    wanted = (opencl["platform"], opencl["name"])
    if wanted not in devices:
        raise ValueError(f"TVM's OpenCL runtime does not offer {wanted[1]} of {wanted[0]}; it has {devices}")
    return tvm.opencl(devices.index(wanted))


if __name__ == "__main__":
    sys.exit(main())
