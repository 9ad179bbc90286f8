"""TargetBundle: stripped libraries and programs for one ABI, with ``bundle.json``; the cache of them."""

from __future__ import annotations

import functools
import logging
import os
import shutil
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from shlex import quote

from adt.bundle.libraries import LIBRARIES, Library
from adt.errors import MismatchError, PackageError, RpcError
from adt.host import cache, manifest
from adt.host.artefact import BUNDLE, REMEDIES, not_a
from adt.host.cache import file_sha256
from adt.host.contained import contained_file, plain_name
from adt.host.disk import disk_errors
from adt.host.document import FLAT, in_document
from adt.limits import MOST_ARRAY_BYTES
from adt.options.option import did_you_mean

SCHEMA = "adt.target-bundle"
SCHEMA_VERSION = 1
MANIFEST = "bundle.json"
GPU_RUNTIMES = {"opencl": "OpenCL", "cuda": "CUDA"}
"""Devices that need a runtime which not every bundle has; what it is called."""
ACTIVITY = "lib/libadt_activity.so"
"""An application without Java; in bundles for Android, among :attr:`BundleManifest.app_files`."""


@dataclass(frozen=True)
class BundleTvm:
    """TVM that the bundle was built from."""

    version: str
    """Version of the source tree, e.g. ``0.25.0.post1``."""
    ffi_version: str
    source_digest: str
    """Digest (sha256) that names the source tree's contents."""
    source_provider: str
    """Provider of the tree: ``path``, ``cache``, ``git`` or ``registry``."""


@dataclass(frozen=True)
class BundleOptions:
    """The options that change what the bundle can do."""

    opencl: bool
    """The OpenCL runtime is inside (the device's libOpenCL is opened at run time)."""
    clml: bool
    """The CLML graph runtime is inside."""
    rpc: bool
    """``bin/tvm_rpc`` is inside."""
    alignment: int
    """Bytes: every tensor the runtime allocates is aligned to this (TVM_KALLOC_ALIGNMENT)."""
    build_type: str
    clml_sdk: str | None = None
    """Major version of the CLML SDK's operators; None without CLML."""
    opencl_linked: bool = False
    """True if libOpenCL.so is linked: nothing of the bundle starts on a device that has none."""
    xnnpack: bool = False
    """The runtime for XNNPACK is inside."""
    cuda: bool = False
    """The CUDA runtime is inside (the driver's libcuda.so.1 is opened at run time), …"""
    cudnn: bool = False
    """True if the runtime for cuDNN is built in …"""
    cublas: bool = False
    """True if that for cuBLAS is (NVIDIA's libraries are opened at run time, too)."""
    one_library: bool = False
    """TVM's runtime is inside ``lib/libadt_runner.so``, which exports none of it, and inside each program."""

    @property
    def libraries(self) -> tuple[Library, ...]:
        """The libraries whose runtimes are inside."""
        return tuple(library for library in LIBRARIES.values() if getattr(self, library.name))

    def missing_runtime(self, device: str) -> str:
        """Return the runtime that *device* (``cpu``, ``opencl``, ``cuda``) lacks; empty: none."""
        title = GPU_RUNTIMES.get(device, "")
        return title if title and not getattr(self, device) else ""


@dataclass(frozen=True)
class BundleFile:
    sha256: str
    size: int
    """Bytes."""
    needed: tuple[str, ...]
    """DT_NEEDED, in order."""


