"""Put a bundle and a package on a device: plan (pure), then apply.

Below ``/data/local/tmp/adt/<user>`` on the device::

    store/<sha256>             the bytes of every file, once, read-only and executable
    deployments/<digest>/      the files of one deployment under their names: links into the store
    deployments/<name>.json    its manifest, written last: a deployment without one does not count
    tmp/                       what is on its way; gone when the connection that sends it is
    runs/                      working directories of runs

The links are symbolic: Android forbids its shell user hard links. What is
there is found out by one command that hashes it, so damage is seen and mended.
"""

from __future__ import annotations

import getpass
import hashlib
import json
import logging
import os
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from adt.device import sync
from adt.device.device import TEMP, Device
from adt.device.fit import check_fit
from adt.device.room import no_room, parse_free, size_text
from adt.device.shell import Completed, failure
from adt.device.workspace import workspace
from adt.errors import DeviceError, DeviceFull, PackageError
from adt.host.cache import file_sha256
from adt.model.package import ModelPackage
from adt.target.bundle import TargetBundle

log = logging.getLogger("adt.deploy")

SCHEMA = "adt.deployment"
SCHEMA_VERSION = 1

DeployProgress = Callable[[str, int, int], None]
"""Called with the file's name in the deployment, payload bytes sent so far, and how many there are in all."""

_INSPECT = """
base=$1 name=$2 view=$1/deployments/$3
shift 3
hasher=
for h in sha256sum 'toybox sha256sum' 'busybox sha256sum'; do
  case $($h </dev/null 2>/dev/null) in e3b0c44298fc1c14*) hasher=$h; break;; esac
done
echo "$hasher"
echo ==df==
df -k /data/local/tmp 2>/dev/null
echo ==links==
n=$#
while [ $n -gt 0 ]; do
  p=$1 s=$2
  shift 2
  n=$((n-2))
  [ "$view/$p" -ef "$base/store/$s" ] && echo "$n"
  [ -f "$base/store/$s" ] && set -- "$@" "$s"
done
echo ==hashes==
[ -n "$hasher" ] && [ $# -gt 0 ] && cd "$base/store" && $hasher "$@"
echo ==manifest==
cat "$base/deployments/$name.json" 2>/dev/null
exit 0
"""

_FINISH = """
umask 022
base=$1 from=$2 digest=$3 name=$4 hasher=$5
shift 5
mkdir -p "$base/store" "$base/deployments/$digest" || exit 1
if [ -d "$from/store" ]; then
  cd "$from/store" || exit 1
  sums=$($hasher *) || exit 1
  echo "$sums" | while read -r sum file; do
    [ "$sum" = "${file#[*]}" ] || { echo "${file#[*]}"; exit 3; }
  done || exit $?
  chmod 555 * || exit 1
  mv -f * "$base/store/" || exit 1
fi
while [ $# -gt 0 ]; do
  link=$base/deployments/$digest/$1
  if ! [ "$link" -ef "$base/store/$2" ]; then
    [ -d "${link%/*}" ] || mkdir -p "${link%/*}" || exit 1
    ln -sfn "$3" "$link" || exit 1
  fi
  shift 3
done
mv -f "$from/deployment.json" "$base/deployments/$name.json"
"""
DAMAGED = 3
"""Exit code of _FINISH when a file arrived with other contents; its name is on stdout."""


@dataclass(frozen=True)
class PayloadFile:
    """One file of a deployment."""

    name: str
    """Where it appears in the deployment, e.g. ``lib/libtvm_runtime.so``."""
    source: Path
    """Where it is on this machine."""
    sha256: str
    size: int
    """Bytes."""


