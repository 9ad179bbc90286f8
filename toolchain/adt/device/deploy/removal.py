"""Remove from a device what is no longer needed: decide (pure), then do it.

What is in use is never removed. A run or a server names its deployment in the name of its workspace or in a
file there, and a process may name it on its command line. While anything is being deployed the store stays as
it is: that deploy may count on any of its entries. And while this goes on, whoever comes anew waits (see
:mod:`adt.device.deploy.workspace`).
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from adt.device.deploy.payload import SCHEMA, user_directory
from adt.device.deploy.workspace import CLEANING, Agent, open_agent
from adt.device.device import Device
from adt.device.scripts import script
from adt.errors import DeviceError
from adt.host.document import form

BATCH = 200
"""Paths that one `rm` on the device gets."""
SLOW = 300.0
"""Seconds for listing or removing."""


@dataclass(frozen=True)
class StoredDeployment:
    """One manifest on the device."""

    file: str
    """Its name below ``deployments/``."""
    name: str
    """Name of the deployment; empty when the manifest cannot be read."""
    digest: str
    contents: frozenset[str]
    """Digests (sha256) of its files."""


@dataclass(frozen=True)
class Contents:
    """Content of a user's directory on a device."""

    records: tuple[StoredDeployment, ...]
    """The deployment that was used last comes first."""
    directories: frozenset[str]
    """Digests of the deployments that have one."""
    store: Mapping[str, int]
    """Bytes of each entry, by name."""
    used: frozenset[str]
    """Digests of deployments that something alive uses or is making."""
    deploying: int
    """Number of deploys under way."""
    dead: tuple[str, ...]
    """Workspaces whose holder is gone, relative to the user's directory."""


@dataclass(frozen=True)
class Removal:
    """Deployments and files to be removed."""

    records: tuple[StoredDeployment, ...]
    """Deployments."""
    directories: tuple[str, ...]
    """Digests of directories that no manifest names any more."""
    store: tuple[str, ...]
    """Entries that no deployment needs."""
    size: int
    """Bytes of these entries."""
    dead: tuple[str, ...]
    spared: tuple[StoredDeployment, ...]
    """Deployments that would go, too, if they were not in use."""

    @property
    def empty(self) -> bool:
        """There is nothing to remove."""
        return not (self.records or self.directories or self.store or self.dead)


@dataclass(frozen=True)
class CleanReport:
    """Result of a removal, or with ``applied=False`` of its rehearsal."""

    serial: str
    removed: tuple[str, ...]
    """Deployments, as ``name.digest``."""
    kept: tuple[str, ...]
    in_use: tuple[str, ...]
    """Deployments of *kept* that would have gone, had they not been in use."""
    files: int
    """Entries of the store."""
    size: int = field(metadata=form("bytes"))
    """Bytes of these."""
    leftovers: int
    """Workspaces of what was ended with the device."""
    deploying: int = field(metadata=form("deploys_under_way"))
    """Deploys under way; while there are any, the store stays as it is."""
    applied: bool


def parse_contents(text: str) -> Contents:
    """Read what the device listed."""
    spaces, _, rest = text.partition("==spaces==\n")[2].partition("==used==\n")
    used, _, rest = rest.partition("==manifests==\n")
    manifests, _, store = rest.rpartition("==store==\n")
    alive = re.findall(r"^alive (\S+)$", spaces, re.MULTILINE)
    marks = {found[1] for space in alive if (found := re.search(r"\.([0-9a-f]{24})$", space))}
    named = re.findall(r"(?:^|/deployments/)([0-9a-f]{24})(?=/|\s|$)", used, re.MULTILINE)
    directories = re.findall(r"^directory ([0-9a-f]{24})(?:$| (\d{1,18})?)", manifests, re.MULTILINE)
    turns = {digest: int(turn or 0) for digest, turn in directories}
    records = []
    for seconds, file, body in re.findall(
        r"^file (-?\d{1,18})?\S* ([^\s/]+)\n(.*?)\n==end==$", manifests, re.MULTILINE | re.DOTALL
    ):
        record = _stored_deployment(file, body)
        # the time of the host that sent it tells those apart that have no number
        records.append((turns.get(record.digest, 0), int(seconds or 0), record))
    records.sort(key=lambda row: row[:2], reverse=True)
    sizes = re.findall(r"^-\S+\s+\d+\s+\d+\s+\d+\s+(\d{1,18})\s.*\s([0-9a-f]{64})\r?$", store, re.MULTILINE)
    return Contents(
        records=tuple(record for *_, record in records),
        directories=frozenset(turns),
        store={name: int(size) for size, name in sizes},
        used=frozenset(marks | set(named)),
        deploying=sum(space.startswith("tmp/") for space in alive),
        dead=tuple(re.findall(r"^dead (\S+)$", spaces, re.MULTILINE)),
    )