@dataclass(frozen=True)
class BundleManifest:
    """``bundle.json``."""

    adt_version: str
    preset: str
    """Name of the CMake preset, e.g. ``linux-aarch64``."""
    platform: str
    """``android-arm64-v8a``, ``linux-aarch64``, ``host``, …: what a package must be compiled for."""
    abi: str
    """Android's ABI name, or the Linux one (``arm64-v8a``, ``aarch64``, ``x86_64``)."""
    triple: str
    machine: str
    """ELF machine, as readelf names it without its prefix: ``AARCH64``, ``X86_64``, …"""
    api_level: int | None
    """Android API level; None elsewhere."""
    ndk_revision: str | None
    """``Pkg.Revision`` of the NDK; None elsewhere."""
    compiler: str
    """First line of the compiler's ``--version``."""
    tvm: BundleTvm
    context_symbols: tuple[str, ...]
    """Context symbols the runner offers to a module (the module ABI)."""
    options: BundleOptions
    page_alignment: int
    """Bytes: the smallest p_align of any LOAD segment in the bundle."""
    functions: tuple[str, ...] = ()
    """Functions that the runtime registers for modules to call; empty in bundles of an older adt."""
    files: dict[str, BundleFile] = field(default_factory=dict)
    """By path relative to the bundle: what a device needs."""
    symbols: dict[str, BundleFile] = field(default_factory=dict)
    """Debug information that was stripped from the files, by path; stays on this machine."""
    headers: dict[str, BundleFile] = field(default_factory=dict)
    """Headers that a program of one's own is compiled with, by path; they stay on this machine."""
    build_files: dict[str, BundleFile] = field(default_factory=dict)
    """Files by which CMake and pkg-config find the bundle, by path; they stay on this machine."""
    app_files: dict[str, BundleFile] = field(default_factory=dict)
    """Further files of an application without Java, by path; only ``adt apk`` packs them."""
    licenses: dict[str, BundleFile] = field(default_factory=dict)
    """Licences and notices that whoever passes the libraries on must pass on with them, by path."""
    sources: str = ""
    """Digest (sha256) of adt's own sources that were built: ``cmake_presets/`` and ``cpp_runner/``."""
    schema: str = SCHEMA
    schema_version: int = SCHEMA_VERSION

    @property
    @in_document()
    def summary(self) -> str:
        """Description of what distinguishes it from other bundles of its platform."""
        options = self.options
        parts = [
            ("OpenCL (linked)" if options.opencl_linked else "OpenCL") if options.opencl else "no OpenCL",
            *(
                f"CLML {options.clml_sdk}" if library.name == "clml" and options.clml_sdk else library.title
                for library in options.libraries
            ),
            "CUDA" if options.cuda else "",
            "one library" if options.one_library else "",
            "RPC" if options.rpc else "no RPC",
            f"{options.alignment}-byte tensors",
            options.build_type if options.build_type != "Release" else "",
            f"API level {self.api_level}" if self.api_level is not None else "",
            f"NDK {self.ndk_revision}" if self.ndk_revision else self.compiler,
            f"TVM {self.tvm.version}",
        ]
        return ", ".join(part for part in parts if part)

    @property
    def all_files(self) -> dict[str, BundleFile]:
        """Every file of the bundle but bundle.json, by path."""
        own = {**self.files, **self.symbols, **self.headers, **self.build_files}
        return {**own, **self.app_files, **self.licenses}


@dataclass(frozen=True)
class TargetBundle:
    """A bundle on disk."""

    path: Path
    manifest: BundleManifest = field(metadata=FLAT)

    @property
    @in_document()
    def name(self) -> str:
        """Name of its directory."""
        return self.path.name

    @property
    def digest(self) -> str:
        """Digest (sha256) of bundle.json, which has those of its other files."""
        return file_sha256(self.path / MANIFEST)

    @property
    @in_document(convert=lambda at: time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(at)))
    def built(self) -> float:
        """Time when it was built, or a build last found it up to date; seconds since the epoch."""
        return (self.path / MANIFEST).stat().st_mtime

    @property
    @in_document()
    def size(self) -> int:
        """Bytes of its files."""
        return sum(file.size for file in self.manifest.all_files.values())

    def file(self, name: str) -> Path:
        """Return the absolute path of a file of the bundle, e.g. ``bin/rtvm``."""
        return self.path / name


def load_bundle(path: Path, *, check_hashes: bool = True) -> TargetBundle:
    """Open the bundle in *path*; PackageError if it is none, of another schema, or changed."""
    if not os.path.lexists(path / MANIFEST):
        raise not_a(BUNDLE, path)
    remedy = REMEDIES[BUNDLE]
    found = manifest.load(
        BundleManifest, path / MANIFEST, schema=SCHEMA, version=SCHEMA_VERSION, remedy=remedy
    )
    remedy = f"Build it again: adt build-target --for {quote(found.platform)}"
    for name, facts in found.all_files.items():
        try:
            file = contained_file(path, plain_name(name), MOST_ARRAY_BYTES)
        except OSError as error:
            raise PackageError(f"the bundle {path} lacks {name}", remedy=remedy) from error
        if check_hashes and file_sha256(file) != facts.sha256:
            raise PackageError(f"{file} is not the file that bundle.json describes", remedy=remedy)
    return TargetBundle(path, found)


def export(bundles: Sequence[TargetBundle], out: Path, layout: str) -> None:
    """Write *bundles* to the directory *out*, by ABI if they are several; *out* appears complete
    or not at all.

    *layout* ``jni`` is what an app takes: ``jniLibs/<abi>/*.so``, ``include/``, ``<abi>.bundle.json``.
    """
    cache.leave_alone(out, _ours, "a bundle")
    with cache.fresh_dir(out) as directory:
        for bundle in bundles:
            abi = bundle.manifest.abi
            if layout == "jni":
                libraries = directory / "jniLibs" / abi
                libraries.mkdir(parents=True)
                for name in (name for name in sorted(bundle.manifest.files) if name.startswith("lib/")):
                    shutil.copy2(bundle.file(name), libraries)
                for header in bundle.manifest.headers:  # the same for each ABI
                    (directory / header).parent.mkdir(parents=True, exist_ok=True)
                    shutil.copy2(bundle.file(header), directory / header)
                shutil.copy2(bundle.path / MANIFEST, directory / f"{abi}.{MANIFEST}")
            else:
                place = directory if len(bundles) == 1 else directory / abi
                for name in (*bundle.manifest.all_files, MANIFEST):
                    (place / name).parent.mkdir(parents=True, exist_ok=True)
                    shutil.copy2(bundle.file(name), place / name)