@dataclass(frozen=True)
class Payload:
    """What a deployment consists of, before it meets a device."""

    name: str
    """Name of the deployment, from the package."""
    platform: str
    files: tuple[PayloadFile, ...]

    @property
    def digest(self) -> str:
        """Names the exact set of files: equal payloads are one directory on the device."""
        rows = sorted(f"{file.sha256} {file.name}" for file in self.files)
        return hashlib.sha256("\n".join(rows).encode()).hexdigest()[:24]

    @property
    def manifest(self) -> str:
        """The deployment's manifest; the same for the same payload."""
        return (
            json.dumps(
                {
                    "schema": SCHEMA,
                    "schema_version": SCHEMA_VERSION,
                    "name": self.name,
                    "platform": self.platform,
                    "digest": self.digest,
                    "files": {file.name: {"sha256": file.sha256, "size": file.size} for file in self.files},
                },
                indent=1,
                sort_keys=True,
            )
            + "\n"
        )


@dataclass(frozen=True)
class Inventory:
    """What of a payload is on a device already."""

    hasher: str
    """The device's command that prints sha256 sums."""
    free: int | None
    """Bytes left; None when the device does not say."""
    hashes: Mapping[str, str]
    """Entries of the store that the payload needs: name and the sha256 of what is really in it."""
    linked: frozenset[str]
    """Names of the deployment whose links are in place."""
    manifest: str
    """Text of the deployment's manifest; empty when there is none."""


@dataclass(frozen=True)
class Plan:
    """What :func:`apply` is going to do."""

    payload: Payload
    send: tuple[PayloadFile, ...]
    """To be sent, each content once."""
    reuse: tuple[PayloadFile, ...]
    """On the device already, intact."""
    damaged: tuple[PayloadFile, ...]
    """Those of *send* that are on the device with wrong contents."""
    complete: bool
    """There is nothing to do at all."""
    hasher: str
    free: int | None

    @property
    def send_bytes(self) -> int:
        """Payload bytes to be sent."""
        return sum(file.size for file in self.send)


@dataclass(frozen=True)
class Deployment:
    """A complete deployment on a device."""

    serial: str
    name: str
    digest: str
    base: str
    """This user's directory on the device."""

    @property
    def directory(self) -> str:
        """The directory with ``bin/``, ``lib/`` and ``model/``."""
        return f"{self.base}/deployments/{self.digest}"


@dataclass(frozen=True)
class DeployReport:
    """What a deploy did."""

    deployment: Deployment
    sent_bytes: int
    """Payload bytes that went over the wire."""
    sent_files: tuple[str, ...]
    reused_files: tuple[str, ...]
    """Files that were on the device already."""
    mended_files: tuple[str, ...]
    """Those of *sent_files* whose copy on the device was damaged."""


def user_directory(user: str | None = None) -> str:
    """Our directory on a device; users who share a device keep apart.

    Args:
        user: None for the user who runs adt.
    """
    if user is None:
        try:
            user = getpass.getuser()
        except (KeyError, OSError):  # no USER in the environment and no entry in the user database
            user = f"uid{os.getuid()}"
    safe = re.sub(r"[^A-Za-z0-9_-]", "_", user) or "user"
    return f"{TEMP}/adt/{safe}"


def _safe_name(name: str) -> str:
    """*name* if it is a plain relative path.

    Raises:
        PackageError: it would leave the deployment's directory.
    """
    path = PurePosixPath(name)
    if (
        path.is_absolute()
        or ".." in path.parts
        or str(path) != name
        or not name
        or re.search(r"[\0-\x1f]", name)
    ):
        raise PackageError(
            f"a manifest names the file {name!r}, which is not a plain relative path",
            remedy="Do not use this bundle or package; make it again.",
        )
    return name


