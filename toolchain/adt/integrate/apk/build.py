"""Make the APK: link the manifest, write the archive, sign it, check it."""

from __future__ import annotations

import logging
import re
import shutil
import struct
import zipfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from adt.bundle.platforms import BIG_PAGE
from adt.errors import AdtError, BuildError, ConfigError
from adt.host import process
from adt.host.cache import fresh_file
from adt.host.disk import scratch_directory
from adt.host.ndk import ApkTools
from adt.integrate.apk.entries import WORD, ApkEntry
from adt.integrate.apk.keystore import KEY_PASSWORD, STORE_PASSWORD, Keystore
from adt.integrate.apk.manifest import link_manifest

EARLIEST = (1980, 1, 1, 0, 0, 0)
"""Time of every file: the same contents give the same archive."""
LOCAL_HEADER = 30
"""Bytes of a file's header, before its name and extra field."""
ALIGNMENT_FIELD = 0xD935
"""Extra field that says what a file is aligned to; apksigner aligns it so again when it moves it."""
FIELD = struct.Struct("<HHH")
"""Its header, its size, the alignment; zeros follow."""
READABLE = 0o100644 << 16


def write_archive(entries: Iterable[ApkEntry], path: Path) -> None:
    """Write *entries* to *path*, in order, each stored as it is and aligned as it says."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_STORED) as archive:
        for entry in entries:
            member = zipfile.ZipInfo(entry.name, EARLIEST)
            member.external_attr = READABLE
            assert archive.fp is not None
            begin = archive.fp.tell() + LOCAL_HEADER + len(entry.name.encode())
            member.extra = _padding(begin, entry.alignment)
            if isinstance(entry.contents, bytes):
                archive.writestr(member, entry.contents)
            else:
                member.file_size = entry.contents.stat().st_size
                with entry.contents.open("rb") as source, archive.open(member, "w") as target:
                    shutil.copyfileobj(source, target, 1 << 20)


def _padding(begin: int, alignment: int) -> bytes:
    """Return the extra field after which *begin* bytes and itself end at a multiple of *alignment*."""
    field = FIELD.pack(ALIGNMENT_FIELD, FIELD.size - 4 + -(begin + FIELD.size) % alignment, alignment)
    return field + bytes(-(begin + FIELD.size) % alignment)


log = logging.getLogger("adt.apk")

JAR_SIGNATURES_UNTIL = 23
"""The last API level that knows only the old signatures of single files (v1)."""


def sign(unsigned: Path, signed: Path, keystore: Keystore, tools: ApkTools, *, min_sdk: int) -> None:
    """Write *unsigned* to *signed*, with every signature that Android from *min_sdk* on looks for."""
    words = ["--ks-pass", f"env:{STORE_PASSWORD}", "--key-pass", f"env:{KEY_PASSWORD}"]
    words += ["--ks-key-alias", keystore.alias] if keystore.alias else []
    words += ["--v1-signing-enabled", str(min_sdk <= JAR_SIGNATURES_UNTIL).lower()]
    words += ["--v4-signing-enabled", "false"]
    done = process.run(
        [tools.apksigner, "sign", "--ks", keystore.path, *words, "--in", unsigned, "--out", signed],
        env=keystore.environment,
        check=False,
    )
    if done.returncode != 0:
        raise _explain(done, keystore)


def _explain(done: process.Finished, keystore: Keystore) -> AdtError:
    output = f"{done.stdout}{done.stderr}".strip()
    log.debug("apksigner: %s", output)  # a Java stack, which says less than the errors below
    choose = f"Choose one with --key-alias; keytool -list -keystore {keystore.path} shows them."
    if "Wrong password" in output:  # the store was opened: it is the key's
        return ConfigError(
            f"the password of the key in {keystore.path} is wrong",
            remedy=f"Put the key's own password into {KEY_PASSWORD}; without it the keystore's is taken.",
        )
    if re.search("password was incorrect|password verification failed", output, re.IGNORECASE):
        return ConfigError(
            f"the password of {keystore.path} is wrong",
            remedy=f"Check {STORE_PASSWORD}, or the file of --keystore-password-file:"
            f" keytool -list -keystore {keystore.path} asks for it.",
        )
    if "multiple key entries" in output:
        return ConfigError(f"{keystore.path} has several keys", remedy=choose)
    if re.search("does not contain (a key|key entries)", output):
        named = f" {keystore.alias!r}" if keystore.alias else ""
        return ConfigError(f"{keystore.path} has no key{named}", remedy=choose)
    if "Failed to load signer" in output:
        return ConfigError(
            f"{keystore.path} is no keystore that Java can read, or is damaged",
            remedy="Name a JKS or PKCS #12 file with --keystore.",
        )
    return process.failure(
        done,
        error=BuildError,
        what="apksigner cannot sign the APK",
        remedy="Read its own message above. It runs on Java: apt-get install default-jre-headless.",
    )


def check(apk: Path, tools: ApkTools, *, min_sdk: int) -> tuple[str, ...]:
    """Have apksigner verify *apk* and look where files lie; return the signature schemes (``v2``, ``v3``)."""
    done = process.run(
        # from a level on that looks for v2, which newer ones pass over: it must be right, too
        [tools.apksigner, "verify", "--verbose", "--min-sdk-version", str(min(min_sdk, 24)), apk],
        error=BuildError,
        what="the signature of the APK is not valid",
        remedy="Make the APK again; if it stays so, use the apksigner of another SDK (--sdk).",
    )
    if wrong := misplaced(apk):
        raise BuildError(
            f"{wrong[0]} is not stored where Android can map it",
            remedy="Use the apksigner of another SDK (--sdk): this one moved the file.",
            details="\n".join(wrong),
        )
    return tuple(re.findall(r"^Verified using (v[\d.]+) scheme .*: true$", done.stdout, re.MULTILINE))


def misplaced(apk: Path) -> tuple[str, ...]:
    """Return the names of the uncompressed files of *apk* that do not begin where Android maps them:
    libraries at a multiple of 16 KB, the others of 4 bytes; and of libraries that are compressed."""
    wrong = []
    with zipfile.ZipFile(apk) as archive, apk.open("rb") as file:
        for member in archive.infolist():
            library = member.filename.startswith("lib/")
            if member.compress_type != zipfile.ZIP_STORED:
                wrong += [member.filename] if library else []
                continue
            file.seek(member.header_offset + LOCAL_HEADER - 4)
            name, extra = struct.unpack("<HH", file.read(4))
            begin = member.header_offset + LOCAL_HEADER + name + extra
            if begin % (BIG_PAGE if library else WORD):
                wrong.append(member.filename)
    return tuple(wrong)


@dataclass(frozen=True)
class BuiltApk:
    path: Path
    size: int
    """Bytes."""
    schemes: tuple[str, ...]
    """Its signatures: ``v2``, ``v3``."""


def build_apk(
    manifest: str,
    entries: Sequence[ApkEntry],
    out: Path,
    *,
    min_sdk: int,
    tools: ApkTools,
    keystore: Keystore,
) -> BuiltApk:
    """Write the APK of *manifest* and *entries* to *out*, complete and checked or not at all; equal parts,
    equal bytes."""
    with fresh_file(out) as fresh, scratch_directory("apk", beside=out) as scratch:
        linked = link_manifest(manifest, tools, scratch)
        unsigned = scratch / "unsigned.apk"  # beside *out*: models may be larger than /tmp
        write_archive((*linked, *entries), unsigned)
        sign(unsigned, fresh, keystore, tools, min_sdk=min_sdk)
        return BuiltApk(out, fresh.stat().st_size, check(fresh, tools, min_sdk=min_sdk))
