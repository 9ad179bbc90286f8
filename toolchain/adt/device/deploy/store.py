"""Put a bundle and a package on a device: plan (pure), then apply.

Below ``/data/local/tmp/adt/<user>`` on the device::

    store/<sha256>                    the bytes of every file, once, read-only and executable
    sealed-<boot id>                  which of them were hashed, and what ``stat`` said of them then
    deployments/<digest>/             one deployment: links into the store; `.used` numbers its last use
    deployments/<name>.<digest>.json  its manifest, written last: a deployment without one does not count
    tmp/                              what is on its way; gone when the connection that sends it is
    runs/                             working directories of runs

The links are symbolic: Android forbids its shell user hard links. One shell on the device does all that is
done there, asked over one connection; files and links go over a second one.

An entry of the store is hashed when it arrives. Later its inode, size and change time are compared with those
at that time, and it is hashed again only if they differ: nothing can write to a file, or put another one in
its place, and leave all three as they were. After a restart of the device everything is hashed once more,
because a device that loses its power may lose data that it has listed already.
"""

from __future__ import annotations

import io
import logging
import re
import tarfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from adt.bundle.bundle import TargetBundle
from adt.device.deploy.payload import Payload, PayloadFile, check_fit, payload_of, user_directory
from adt.device.deploy.workspace import Agent, Answer, open_agent
from adt.device.device import Device, no_room
from adt.device.scripts import script
from adt.device.survey import parse_free
from adt.device.transport.sync import Progress, PushItem
from adt.errors import DeviceError, DeviceFull, PackageError
from adt.host.cache import file_sha256
from adt.host.disk import size_text
from adt.host.document import form
from adt.host.transfers import observer
from adt.package.package import ModelPackage

log = logging.getLogger("adt.deploy")

DAMAGED = 3
"""Code that ``finish`` returns when a file arrived with other contents; its sha256 follows ``damaged``."""
NO_TAR = 5
"""Code that ``finish`` returns when nothing on the device unpacks an archive."""
NO_HASHER = 4
"""Code that ``hash`` and ``ready`` return when nothing on the device computes sha256."""


@dataclass(frozen=True)
class Inventory:
    """Files of a payload that are on a device already."""

    linked: frozenset[str] = frozenset()
    """Names of the deployment whose links are in place."""
    stats: Mapping[str, str] = field(default_factory=dict)
    """Entries of the store that the payload needs: name and what ``stat`` says of them."""
    sealed: frozenset[str] = frozenset()
    """Results of ``stat`` for entries when they were hashed and right."""
    manifest: str = ""
    """Text of the deployment's manifest; empty when there is none."""
    hashes: Mapping[str, str] = field(default_factory=dict)
    """Entries of the store that the payload needs: name and the sha256 of what is really in it; empty until
    :func:`inspect` has asked."""

    @property
    def doubtful(self) -> tuple[str, ...]:
        """Entries that are not, to fractions of a second, as they were when they were last hashed."""
        return tuple(name for name, stat in self.stats.items() if "." not in stat or stat not in self.sealed)


@dataclass(frozen=True)
class DeployPlan:
    payload: Payload
    send: tuple[PayloadFile, ...]
    """To be sent, each content once."""
    reuse: tuple[PayloadFile, ...]
    """On the device already, intact."""
    damaged: tuple[PayloadFile, ...]
    """Files of *send* that are on the device with wrong contents."""
    relink: bool
    """Links are missing or lead elsewhere."""
    complete: bool

    @property
    def send_bytes(self) -> int:
        return sum(file.size for file in self.send)


@dataclass(frozen=True)
class Deployment:
    """A complete deployment on a device."""

    serial: str
    name: str
    digest: str
    base: str

    @property
    def directory(self) -> str:
        """The directory with ``bin/``, ``lib/`` and ``model/``."""
        return f"{self.base}/deployments/{self.digest}"

    @property
    def manifest(self) -> str:
        return f"{self.base}/deployments/{self.name}.{self.digest}.json"


@dataclass(frozen=True)
class DeployReport:
    """Result of a deploy, or with ``applied=False`` of its rehearsal."""

    deployment: Deployment = field(metadata=form(convert=lambda deployment: deployment.directory))
    sent_bytes: int
    sent_files: tuple[str, ...]
    reused_files: tuple[str, ...]
    mended_files: tuple[str, ...]
    """Files of *sent_files* whose copy on the device was damaged."""
    free: int | None = field(metadata=form("free_bytes"))
    """Bytes that were left on the device before; None when it did not say, or nothing had to be sent."""
    applied: bool = True