def _ours(out: Path) -> bool:
    """Return True if *out* has the manifest of a bundle where :func:`export` puts it."""
    return any(next(out.glob(pattern), None) for pattern in (MANIFEST, f"*/{MANIFEST}", f"*.{MANIFEST}"))


log = logging.getLogger("adt.bundles")

Check = Callable[[TargetBundle], None]
"""Raises MismatchError or RpcError when a bundle cannot be used."""


def cached_bundles(platforms: Sequence[str] | None = None) -> tuple[TargetBundle, ...]:
    """Return the cache's readable bundles, newest first, of all platforms or in the order of *platforms*."""
    bundles = []
    for path in (cache.cache_dir() / "bundles").glob(f"*/{MANIFEST}"):
        try:
            bundles.append(load_bundle(path.parent, check_hashes=False))
        except PackageError as error:
            log.debug("%s", error)
    bundles.sort(key=lambda bundle: -bundle.built)
    if platforms is None:
        return tuple(bundles)
    rank = list(platforms).index
    fitting = [bundle for bundle in bundles if bundle.manifest.platform in platforms]
    return tuple(sorted(fitting, key=lambda bundle: rank(bundle.manifest.platform)))


def newest_with(program: str, platforms: Sequence[str]) -> TargetBundle | None:
    """Return the newest bundle with the file *program*, of the first of *platforms* that has one."""
    return next((bundle for bundle in cached_bundles(platforms) if program in bundle.manifest.files), None)


def newest_fitting(
    platforms: Sequence[str], check: Check, preferred: TargetBundle | None = None
) -> TargetBundle:
    """Return the newest bundle that passes *check*, of the first of *platforms* that has one; log its name.

    *preferred* comes first, if it is for one of *platforms*. Where none passes, raise what *check* says of
    the newest.
    """
    fitting: list[TargetBundle] = []
    errors: list[MismatchError | RpcError] = []
    bundles = cached_bundles(platforms)
    if preferred is not None and preferred.manifest.platform in platforms:
        bundles = (preferred, *(bundle for bundle in bundles if bundle.path != preferred.path))
    for bundle in bundles:
        try:
            check(bundle)
        except (MismatchError, RpcError) as error:
            errors.append(error)
        else:
            fitting.append(bundle)
    if not fitting:
        raise next(iter(errors), None) or MismatchError(
            f"no bundle for {' or '.join(platforms)} was built here",
            remedy=f"adt build-target --for {platforms[0]}, or pass --bundle DIR",
        )
    _log_choice(_choice(fitting, "in use there" if fitting[0] is preferred else "the newest that fits"))
    return load_bundle(fitting[0].path)


def _choice(fitting: Sequence[TargetBundle], reason: str) -> str:
    """Describe the first of *fitting*, and those that differ from it in more than their age."""
    chosen, *others = fitting
    text = f"bundle {chosen.path.name}: {chosen.manifest.summary}"
    by_summary = {bundle.manifest.summary: bundle for bundle in reversed(others)}
    by_summary.pop(chosen.manifest.summary, None)
    if by_summary:
        text += f"; it is {reason}, these fit, too:"
    for summary, bundle in reversed(by_summary.items()):
        text += f"\n  --bundle {bundle.path}  {summary}"
    return text


@functools.cache
def _log_choice(text: str) -> None:
    """Log *text* once, however many steps take the same bundle; without -v only a choice of several."""
    log.log(logging.INFO if "\n" in text else logging.DEBUG, "%s", text)


def remove_bundles(names: Sequence[str]) -> tuple[TargetBundle, ...]:
    """Remove the bundles of the cache's directories *names*, and what built them; all of them, or none."""
    bundles = {bundle.path.name: bundle for bundle in cached_bundles()}
    for name in names:
        if name not in bundles:
            raise PackageError(
                f"there is no bundle {name!r}.{did_you_mean(name, bundles)}",
                remedy="`adt bundles` lists them.",
            )
    chosen = tuple(bundles[name] for name in dict.fromkeys(names))
    for bundle in chosen:
        build = cache.cache_dir() / "build" / bundle.path.name
        with cache.lock(build), disk_errors(f"removing {bundle.path}", bundle.path):
            for directory in (bundle.path, build):
                if directory.exists():
                    shutil.rmtree(directory)
    return chosen


def superseded_bundles() -> tuple[TargetBundle, ...]:
    """Return the bundles that a newer one with the same options replaces."""
    bundles = cached_bundles()
    newest = {(each.manifest.platform, each.manifest.summary): each for each in reversed(bundles)}
    return tuple(each for each in bundles if each not in newest.values())
