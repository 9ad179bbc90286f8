"""A directory on the device that lives exactly as long as the connection that made it.

Each one has a holder: a shell on the device that waits on its standard input and removes the directory when
that ends, be it because we are done or because adt was killed. Directories whose holder is gone too (the
device restarted) are removed by whoever makes the next one. Two users of one device never share one.

While it lives the directory is also a mark that others see. One below ``clean/`` says that things are being
removed: every other holder waits, once its own mark is set, until that is over. One whose name ends in a
deployment's digest says that this deployment is in use. As each side sets its own mark before it looks for
the other's, at least one of two sees the other.

:func:`clean` removes what no deployment needs, and never what is in use. A run or a server names its
deployment in the name of its workspace or in a file there, and a process may name it on its command line.
While anything is being deployed the store stays as it is: that deploy may count on any of its entries.
"""

from __future__ import annotations

import contextlib
import json
import re
import secrets
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from adt.device.deploy.payload import SCHEMA, user_directory
from adt.device.device import Device, no_room
from adt.device.scripts import script
from adt.device.survey import TEMP
from adt.device.transport.deadline import SHORT, Deadline
from adt.device.transport.shell import STDERR, STDOUT, RemoteCommand
from adt.errors import AdtError, DeviceError
from adt.host.document import form

CLEANING = "clean"
"""Name of the directory, beside those of other workspaces, for the workspaces of what removes things."""

LINKER = re.compile(rb"^WARNING: linker: .*\n", re.MULTILINE)
"""Messages of Android's dynamic linker at each start of a program, such as that it has no configuration."""


@dataclass(frozen=True)
class Answer:
    code: int
    """Code that the request's function returned; 0 is success."""
    text: str
    """All that it printed, on either stream."""


class Agent:
    """A workspace whose holder also answers requests; see :func:`open_agent`."""

    def __init__(
        self, device: Device, path: str, tag: str, holder: RemoteCommand, events: Iterator[tuple[int, bytes]]
    ) -> None:
        self.device = device
        self.path = path
        """The workspace's directory on the device."""
        self._tag = tag
        self._holder = holder
        self._events = events

    def ask(
        self, *words: str, lines: Sequence[str] = (), timeout: float | None = None, doing: str = ""
    ) -> Answer:
        """Have the script's function ``serve`` called with *words* (no spaces), and return its answer.

        It reads *lines* from descriptor 3, one line each; their number is its last word.
        """
        request = " ".join((*words, str(len(lines))))
        seconds = timeout or self.device.allow(SHORT)
        self._holder.set_deadline(Deadline(seconds, doing or f"asking {self.device.serial}"))
        data = "".join(f"{line}\n" for line in (request, *lines)).encode(errors="surrogateescape")
        for at in range(0, len(data), 1 << 15):
            self._holder.write(data[at : at + (1 << 15)])
        end = f"{self._tag} ".encode()
        output = bytearray()
        while True:
            head, mark, tail = bytes(output).rpartition(end)
            if mark and tail.endswith(b"\n") and tail.strip().isdigit():
                text = LINKER.sub(b"", head).decode(errors="surrogateescape")
                return Answer(int(tail), text)
            event = next(self._events, None)
            if event is None:
                raise DeviceError(
                    f"the shell on {self.device.serial} ended while {doing or 'it was asked'}",
                    remedy="Run the same command again; what was complete on the device is still there.",
                    details=output.decode(errors="replace")[-2000:],
                )
            output += event[1]


@contextlib.contextmanager
def workspace(device: Device, parent: str, *, uses: str = "") -> Iterator[str]:
    """Make a directory below *parent* on the device for as long as the block runs; yield its absolute path.

    The deployment with the digest *uses* is not removed meanwhile, if it is there when this returns.
    """
    with open_agent(device, parent, script("hold"), uses=uses) as agent:
        yield agent.path