def payload_of(bundle: TargetBundle, package: ModelPackage | None) -> Payload:
    """The files of a deployment: the bundle's under their names, the package's under ``model/``.

    Raises:
        PackageError: a manifest names a file outside its directory.
    """
    files = [
        PayloadFile(_safe_name(name), bundle.file(name), facts.sha256, facts.size)
        for name, facts in sorted(bundle.manifest.files.items())
    ]
    name = f"bundle-{bundle.manifest.preset}"
    if package is not None:
        name = package.manifest.name
        for file in package.files:
            facts = package.manifest.files.get(file.name)  # mod.json cannot describe itself
            sha256, size = (facts.sha256, facts.size) if facts else (file_sha256(file), file.stat().st_size)
            files.append(PayloadFile(f"model/{file.name}", file, sha256, size))
    return Payload(re.sub(r"[^A-Za-z0-9_-]", "_", name) or "model", bundle.manifest.platform, tuple(files))


def plan(payload: Payload, inventory: Inventory) -> Plan:
    """Decide what to send (pure)."""
    by_content = {file.sha256: file for file in payload.files}
    send = tuple(file for key, file in by_content.items() if inventory.hashes.get(key) != key)
    sent = {file.sha256 for file in send}
    reuse = tuple(file for file in payload.files if file.sha256 not in sent)
    return Plan(
        payload=payload,
        send=send,
        reuse=reuse,
        damaged=tuple(file for file in send if file.sha256 in inventory.hashes),
        complete=not send
        and inventory.manifest == payload.manifest
        and inventory.linked >= {file.name for file in payload.files},
        hasher=inventory.hasher,
        free=inventory.free,
    )