def joined(reports: Sequence[DeployReport]) -> DeployReport:
    """Return what *reports* say together, with the deployment of the last."""
    return replace(
        reports[-1],
        sent_bytes=sum(report.sent_bytes for report in reports),
        free=next((report.free for report in reports if report.free is not None), None),
        sent_files=tuple(name for report in reports for name in report.sent_files),
        reused_files=tuple(name for report in reports for name in report.reused_files),
        mended_files=tuple(name for report in reports for name in report.mended_files),
    )


def plan_deploy(payload: Payload, inventory: Inventory) -> DeployPlan:
    """Decide what to send (pure)."""
    by_content = {file.sha256: file for file in payload.files}
    send = tuple(file for key, file in by_content.items() if inventory.hashes.get(key) != key)
    sent = {file.sha256 for file in send}
    relink = not inventory.linked >= {file.name for file in payload.files}
    return DeployPlan(
        payload=payload,
        send=send,
        reuse=tuple(file for file in payload.files if file.sha256 not in sent),
        damaged=tuple(file for file in send if file.sha256 in inventory.hashes),
        relink=relink,
        complete=not send and not relink and inventory.manifest == payload.manifest,
    )


def parse_inventory(text: str, payload: Payload) -> Inventory:
    """Read the answer to ``look`` about *payload*; nothing is hashed yet."""
    links, _, rest = text.partition("==links==\n")[2].partition("==stats==\n")
    stats, _, rest = rest.partition("==sealed==\n")
    sealed, _, manifest = rest.partition("==manifest==\n")
    count = len(payload.files)  # the shell counts down to 0
    matches = re.findall(r"^(([0-9a-f]{64}) \d+ \d+ .+?)\r?$", stats, re.MULTILINE)
    return Inventory(
        linked=frozenset(payload.files[count - 1 - int(left)].name for left in links.split()),
        stats={name: facts for facts, name in matches},
        sealed=frozenset(sealed.splitlines()),
        manifest=manifest,
    )


def parse_sums(text: str) -> dict[str, str]:
    """Parse the output of the device's sha256sum into name and sha256 of each store entry."""
    matches = re.findall(r"^([0-9a-f]{64}) [ *]([0-9a-f]{64})\r?$", text, re.MULTILINE)
    return {name: actual for actual, name in matches}


def inspect(agent: Agent, payload: Payload, base: str, *, full_hash: bool) -> Inventory:
    """Ask the device what it has of *payload*; with *full_hash* it hashes every file, unchanged or not."""
    serial = agent.device.serial
    rows = [f"{file.sha256} {file.name}" for file in payload.files]
    doing = f"looking what is on {serial}"
    answer = agent.ask("look", base, payload.name, payload.digest, lines=rows, doing=doing)
    if answer.code != 0:
        raise _unexpected(serial, doing, answer)
    inventory = parse_inventory(answer.text, payload)
    doubtful = tuple(inventory.stats) if full_hash else inventory.doubtful
    hashes = {name: name for name in inventory.stats if name not in doubtful}
    if doubtful:
        files = [file for file in payload.files if file.sha256 in doubtful]
        limit = agent.device.allow(_budget(files))
        answer = agent.ask("hash", lines=doubtful, timeout=limit, doing=f"hashing what is on {serial}")
        if answer.code == NO_HASHER:
            raise _no_hasher(serial)
        sums = parse_sums(answer.text)
        hashes |= {name: sums.get(name, "") for name in doubtful}
        right = [inventory.stats[name] for name in doubtful if sums.get(name) == name]
        agent.ask("seal", lines=[facts for facts in right if facts not in inventory.sealed])
    return replace(inventory, hashes=hashes)


def _budget(files: Iterable[PayloadFile]) -> float:
    """Return the seconds in which the bytes of *files* must have been handled once; generous."""
    return 120.0 + sum(file.size for file in files) / 500e3


def _no_hasher(serial: str) -> DeviceError:
    return DeviceError(
        f"device {serial} has no sha256sum, not in toybox or busybox either",
        remedy="Put a busybox for the device's ABI on its PATH; adt verifies everything it deploys.",
    )


def _unexpected(serial: str, doing: str, answer: Answer) -> DeviceError:
    return DeviceError(
        f"{doing} failed on {serial} (exit code {answer.code})",
        remedy="Read the device's own message above; run again with -v to see every step.",
        details=answer.text[-2000:].strip(),
    )


