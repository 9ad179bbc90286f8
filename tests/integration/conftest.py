"""Own HOME, state and adb server for the whole run; the cache of built things is the user's own.

What the tests build (the TVM source tree, bundles, the virtual device's
userland) goes to the cache that `adt` itself uses, so that a second run is short.
"""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import adt
from adt.bundle.bundle import TargetBundle
from adt.device.transport.adb import find_adb
from adt.host.cache import cache_dir
from support.devices.fixtures import NATIVE, adb_rack, native_rack, only, rack
from support.devices.fork_server import forked_adt
from support.devices.listeners import MARK, ListenerWatch
from support.devices.ports import free_port
from support.devices.programs import ADT

__all__ = ["adb_rack", "native_rack", "only", "rack"]


@pytest.fixture(scope="session", autouse=True)
def listeners() -> Iterator[ListenerWatch]:
    """Refuse, for the whole run, listeners on any address but the loopback."""
    watch = ListenerWatch()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(MARK, watch.mark)
        watch.start()
        yield watch
        watch.stop()
    LISTENED_ABROAD.update(watch.abroad)


LISTENED_ABROAD: dict[str, str] = {}


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    """Count the listeners that a worker of pytest-xdist saw for the whole run."""
    LISTENED_ABROAD.update(getattr(node, "workeroutput", {}).get("abroad", {}))


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Fail the run, not its last test, which would be tried again."""
    if hasattr(session.config, "workeroutput"):
        session.config.workeroutput["abroad"] = LISTENED_ABROAD
    elif LISTENED_ABROAD:
        sys.stderr.write(f"\nerror: listened on more than the loopback: {LISTENED_ABROAD}\n")
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


@pytest.fixture(scope="session", autouse=True)
def own_environment(listeners: ListenerWatch, tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Keep the user's files and ADB server out of the run; the cache alone is shared."""
    home = tmp_path_factory.mktemp("home")
    kernels = cache_dir() / "tests/pocl"  # each takes PoCL a second to compile
    kernels.mkdir(parents=True, exist_ok=True)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ADT_CACHE_DIR", str(cache_dir()))
        patch.setenv("HOME", str(home))
        patch.setenv("XDG_STATE_HOME", str(home / "state"))
        patch.setenv("ANDROID_ADB_SERVER_PORT", str(free_port()))
        patch.setenv("ADT_TVM_PROVIDER", "registry")
        patch.setenv("ADB_MDNS", "0")  # for adb that a test starts itself
        patch.setenv("POCL_CACHE_DIR", str(kernels))
        for name in list(os.environ):
            if name.startswith(("ANDROID_NDK", "ANDROID_SDK", "ANDROID_HOME", "ANDROID_SERIAL", "TVM_HOME")):
                patch.delenv(name)
        # Now: forks have some variables from their server, so it starts before a test changes any.
        forked_adt(str(ADT))
        yield
        subprocess.run([find_adb().path, "kill-server"], check=False, capture_output=True)


@pytest.fixture(scope="session")
def workdir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("work")


@pytest.fixture(scope="session")
def host_bundle() -> TargetBundle:
    """Build the programs that run packages on this machine."""
    return adt.build_target(platform="host").bundle


@pytest.fixture(scope="session")
def native_bundle() -> TargetBundle:
    """Build the programs of a virtual device with this machine's processor."""
    return adt.build_target(platform=NATIVE.linux_platform).bundle


@pytest.fixture(scope="module")
def on_cpu(model: Path, host_bundle: TargetBundle) -> Path:
    """Compile the module's model for this machine's CPU, for which there is a bundle."""
    return adt.compile(model, out=model.parent / "on_cpu", platform="host", check=False).path


@pytest.fixture(scope="module")
def on_pocl(model: Path) -> Path:
    """Compile the module's model for OpenCL on this machine's CPU."""
    out = model.parent / "on_pocl"
    return adt.compile(model, out=out, platform="host", target="opencl", check=False).path
