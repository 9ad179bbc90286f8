"""Payload of a deployment, and whether bundle, package and device fit each other, before anything is sent."""

from __future__ import annotations

import getpass
import hashlib
import json
import os
import re
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

from adt.device.survey import TEMP
from adt.errors import MismatchError, PackageError
from adt.host.cache import file_sha256
from adt.host.contained import plain_name
from adt.package.compatibility import check_cpu, check_pair

if TYPE_CHECKING:
    from adt.bundle.bundle import BundleManifest, TargetBundle
    from adt.device.survey import DeviceFacts
    from adt.package.manifest import PackageManifest
    from adt.package.package import ModelPackage

SCHEMA = "adt.deployment"
SCHEMA_VERSION = 1
MAX_NAME = 100
"""Characters of a deployment's name: with its digest it is a file name."""


@dataclass(frozen=True)
class PayloadFile:
    name: str
    """Path in the deployment, e.g. ``lib/libtvm_runtime.so``."""
    source: Path
    sha256: str
    size: int
    """Bytes."""


@dataclass(frozen=True)
class Payload:
    name: str
    """Name of the deployment, from the package: letters, digits, ``_`` and ``-``."""
    platform: str
    files: tuple[PayloadFile, ...]

    @cached_property
    def digest(self) -> str:
        """Names the exact set of files: equal payloads are one directory on the device."""
        rows = sorted(f"{file.sha256} {file.name}" for file in self.files)
        return hashlib.sha256("\n".join(rows).encode(errors="surrogateescape")).hexdigest()[:24]

    @cached_property
    def manifest(self) -> str:
        """The deployment's manifest; the same for the same payload."""
        fields = {
            "schema": SCHEMA,
            "schema_version": SCHEMA_VERSION,
            "name": self.name,
            "platform": self.platform,
            "digest": self.digest,
            "files": {file.name: {"sha256": file.sha256, "size": file.size} for file in self.files},
        }
        return json.dumps(fields, indent=1, sort_keys=True) + "\n"


def user_directory(user: str | None = None) -> str:
    """Return our directory on a device for *user*, or who runs adt; users who share a device keep apart."""
    if user is None:
        try:
            user = getpass.getuser()
        except (KeyError, OSError):  # no USER in the environment and no entry in the user database
            user = f"uid{os.getuid()}"
    return f"{TEMP}/adt/{_plain(user) or 'user'}"


def _plain(name: str) -> str:
    """Turn *name* into a file name that no shell and no path takes for anything else."""
    return re.sub(r"[^A-Za-z0-9_-]", "_", name)


def _checked(payload: Payload) -> Payload:
    """Return *payload* if each of its files has a place of its own and is named by a sha256."""
    names = {file.name for file in payload.files}
    directories = {str(parent) for name in names for parent in PurePosixPath(name).parents}
    remedy = "Do not use this bundle or package; make it again."
    for file in payload.files:
        if file.name in directories:
            raise PackageError(f"a manifest names {file.name!r} as a file and as a directory", remedy=remedy)
        if not re.fullmatch(r"[0-9a-f]{64}", file.sha256):
            raise PackageError(f"a manifest gives {file.name!r} the sha256 {file.sha256!r}", remedy=remedy)
    if len(names) != len(payload.files):
        both = "a manifest names a file of the bundle that is the package's: below model/"
        raise PackageError(both, remedy=remedy)
    return payload


def payload_of(bundle: TargetBundle, package: ModelPackage | None) -> Payload:
    """List the files of a deployment: the bundle's under their names, the package's under ``model/``."""
    files = [
        PayloadFile(plain_name(name), bundle.file(name), facts.sha256, facts.size)
        for name, facts in sorted(bundle.manifest.files.items())
    ]
    name = f"bundle-{bundle.manifest.preset}"
    if package is not None:
        name = package.manifest.name
        for file in package.files:
            facts = package.manifest.files.get(file.name)  # mod.json cannot describe itself
            sha256, size = (facts.sha256, facts.size) if facts else (file_sha256(file), file.stat().st_size)
            files.append(PayloadFile(f"model/{file.name}", file, sha256, size))
    return _checked(Payload(_plain(name)[:MAX_NAME] or "model", bundle.manifest.platform, tuple(files)))


def check_device(bundle: BundleManifest, facts: DeviceFacts, serial: str) -> None:
    """Check that *bundle* runs on the device with these *facts*; the remedy names what to build."""
    own, level = facts.platforms[0], facts.api_level
    if bundle.platform not in facts.platforms:
        raise MismatchError(
            f"the bundle is for {bundle.platform}, device {serial} runs {', '.join(facts.platforms)}",
            remedy=f"Build and compile for the device: adt build-target --for {own}; adt compile MODEL "
            f"--for {own}; or choose another device with --serial.",
        )
    if bundle.api_level is not None and level is not None and bundle.api_level > level:
        raise MismatchError(
            f"the bundle needs Android API level {bundle.api_level}, device {serial} has {level}",
            remedy=f"Build for the device's level: adt build-target --for {bundle.platform} --api-level "
            f"{level}",
        )
    if facts.page_size is not None and bundle.page_alignment < facts.page_size:
        raise MismatchError(
            f"the bundle's files are aligned to pages of {bundle.page_alignment} bytes, device {serial} has "
            f"pages of {facts.page_size}",
            remedy=f"Build it again: adt build-target --for {bundle.platform} (with an NDK whose "
            "libc++_shared.so is aligned to 16 KiB: r28 or newer).",
        )


def check_fit(
    bundle: BundleManifest, package: PackageManifest | None, facts: DeviceFacts, *, serial: str
) -> None:
    check_device(bundle, facts, serial)
    if package is not None:
        check_pair(bundle, package)
        check_cpu(package, facts.cpu_features, f"device {serial}", "--like", serial)