def apply(
    agent: Agent, plan: DeployPlan, base: str, *, progress: Progress | None, dry_run: bool
) -> DeployReport:
    """Send what *plan* says, have it hashed on the device, and only then let it count.

    A failure or a kill at any moment leaves every earlier deployment as it was; DeviceFull comes before
    anything is lost. With *dry_run* only the free room is asked for.
    """
    payload, serial = plan.payload, agent.device.serial
    free: int | None = None
    for file in plan.damaged:
        log.warning("%s on %s is damaged; sending it again", file.name, serial)
    if not plan.complete:
        answer = agent.ask("ready")
        if answer.code == NO_HASHER:
            raise _no_hasher(serial)
        free = parse_free(answer.text)
        if free is not None and free < plan.send_bytes and not dry_run:
            raise _full(serial, plan, free)
        if not dry_run:
            _send(agent, plan, progress)
            _finish(agent, plan)
    elif not dry_run:
        agent.ask("used")
    return DeployReport(
        deployment=Deployment(serial, payload.name, payload.digest, base),
        sent_bytes=plan.send_bytes,
        sent_files=tuple(file.name for file in plan.send),
        reused_files=tuple(file.name for file in plan.reuse),
        mended_files=tuple(file.name for file in plan.damaged),
        free=free,
        applied=not dry_run,
    )


def _full(serial: str, plan: DeployPlan, free: int | None) -> DeviceFull:
    return no_room(serial, f"{plan.payload.name} needs {size_text(plan.send_bytes)} more", free=free)


def _send(agent: Agent, plan: DeployPlan, progress: Progress | None) -> None:
    payload, device, directory = plan.payload, agent.device, agent.path
    starts: dict[str, tuple[str, int]] = {}
    items, before = list[PushItem](), 0
    for file in plan.send:
        remote = f"{directory}/store/{file.sha256}"
        log.debug("push %s (%s)", file.name, size_text(file.size))
        items.append(PushItem(file.source, remote, mode=0o555))
        starts[remote] = (file.name, before)
        before += file.size
    if plan.relink:
        items.append(PushItem(links_archive(payload), f"{directory}/links.tar"))
    items.append(PushItem(payload.manifest.encode(), f"{directory}/manifest"))

    def report(remote: str, done: int, _size: int) -> None:
        if progress is not None and remote in starts:
            name, start = starts[remote]
            progress(name, start + done, plan.send_bytes)

    doing = f"deploying {payload.name} to {device.serial}"
    with device.sync(size=plan.send_bytes, doing=doing) as session:
        session.push_many(items, progress=report)


def links_archive(payload: Payload) -> bytes:
    """Pack the links of the deployment into a tar archive: one program on the device makes all of them.

    The shell unpacks it, because SELinux lets the shell make links and, on many phones, not the daemon.
    """
    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode="w", format=tarfile.GNU_FORMAT, errors="surrogateescape") as archive:
        for file in payload.files:
            link = tarfile.TarInfo(file.name)
            link.type, link.mode = tarfile.SYMTYPE, 0o777
            link.linkname = f"{'../' * (2 + file.name.count('/'))}store/{file.sha256}"
            archive.addfile(link)
    return data.getvalue()


def _finish(agent: Agent, plan: DeployPlan) -> None:
    serial, doing = agent.device.serial, f"deploying {plan.payload.name}"
    seconds = agent.device.allow(_budget(plan.send))
    answer = agent.ask("finish", str(len(plan.send)), timeout=seconds, doing=f"{doing} to {serial}")
    if answer.code == DAMAGED:
        raise _arrived_damaged(serial, plan, answer)
    if answer.code == NO_TAR and "No space left" not in answer.text:
        raise DeviceError(
            f"no program on {serial} unpacks the links of the deployment",
            remedy="Put a busybox for the device's ABI on its PATH; it brings tar.",
            details=answer.text[-2000:].strip(),
        )
    if answer.code != 0:
        if "No space left" in answer.text:
            raise _full(serial, plan, agent.device.free_space())
        raise _unexpected(serial, doing, answer)


def _arrived_damaged(serial: str, plan: DeployPlan, answer: Answer) -> DeviceError | PackageError:
    match = re.search(r"^damaged ([0-9a-f]{64})$", answer.text, re.MULTILINE)
    file = next((file for file in plan.send if match and file.sha256 == match[1]), plan.send[0])
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
    progress: Progress | None = None,
    dry_run: bool = False,
    full_hash: bool = False,
) -> DeployReport:
    """Bring *bundle* and *package* onto *device*, sending only what is not there.

    *progress* is called with a file's name in the deployment, and the payload bytes sent so far and in all.
    """
    progress = progress or observer.get()
    needs = package.manifest if package is not None else None
    check_fit(bundle.manifest, needs, device.facts, serial=device.serial)
    payload, base = payload_of(bundle, package), user_directory(user)
    # the shell that answers keeps the deployment's files from removal, too
    with open_agent(device, f"{base}/tmp", script("deploy"), uses=payload.digest) as agent:
        plan = plan_deploy(payload, inspect(agent, payload, base, full_hash=full_hash))
        return apply(agent, plan, base, progress=progress, dry_run=dry_run)
