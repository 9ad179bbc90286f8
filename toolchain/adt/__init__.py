"""adt: get a model to run fast and right on an Android phone or an arm64 board with Apache TVM.

Every verb of the command line is a function here with the same name
(``adt.build_target(...)``, ``adt.compile(...)``); see :mod:`adt.api`.
Nothing is imported until a verb is used, and then only what it needs.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # the same names as in VERBS, for type checkers and editors
    from adt.api.apk import apk, install
    from adt.api.bench import bench, bench_ab, report, report_export, report_html, report_import
    from adt.api.build import (
        build_abis,
        build_target,
        explain_build,
        ndk_env,
        ndk_list,
        presets,
        settings,
        source,
    )
    from adt.api.bundles import bundles, bundles_remove
    from adt.api.db import (
        db_export,
        db_fetch,
        db_import,
        db_merge,
        db_prune,
        db_publish,
        db_stats,
        db_verify,
    )
    from adt.api.deploy import clean, clean_many, deploy, deploy_many
    from adt.api.device import Device, connect, devices, disconnect, logcat, pair
    from adt.api.emulator import emulator_fault, emulator_list, emulator_start, emulator_stop
    from adt.api.generate import generate
    from adt.api.inspect import doctor, elf, inspect, inspect_diff, inspect_html
    from adt.api.kernel import compile_kernel
    from adt.api.model import compile, explain
    from adt.api.package import package_merge, package_split_params, package_verify
    from adt.api.probe import probe
    from adt.api.profile import profile, profile_html, profile_trace
    from adt.api.rpc import (
        rpc_serve,
        rpc_serve_here,
        rpc_session,
        rpc_start,
        rpc_status,
        rpc_stop,
        tracker_start,
        tracker_status,
        tracker_stop,
    )
    from adt.api.run import run
    from adt.api.tune import tune
    from adt.api.up import up
    from adt.api.verify import verify, verify_layers

__version__ = "0.1.0"

VERBS = {
    "Device": "device",
    "apk": "apk",
    "bench": "bench",
    "bench_ab": "bench",
    "build_abis": "build",
    "build_target": "build",
    "bundles": "bundles",
    "bundles_remove": "bundles",
    "clean": "deploy",
    "clean_many": "deploy",
    "compile": "model",
    "compile_kernel": "kernel",
    "connect": "device",
    "db_export": "db",
    "db_fetch": "db",
    "db_import": "db",
    "db_merge": "db",
    "db_prune": "db",
    "db_publish": "db",
    "db_stats": "db",
    "db_verify": "db",
    "deploy": "deploy",
    "deploy_many": "deploy",
    "devices": "device",
    "disconnect": "device",
    "doctor": "inspect",
    "elf": "inspect",
    "emulator_fault": "emulator",
    "emulator_list": "emulator",
    "emulator_start": "emulator",
    "emulator_stop": "emulator",
    "explain": "model",
    "explain_build": "build",
    "generate": "generate",
    "inspect": "inspect",
    "inspect_diff": "inspect",
    "inspect_html": "inspect",
    "install": "apk",
    "logcat": "device",
    "ndk_env": "build",
    "ndk_list": "build",
    "package_merge": "package",
    "package_split_params": "package",
    "package_verify": "package",
    "pair": "device",
    "presets": "build",
    "probe": "probe",
    "profile": "profile",
    "profile_html": "profile",
    "profile_trace": "profile",
    "report": "bench",
    "report_export": "bench",
    "report_html": "bench",
    "report_import": "bench",
    "rpc_serve": "rpc",
    "rpc_serve_here": "rpc",
    "rpc_session": "rpc",
    "rpc_start": "rpc",
    "rpc_status": "rpc",
    "rpc_stop": "rpc",
    "run": "run",
    "settings": "build",
    "source": "build",
    "tracker_start": "rpc",
    "tracker_status": "rpc",
    "tracker_stop": "rpc",
    "tune": "tune",
    "up": "up",
    "verify": "verify",
    "verify_layers": "verify",
}
"""Each verb and the module of :mod:`adt.api` that has it."""

__all__ = [
    "Device",
    "apk",
    "bench",
    "bench_ab",
    "build_abis",
    "build_target",
    "bundles",
    "bundles_remove",
    "clean",
    "clean_many",
    "compile",
    "compile_kernel",
    "connect",
    "db_export",
    "db_fetch",
    "db_import",
    "db_merge",
    "db_prune",
    "db_publish",
    "db_stats",
    "db_verify",
    "deploy",
    "deploy_many",
    "devices",
    "disconnect",
    "doctor",
    "elf",
    "emulator_fault",
    "emulator_list",
    "emulator_start",
    "emulator_stop",
    "explain",
    "explain_build",
    "generate",
    "inspect",
    "inspect_diff",
    "inspect_html",
    "install",
    "logcat",
    "ndk_env",
    "ndk_list",
    "package_merge",
    "package_split_params",
    "package_verify",
    "pair",
    "presets",
    "probe",
    "profile",
    "profile_html",
    "profile_trace",
    "report",
    "report_export",
    "report_html",
    "report_import",
    "rpc_serve",
    "rpc_serve_here",
    "rpc_session",
    "rpc_start",
    "rpc_status",
    "rpc_stop",
    "run",
    "settings",
    "source",
    "tracker_start",
    "tracker_status",
    "tracker_stop",
    "tune",
    "up",
    "verify",
    "verify_layers",
]


def __getattr__(name: str) -> Any:
    """Find ``adt.VERB`` on first use (PEP 562)."""
    if name in VERBS:
        return getattr(import_module(f"adt.api.{VERBS[name]}"), name)
    raise AttributeError(f"module 'adt' has no attribute {name!r}")
