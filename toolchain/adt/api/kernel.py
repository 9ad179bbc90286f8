"""Kernels without a model: compile them to libraries."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from adt.api.bundles import choose_bundle
from adt.api.requests import KernelRequest
from adt.bundle.bundle import load_bundle
from adt.host.ndk import find_ndk
from adt.model.targets import settings_and_platform
from adt.model.versions import require_tvm
from adt.options.request import takes

if TYPE_CHECKING:
    from adt.model.kernels import CompiledKernel


@takes(KernelRequest)
def compile_kernel(request: KernelRequest) -> CompiledKernel:
    """Compile a kernel to a shared library, to be loaded on a device over RPC; tensors lie in buffers.

    ``adt.compile_kernel([A, B], name="add_one", platform="linux-aarch64")``; then, in a session of
    :func:`adt.rpc_session`, ``remote.upload(library.path)`` and
    ``remote.load_module(library.path.name)["add_one"](a, b)``.

    Raises:
        ToolNotFound: TVM or the platform's compiler is not installed, or TVM is in versions that break.
        ModelError: *kernel* is no kernel.
        ConfigError, CompileError, MismatchError, NdkError: see :mod:`adt.errors`.
    """
    require_tvm()
    from adt.model import kernels

    settings, chosen = settings_and_platform(request.resolved)
    linked = load_bundle(request.bundle) if request.bundle else None
    if linked is None and chosen.android:
        linked = choose_bundle((chosen.name,))
    return kernels.compile_kernel(
        request.kernel,
        request.out or Path(f"{request.name or 'kernel'}-{chosen.name}.so"),
        name=request.name,
        platform=chosen,
        settings=settings,
        ndk=find_ndk(settings.build.ndk) if chosen.android else None,
        bundle=linked,
    )