def parse_inventory(text: str, payload: Payload) -> Inventory:
    """Read what the inspecting command printed about *payload*."""
    hasher, _, rest = text.partition("==df==\n")
    df, _, rest = rest.partition("==links==\n")
    links, _, rest = rest.partition("==hashes==\n")
    sums, _, manifest = rest.partition("==manifest==\n")
    count = len(payload.files)  # the command counts down by two for each file
    linked = (payload.files[count - 1 - int(left) // 2].name for left in links.split())
    found = re.findall(r"^([0-9a-f]{64}) [ *]([0-9a-f]{64})\r?$", sums, re.MULTILINE)
    return Inventory(
        hasher=hasher.strip(),
        free=parse_free(df),
        hashes={name: actual for actual, name in found},
        linked=frozenset(linked),
        manifest=manifest,
    )


def inspect(device: Device, payload: Payload, base: str, *, timeout: float | None = None) -> Inventory:
    """Ask the device what of *payload* it has, in one command.

    Raises:
        DeviceError: it has no program that computes sha256.
    """
    pairs = [word for file in payload.files for word in (file.name, file.sha256)]
    done = device.script(
        _INSPECT,
        base,
        payload.name,
        payload.digest,
        *pairs,
        timeout=timeout or _budget(payload.files),
        doing=f"hashing what is on {device.serial}",
        what=f"looking what is on {device.serial} failed",
    )
    found = parse_inventory(done.out, payload)
    if not found.hasher:
        raise DeviceError(
            f"device {device.serial} has no sha256sum, not in toybox or busybox either",
            remedy="Put a busybox for the device's ABI on its PATH; adt verifies everything it deploys.",
        )
    return found


def _budget(files: Iterable[PayloadFile]) -> float:
    """Seconds for something that handles the bytes of *files* once: generous, but an end."""
    return 120.0 + sum(file.size for file in files) / 500e3


def apply(
    device: Device,
    todo: Plan,
    base: str,
    *,
    progress: DeployProgress | None = None,
    timeout: float | None = None,
) -> DeployReport:
    """Send what *todo* says, have it hashed on the device, and only then let it count.

    A failure or a kill at any moment leaves every earlier deployment as it was.

    Raises:
        DeviceFull: it does not fit; nothing that was there is lost.
        DeviceError: the connection broke, or a file arrived damaged.
        PackageError: a file on this machine is not what its manifest says.
    """
    payload = todo.payload
    deployment = Deployment(device.serial, payload.name, payload.digest, base)
    for file in todo.damaged:
        log.warning("%s on %s is damaged; sending it again", file.name, device.serial)
    if not todo.complete:
        if todo.free is not None and todo.free < todo.send_bytes:
            raise _full(device.serial, todo)
        with workspace(device, f"{base}/tmp") as there:
            _send(device, todo, there, progress, timeout)
            _finish(device, todo, base, there, timeout)
    return DeployReport(
        deployment=deployment,
        sent_bytes=todo.send_bytes,
        sent_files=tuple(file.name for file in todo.send),
        reused_files=tuple(file.name for file in todo.reuse),
        mended_files=tuple(file.name for file in todo.damaged),
    )


def _full(serial: str, todo: Plan) -> DeviceFull:
    return no_room(serial, f"{todo.payload.name} needs {size_text(todo.send_bytes)} more", free=todo.free)


def _send(
    device: Device, todo: Plan, there: str, progress: DeployProgress | None, timeout: float | None
) -> None:
    total, before = todo.send_bytes, 0
    budget = timeout or _budget(todo.send)
    with device.sync(timeout=budget, doing=f"deploying {todo.payload.name} to {device.serial}") as session:
        for file in todo.send:
            report: sync.Progress | None = None
            if progress is not None:
                # bound now: the loop variables change before the last call
                def report(_: str, done: int, __: int, name: str = file.name, start: int = before) -> None:
                    progress(name, start + done, total)

            log.debug("push %s (%s)", file.name, size_text(file.size))
            session.push(file.source, f"{there}/store/{file.sha256}", mode=0o644, progress=report)
            before += file.size
        session.push_bytes(todo.payload.manifest.encode(), f"{there}/deployment.json")


def _finish(device: Device, todo: Plan, base: str, there: str, timeout: float | None) -> None:
    payload = todo.payload
    triples: list[str] = []
    for file in payload.files:
        up = "../" * (2 + file.name.count("/"))
        triples += [file.name, file.sha256, f"{up}store/{file.sha256}"]
    done = device.script(
        _FINISH,
        base,
        there,
        payload.digest,
        payload.name,
        todo.hasher,
        *triples,
        timeout=timeout or _budget(payload.files),
        check=False,
        doing=f"deploying {payload.name} to {device.serial}",
    )
    if done.exit_code == DAMAGED:
        raise _arrived_damaged(device.serial, todo, done)
    if done.exit_code != 0:
        if "No space left" in done.err:
            raise _full(device.serial, todo)
        raise failure(done, what=f"deploying {payload.name} to {device.serial} failed")


def _arrived_damaged(serial: str, todo: Plan, done: Completed) -> DeviceError | PackageError:
    file = next(file for file in todo.send if file.sha256 == done.out.strip())
    if file_sha256(file.source) != file.sha256:
        return PackageError(
            f"{file.source} is not the file that its manifest describes",
            remedy="It was changed after it was made; make it again (adt build-target, adt compile).",
        )
    return DeviceError(
        f"{file.name} arrived on {serial} with other contents",
        remedy="Try again; if it happens twice, change the cable or the USB port, or the device's storage "
        "is failing.",
    )


def deploy(
    device: Device,
    bundle: TargetBundle,
    package: ModelPackage | None,
    *,
    user: str | None = None,
    progress: DeployProgress | None = None,
    timeout: float | None = None,
) -> DeployReport:
    """Bring *bundle* and *package* onto *device*, sending only what is not there.

    Args:
        user: whose directory on the device; None for the user who runs adt.
        timeout: seconds for each step; None for a generous budget by size.

    Raises:
        MismatchError: they do not fit each other or the device; nothing was sent.
        DeviceFull, DeviceError, PackageError: see :func:`inspect` and :func:`apply`.
    """
    check_fit(
        bundle.manifest, package.manifest if package is not None else None, device.facts, serial=device.serial
    )
    payload, base = payload_of(bundle, package), user_directory(user)
    todo = plan(payload, inspect(device, payload, base, timeout=timeout))
    return apply(device, todo, base, progress=progress, timeout=timeout)
