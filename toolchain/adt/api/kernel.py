"""Kernels without a model: compile them to libraries."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from adt.api.bundles import choose_bundle
from adt.host.ndk import find_ndk
from adt.model.targets import place
from adt.model.versions import require_tvm
from adt.target.bundle import load_bundle

if TYPE_CHECKING:
    from adt.model.kernels import CompiledKernel


def compile_kernel(
    kernel: Any,
    *,
    name: str = "",
    out: Path | None = None,
    platform: str | None = None,
    target: str | None = None,
    cpu: str | None = None,
    bundle: Path | None = None,
    ndk: str | None = None,
    api_level: int | None = None,
    opt_level: int | None = None,
) -> CompiledKernel:
    """Compile a kernel to a shared library for *platform*, to be loaded on a device over RPC.

    ``adt.compile_kernel([A, B], name="add_one", platform="linux-aarch64")``; then, in a session of
    :func:`adt.rpc_session`, ``remote.upload(library.path)`` and
    ``remote.load_module(library.path.name)["add_one"](a, b)``.

    Args:
        kernel: the tensors of a TE computation, inputs first; or a PrimFunc of TVMScript; or a
            ``tvm.IRModule`` of PrimFuncs. For OpenCL, one without thread bindings gets a simple schedule.
        name: what a single function is called; empty: as it calls itself, else ``main``.
        out: the library; by default ``<name>-<platform>.so`` here.
        platform, target, cpu: as for :func:`adt.compile`; tensors lie in buffers.
        bundle: directory of the bundle it will run with. Android needs one: by default the newest one that
            was built here for the platform.

    Raises:
        ToolNotFound: TVM or the platform's compiler is not installed, or TVM is in versions that break.
        ModelError: *kernel* is no kernel.
        ConfigError, CompileError, MismatchError, NdkError: see :mod:`adt.errors`.
    """
    require_tvm()
    from adt.model import kernels

    settings, chosen = place(
        {
            "build.platform": platform,
            "build.ndk": ndk,
            "build.api_level": api_level,
            "compile.target": target,
            "compile.cpu": cpu,
            "compile.opt_level": opt_level,
        }
    )
    linked = load_bundle(bundle) if bundle else None
    if linked is None and chosen.android:
        linked = choose_bundle((chosen.name,))
    return kernels.compile_kernel(
        kernel,
        out or Path(f"{name or 'kernel'}-{chosen.name}.so"),
        name=name,
        platform=chosen,
        settings=settings,
        ndk=find_ndk(settings.build.ndk) if chosen.android else None,
        bundle=linked,
    )