@contextlib.contextmanager
def open_agent(device: Device, parent: str, program: str, *, uses: str = "") -> Iterator[Agent]:
    """Make a workspace whose holder answers requests: one connection for all that a task needs.

    *program* includes ``workspace.sh`` and ``serve.sh``, and between them defines the shell function
    ``serve``, which finds the workspace in ``$dir`` and changes the working directory in a subshell only.
    """
    tag = f"adt{secrets.token_hex(8)}{'.' * bool(uses)}{uses}"
    argv = ("sh", "-c", program, "sh", parent, tag)
    with device.start(argv, timeout=device.allow(SHORT), keep_stdin=True, inline=True) as holder:
        events = holder.output()
        farewell = b""
        try:
            path = _path_of(device, parent, events)
            yield Agent(device, path, tag, holder, events)
            farewell = b"bye\n"
        finally:
            # the device is gone: so is the directory, at the latest next time
            with contextlib.suppress(AdtError):
                doing = f"removing a directory below {parent} on {device.serial}"
                holder.set_deadline(Deadline(SHORT, doing))
                if farewell:
                    holder.write(farewell)
                elif not holder.close_stdin():
                    holder.kill()
                for _ in events:
                    pass


def _path_of(device: Device, parent: str, events: Iterator[tuple[int, bytes]]) -> str:
    """Read the new directory's path, the first line of the holder's output."""
    output = {STDOUT: b"", STDERR: b""}
    for stream, data in events:
        output[stream] += data
        if b"\n" in output[STDOUT]:
            return output[STDOUT].decode().rstrip("\n")
    message = output[STDERR].decode(errors="replace").strip()
    if "No space left" in message:
        raise no_room(device.serial, "there is no room for a directory", free=device.free_space())
    raise DeviceError(
        f"device {device.serial} does not let us make a directory in {parent}",
        remedy="Look at the permissions of /data/local/tmp/adt on the device (`adt adb -- shell ls -ld`).",
        details=message,
    )


AWAKE = f"{TEMP}/adt/.awake"
"""Directory where everybody who holds the device has a mark, whoever they are, and the former value lies."""


@contextlib.contextmanager
def awake(device: Device) -> Iterator[None]:
    """Hold *device* awake for as long as the block runs."""
    with open_agent(device, AWAKE, script("awake")):
        yield


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
    dead: tuple[str, ...]
    """Workspaces whose holder is gone, relative to the user's directory."""


@dataclass(frozen=True)
class Removal:
    records: tuple[StoredDeployment, ...]
    directories: tuple[str, ...]
    """Digests of directories that no manifest names any more."""
    store: tuple[str, ...]
    """Entries that no deployment needs."""
    size: int
    """Bytes of these entries."""
    spared: tuple[StoredDeployment, ...]
    """Deployments that would go, too, if they were not in use."""


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
    size: int = field(metadata=form("bytes"))
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
    rows = r"^file (-?\d{1,18})?\S* ([^\s/]+)\n(.*?)\n==end==$"
    for seconds, file, body in re.findall(rows, manifests, re.MULTILINE | re.DOTALL):
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
    seen = Counter[str]()
    remove, stay, spared = [], [], []
    for record in contents.records:
        surplus, used = seen[record.name] >= keep, record.digest in contents.used
        if record.digest not in contents.directories or (surplus and not used):
            remove.append(record)
            continue
        stay.append(record)
        if surplus:
            spared.append(record)
        seen[record.name] += 1
    digests = {record.digest for record in stay} | contents.used
    needed = frozenset[str]().union(*(record.contents for record in stay))
    store = () if contents.deploying else tuple(sorted(name for name in contents.store if name not in needed))
    return Removal(
        records=tuple(remove),
        directories=tuple(sorted(contents.directories - digests)),
        store=store,
        size=sum(contents.store[name] for name in store),
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
            _remove(agent, contents.dead)
    removed = set(removal.records)
    return CleanReport(
        serial=device.serial,
        removed=tuple(record.file.removesuffix(".json") for record in removal.records),
        kept=tuple(r.file.removesuffix(".json") for r in contents.records if r not in removed),
        in_use=tuple(record.file.removesuffix(".json") for record in removal.spared),
        files=len(removal.store),
        size=removal.size,
        leftovers=len(contents.dead),
        deploying=contents.deploying,
        applied=not dry_run,
    )


def _remove(agent: Agent, paths: Sequence[str]) -> None:
    limit, doing = agent.device.allow(SLOW), f"cleaning {agent.device.serial}"
    for at in range(0, len(paths), BATCH):
        answer = agent.ask("remove", lines=paths[at : at + BATCH], timeout=limit, doing=doing)
        if answer.code != 0:
            raise DeviceError(
                f"not everything could be removed from {agent.device.serial}",
                remedy="Look at the permissions of /data/local/tmp/adt on the device (`adt adb -- shell "
                "ls -lR`).",
                details=answer.text[-2000:].strip(),
            )
