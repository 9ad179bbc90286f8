"""The Android NDK, the CLML SDK, the OpenCL SDK and XNNPACK's source."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator, Sequence

from adt.bundle.platforms import ANDROID, PLATFORMS, Platform
from adt.checkup.check import Area, Check, Question, Scope, Status, failed, ok, warning
from adt.checkup.host import version_line
from adt.errors import NdkError
from adt.host import opencl_sdk
from adt.host.elf import read_elf
from adt.host.ndk import NEWEST_KNOWN, VARIABLES, Listed, Ndk, find_ndk, list_ndks
from adt.host.opencl_sdk import find_opencl_sdk
from adt.host.sources import cached_xnnpack, find_xnnpack

PAGE = 16384
"""Bytes: pages of Android 15 and newer devices that load nothing aligned to less."""


def check_found(listed: Sequence[Listed]) -> Iterator[Check]:
    """Judge the NDK that builds take (the first of *listed*, a whole one), and mention the others."""
    chosen, *others = listed
    ndk = chosen.ndk
    assert ndk is not None
    known = ndk.known
    verdict, status, remedy = f"{ndk.revision}, {known.verdict}: {known.reason}", Status.OK, ""
    if known.verdict == "too new":
        status, remedy = Status.WARNING, f"If a build fails, use r{NEWEST_KNOWN} or older, or a newer adt."
    if ndk.description and ndk.description != "Android NDK":
        status, remedy = Status.WARNING, "Use Google's NDK for what goes to a phone."
        verdict += f'; it calls itself "{ndk.description}"'
    yield Check("NDK", status, verdict, f"{ndk.path}, from {ndk.origin}", remedy)
    for other in others:
        if other.origin in VARIABLES:
            problem = other.problem or f"{other.path} is not used: {ndk.origin} comes first"
            remedy = f"Unset {other.origin} or let it name the same directory; other tools may take it."
            yield warning(f"NDK of {other.origin}", problem, other.origin, remedy)
    if installed := [other for other in others if other.origin not in VARIABLES]:
        rows = [f"{other.path.name}{' (not usable)' if other.problem else ''}" for other in installed]
        origin = f"{installed[0].path.parent}; `adt ndk list` says more"
        yield ok("other NDKs", ", ".join(rows), origin)


def check_parts(
    ndk: Ndk, api_level: int, target: Platform | None, version: str, page: int | None
) -> Iterator[Check]:
    """Check the NDK's compiler, its API level, and *page*, p_align in bytes of its libc++_shared.so."""
    yield ok("NDK compiler", version, str(ndk.bin))
    able = []
    for platform in PLATFORMS.values():
        if not platform.android:
            continue
        try:
            ndk.compiler(platform.ndk_triple, api_level)
            able.append(platform.name)
        except NdkError as error:
            name, needed = f"API level for {platform.name}", platform is target
            yield failed(name, error.what, "build.api_level", error.remedy, needed=needed)
    if able:
        yield ok("API level", f"{api_level} for {', '.join(able)}", "build.api_level")
    aligned = f"its libc++_shared.so is aligned to {page} bytes"
    if page is not None and page < PAGE:
        aligned += ", too little for devices with 16 KB pages; no flag mends a prebuilt library"
        yield warning("16 KB pages", aligned, remedy="Install NDK r28 or newer.")
    elif page is not None:
        yield ok("16 KB pages", aligned)


def libcxx_alignment(ndk: Ndk) -> int | None:
    """Return p_align of the NDK's arm64 libc++_shared.so in bytes; None when it has none."""
    library = ndk.bin.parent / "sysroot/usr/lib/aarch64-linux-android/libc++_shared.so"
    return read_elf(library).page_alignment if library.is_file() else None


@contextlib.contextmanager
def warnings_of(logger: logging.Logger) -> Iterator[list[str]]:
    """Collect what *logger* warns of, in place of showing it."""
    messages: list[str] = []

    def keep(record: logging.LogRecord) -> bool:
        if record.levelno >= logging.WARNING:
            messages.append(record.getMessage())
        return record.levelno < logging.WARNING

    logger.addFilter(keep)
    try:
        yield messages
    finally:
        logger.removeFilter(keep)


def check_clml(scope: Scope) -> Iterator[Check]:
    """Look for the CLML SDK, where one is named or the preset needs one; each missing part is named."""
    explicit = scope.settings.build.clml
    needed = scope.settings.build.platform.endswith("-clml")
    if not (needed or explicit or any(scope.environ.get(name) for name in opencl_sdk.VARIABLES)):
        return
    machine = scope.platform.machine if scope.platform else "AARCH64"
    with warnings_of(opencl_sdk.log) as disagreements:
        sdk = opencl_sdk.find_clml(explicit, machine, environ=scope.environ)
    version = f"version {sdk.version}, {sdk.library.relative_to(sdk.path)} for {machine}"
    yield ok("CLML SDK", version, f"{sdk.path}, from {sdk.origin}")
    for text in disagreements:
        yield warning("CLML SDK choice", text, remedy="Name one with build.clml.")


def check_opencl_sdk(scope: Scope) -> Iterator[Check]:
    """Look for the OpenCL SDK to link with, where the settings name one."""
    machine = scope.platform.machine if scope.platform else "AARCH64"
    if sdk := find_opencl_sdk(scope.settings.build.opencl_sdk, machine):
        library = f"{sdk.library.relative_to(sdk.path)} for {machine}"
        yield ok("OpenCL SDK", library, f"{sdk.path}, from build.opencl_sdk")


def check_xnnpack(scope: Scope) -> Iterator[Check]:
    """Look for XNNPACK's source, where the settings ask for bundles with it; fetch nothing."""
    options = scope.settings.build
    if options.xnnpack_source:
        source = find_xnnpack(options.xnnpack_source)
        yield ok("XNNPACK source", "the four trees are there", f"{source.path}, from build.xnnpack_source")
    elif options.xnnpack:
        cached = cached_xnnpack()
        found = "obtained before" if cached else "not obtained yet: the first build does so"
        yield ok("XNNPACK source", found, str(cached or "build.xnnpack"))


def questions(scope: Scope) -> Iterator[Question]:
    """Yield the questions about the NDK, then about the SDKs and sources."""
    needed = scope.named(Area.NDK) or (scope.platform is not None and scope.platform.android)

    def ndk() -> Iterator[Check]:
        explicit = scope.settings.build.ndk
        listed = list_ndks(explicit, environ=scope.environ)
        if not listed or listed[0].ndk is None:
            try:
                find_ndk(explicit, environ=scope.environ)
            except NdkError as error:
                if listed:
                    raise
                yield failed("NDK", error.what, remedy=error.remedy, needed=needed)
            return
        yield from check_found(listed)
        first, target = listed[0].ndk, scope.platform or PLATFORMS[ANDROID]
        version = version_line(first.bin / "clang++")
        level = scope.settings.build.api_level
        yield from check_parts(first, level, target, version, libcxx_alignment(first))

    yield Question("NDK", ndk)
    yield Question("CLML SDK", lambda: check_clml(scope))
    yield Question("OpenCL SDK", lambda: check_opencl_sdk(scope))
    yield Question("XNNPACK source", lambda: check_xnnpack(scope))