def _stored_deployment(file: str, body: str) -> StoredDeployment:
    try:
        read = json.loads(body)
        if read["schema"] == SCHEMA and re.fullmatch(r"[0-9a-f]{24}", read["digest"]):
            contents = frozenset(str(facts["sha256"]) for facts in read["files"].values())
            return StoredDeployment(file, str(read["name"]), read["digest"], contents)
    except (ValueError, KeyError, TypeError, AttributeError):
        pass
    return StoredDeployment(file, "", "", frozenset())


def choose(contents: Contents, keep: int) -> Removal:
    """Decide what goes (pure): all but the *keep* deployments of each name that were used last.

    A manifest that cannot be read, or whose directory is gone, goes in any case: it is no deployment.
    """
    seen: dict[str, int] = {}
    remove, stay, spared = [], [], []
    for record in contents.records:
        whole = record.digest in contents.directories
        if whole and record.digest in contents.used:
            if seen.get(record.name, 0) >= keep:
                spared.append(record)
            stay.append(record)
        elif whole and seen.get(record.name, 0) < keep:
            stay.append(record)
        else:
            remove.append(record)
            continue
        seen[record.name] = seen.get(record.name, 0) + 1
    digests = {record.digest for record in stay} | contents.used
    needed = frozenset[str]().union(*(record.contents for record in stay))
    store = () if contents.deploying else tuple(sorted(name for name in contents.store if name not in needed))
    return Removal(
        records=tuple(remove),
        directories=tuple(sorted(contents.directories - digests)),
        store=store,
        size=sum(contents.store[name] for name in store),
        dead=contents.dead,
        spared=tuple(spared),
    )


def clean(device: Device, *, keep: int, user: str | None = None, dry_run: bool = False) -> CleanReport:
    """Remove old deployments of one user, all but the last used *keep* of each name, and what only they
    needed.

    Ended at any moment it leaves every deployment that still has its manifest whole.
    """
    base = user_directory(user)
    with open_agent(device, f"{base}/{CLEANING}", script("removal")) as agent:
        answer = agent.ask("list", timeout=device.allow(SLOW), doing=f"looking what is on {device.serial}")
        contents = parse_contents(answer.text)
        removal = choose(contents, keep)
        if not dry_run:
            # what names comes before what is named, so that no deployment is ever there in part
            _remove(agent, [f"deployments/{record.file}" for record in removal.records])
            _remove(agent, [f"deployments/{digest}" for digest in removal.directories])
            _remove(agent, [f"store/{name}" for name in removal.store])
            _remove(agent, removal.dead)
    removed = set(removal.records)
    return CleanReport(
        serial=device.serial,
        removed=tuple(record.file.removesuffix(".json") for record in removal.records),
        kept=tuple(r.file.removesuffix(".json") for r in contents.records if r not in removed),
        in_use=tuple(record.file.removesuffix(".json") for record in removal.spared),
        files=len(removal.store),
        size=removal.size,
        leftovers=len(removal.dead),
        deploying=contents.deploying,
        applied=not dry_run,
    )


def _remove(agent: Agent, paths: Sequence[str]) -> None:
    for at in range(0, len(paths), BATCH):
        answer = agent.ask(
            "remove",
            lines=paths[at : at + BATCH],
            timeout=agent.device.allow(SLOW),
            doing=f"cleaning {agent.device.serial}",
        )
        if answer.code != 0:
            raise DeviceError(
                f"not everything could be removed from {agent.device.serial}",
                remedy="Look at the permissions of /data/local/tmp/adt on the device (`adt adb -- shell "
                "ls -lR`).",
                details=answer.text[-2000:].strip(),
            )
