"""An installable, signed APK of packages and bundles, without Gradle and without Java code.

It has, in order: the files besides the manifest, and a check that the libraries would load; the manifest, as
text and in Android's binary form; the key to sign with; the archive. No password is ever an argument of a
program, where all users of the machine could read it: it travels in the environment of the one that needs it.
"""

from __future__ import annotations

import hashlib
import logging
import re
import shutil
import struct
import zipfile
import zlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from adt import __version__
from adt.bundle.audit.auditing import audit
from adt.bundle.audit.binaries import Binary, Unreadable
from adt.bundle.audit.destination import destination
from adt.bundle.audit.report import ElfReport, table
from adt.bundle.bundle import TargetBundle
from adt.bundle.platforms import BIG_PAGE, platform_named
from adt.errors import AdtError, BuildError, ConfigError, InputError
from adt.host import cache, process
from adt.host.cache import fresh_file
from adt.host.directories import data_dir
from adt.host.disk import scratch_directory
from adt.host.ndk import ApkTools, Ndk
from adt.integrate import contents
from adt.integrate.android_versions import NEWEST
from adt.integrate.model_api import Project
from adt.integrate.names import NamePool
from adt.integrate.templates import render
from adt.limits import parse_json
from adt.package.files import PARAMS

WORD = 4
"""Bytes at which Android wants what it maps from an APK and is no library."""


@dataclass(frozen=True)
class ApkEntry:
    """One file of the APK, stored as it is, so that Android can map it."""

    name: str
    contents: Path | bytes
    alignment: int = WORD
    """Bytes: its place in the APK is a multiple of this."""


def apk_entries(project: Project, bench_plan: str) -> tuple[ApkEntry, ...]:
    """Return every file of the app of *project*, sorted by name."""
    entries = [ApkEntry(contents.BENCH_PLAN, bench_plan.encode()), ApkEntry(CLASSES_DEX, stub_dex())]
    for name, path in (contents.apk_files(project) | contents.benchmark_files(project)).items():
        mapped = name.startswith(contents.LIBRARIES) or name.endswith(f"/{PARAMS}")  # used where they lie
        entries.append(ApkEntry(name, path, BIG_PAGE if mapped else WORD))
    return tuple(sorted(entries, key=lambda entry: entry.name))


def audit_libraries(
    libraries: Sequence[Binary | Unreadable], bundle: TargetBundle, *, api_level: int, ndk: Ndk | None
) -> ElfReport:
    """Judge those of *libraries*, named as in the APK, that are for the ABI of *bundle*, from *api_level* on.

    Without an *ndk*, symbols of the system stay unchecked.
    """
    platform = platform_named(bundle.manifest.platform)
    judged = [
        library for library in libraries if library.name.startswith(f"{contents.LIBRARIES}{platform.abi}/")
    ]
    report = audit(judged, destination(platform, api_level=api_level, ndk=ndk))
    if report.refused:
        first = report.refused[0]
        raise BuildError(
            f"{first.name} would not load from the APK: {first.reasons[0].what}",
            remedy=first.reasons[0].remedy,
            details=table(report),
        )
    return report


CLASSES_DEX = "classes.dex"
_TYPES = ("Ladt/Stub;", "Ljava/lang/Object;")  # sorted, as the format wants
_PUBLIC_FINAL = 0x11
_NO_INDEX = 0xFFFFFFFF
_HEADER = struct.Struct("<8sI20s20I")
_LITTLE_ENDIAN = 0x12345678
# Types of the map's items.
_HEADER_ITEM, _STRING_IDS, _TYPE_IDS, _CLASS_DEFS, _MAP, _STRING_DATA = 0, 1, 2, 6, 0x1000, 0x2002


def stub_dex() -> bytes:
    """Return ``classes.dex``, version 035, of an app without code of its own: one class without methods.

    From targetSdkVersion 31 on, Android hands the libraries that a manifest names to the class loader of the
    app's code (``LoadedApk``, ``ApplicationLoaders``), so an app needs some to see the vendor's OpenCL. The
    format is https://source.android.com/docs/core/runtime/dex-format.
    """
    count = len(_TYPES)
    string_ids = _HEADER.size
    type_ids = string_ids + 4 * count
    class_defs = type_ids + 4 * count
    data = class_defs + 32
    texts = [bytes([len(text)]) + text.encode() + b"\0" for text in _TYPES]
    starts = [data + sum(map(len, texts[:index])) for index in range(count)]
    end = data + sum(map(len, texts))
    map_list = end + -end % 4
    sections = (
        (_HEADER_ITEM, 1, 0),
        (_STRING_IDS, count, string_ids),
        (_TYPE_IDS, count, type_ids),
        (_CLASS_DEFS, 1, class_defs),
        (_STRING_DATA, count, data),
        (_MAP, 1, map_list),
    )
    body = struct.pack(f"<{2 * count}I", *starts, *range(count))
    # class, access, superclass, interfaces, source file, annotations, members, values of static fields
    body += struct.pack("<8I", 0, _PUBLIC_FINAL, 1, 0, _NO_INDEX, 0, 0, 0)
    body += b"".join(texts) + bytes(-end % 4)
    body += struct.pack("<I", len(sections))
    body += b"".join(struct.pack("<HHII", kind, 0, *at) for kind, *at in sections)
    size = _HEADER.size + len(body)
    fields = [size, _HEADER.size, _LITTLE_ENDIAN, 0, 0, map_list, count, string_ids, count, type_ids]
    fields += [0, 0, 0, 0, 0, 0, 1, class_defs, size - data, data]  # no prototypes, fields or methods
    signed = struct.pack("<20I", *fields) + body
    summed = hashlib.sha1(signed, usedforsecurity=False).digest() + signed
    return b"dex\n035\0" + struct.pack("<I", zlib.adler32(summed)) + summed


TEMPLATE = "apk/AndroidManifest.xml.j2"
NAME = "AndroidManifest.xml"
MAPS_LIBRARIES_SINCE = 23
"""The first API level that maps libraries straight from an APK."""
WARNING = re.compile(r"\bwarn(ing)?:")
NEWER_ELEMENTS = re.compile(r"unexpected element <uses-native-library>")
"""Warning of older versions of aapt2 (Debian's): Android reads it all the same."""


def application_id(name: str) -> str:
    """Return ``com.example.my_model_bench`` for the model ``my-model``, for an app that is only tried out."""
    return f"com.example.{NamePool().give(name, 'model').snake}_bench"


def min_sdk(project: Project) -> int:
    """Return the lowest API level on which every bundle of *project* runs."""
    return max(MAPS_LIBRARIES_SINCE, *(bundle.manifest.api_level or 0 for bundle in project.bundles))


def manifest_text(project: Project, *, debuggable: bool = False) -> str:
    opencl = any(bundle.manifest.options.opencl for bundle in project.bundles)
    return render(
        TEMPLATE,
        project=project,
        activity=contents.ACTIVITY_CLASS,
        process="",
        version_name=__version__,
        min_sdk=min_sdk(project),
        target_sdk=NEWEST.target_sdk,
        native_libraries=contents.OPENCL_LIBRARIES if opencl else (),
        debuggable=debuggable,
    )


def link_manifest(text: str, tools: ApkTools, directory: Path) -> tuple[ApkEntry, ...]:
    """Link the manifest *text* to Android's binary form, and the table of its resources."""
    source, linked = directory / NAME, directory / "linked.apk"
    source.write_text(text, encoding="utf-8")
    remedy = "Check --sdk: its aapt2 and its platform must be of about the same age."
    link = (tools.aapt2, "link", "--warn-manifest-validation")
    done = process.run(
        [*link, "--manifest", source, "-I", tools.framework, "-o", linked],
        error=BuildError,
        what="aapt2 cannot link the app's manifest",
        remedy=remedy,
    )
    warnings = [line for line in f"{done.stdout}\n{done.stderr}".splitlines() if WARNING.search(line)]
    if unexpected := "\n".join(line for line in warnings if not NEWER_ELEMENTS.search(line)):
        raise BuildError("aapt2 does not understand the app's manifest", remedy=remedy, details=unexpected)
    with zipfile.ZipFile(linked) as archive:
        return tuple(ApkEntry(member.filename, archive.read(member)) for member in archive.infolist())


APP, STEM = re.compile(r"\w+(\.\w+)+", re.ASCII), re.compile("[a-z0-9_]+")
LARGEST_PLAN = 1 << 20
"""Bytes; a real one has some hundred for each model."""


@dataclass(frozen=True)
class ApkContents:
    app: str
    """Application id; empty: `adt apk` did not make it."""
    stems: tuple[str, ...]
    """The models that it measures, by their directories; an app of `adt apk` with none is an RPC server."""
    abis: tuple[str, ...]
    """ABIs that it has libraries for; none: it runs on every one."""

    @property
    def serves(self) -> bool:
        return bool(self.app) and not self.stems


def read_apk(path: Path) -> ApkContents:
    """Look into the APK *path*; raises InputError if there is no file, or it is no APK."""
    remedy = "Name an APK, such as `adt apk` writes."
    if not path.is_file():
        raise InputError(f"there is no APK {path}", remedy=remedy)
    app, stems = "", tuple[str, ...]()
    try:
        with zipfile.ZipFile(path) as archive:
            names = archive.namelist()
            if contents.BENCH_PLAN in names:
                with archive.open(contents.BENCH_PLAN) as file:
                    plan = parse_json(file.read(LARGEST_PLAN))
                app, stems = plan["app"], tuple(model["stem"] for model in plan["models"])
                if not APP.fullmatch(app) or not all(map(STEM.fullmatch, stems)):  # they become paths
                    raise ValueError(f"{contents.BENCH_PLAN} has names that adt does not give")
    except Exception as error:  # zipfile, zlib and the plan's fields: BadZipFile, RuntimeError, KeyError, …
        raise InputError(f"{path} is no APK, or is damaged: {error}", remedy=remedy) from error
    if NAME not in names:
        raise InputError(f"{path} is no APK: it has no {NAME}", remedy=remedy)
    libraries = [match[1] for name in names if (match := re.fullmatch(r"lib/([^/]+)/[^/]+\.so", name))]
    return ApkContents(app, stems, tuple(dict.fromkeys(libraries)))


STORE_PASSWORD, KEY_PASSWORD = "ADT_KEYSTORE_PASSWORD", "ADT_KEY_PASSWORD"
"""Variables with the user's passwords; also what apksigner and keytool are told to read."""
DEBUG_FILE = "debug.keystore"
DEBUG_ALIAS = "adt-debug"
DEBUG_PASSWORD = "android"
"""No secret: Android's own tools use the same for their debug keystores."""
DEBUG_OWNER = "CN=adt debug key, O=not for release"
DEBUG_DAYS = 10_000


@dataclass(frozen=True)
class Keystore:
    """A Java keystore (JKS or PKCS #12) with the key to sign with."""

    path: Path
    alias: str
    """Alias of the key; empty: the only one."""
    password: str = field(repr=False)
    key_password: str = field(default="", repr=False)
    """Password of the key; empty: the store's."""
    debug: bool = False
    """It is adt's own: fit for trying out, not for an app that is given away."""

    @property
    def environment(self) -> dict[str, str]:
        return {STORE_PASSWORD: self.password, KEY_PASSWORD: self.key_password or self.password}


def users_keystore(path: Path, alias: str, *, password: str, key_password: str) -> Keystore:
    """Return the user's own keystore; raises ConfigError if there is no file, or no password for it."""
    if not path.is_file():
        raise ConfigError(
            f"there is no keystore {path}",
            remedy=f"Make one: keytool -genkeypair -keystore {path} -alias NAME -keyalg RSA -keysize 4096 "
            "-validity 10000; or leave --keystore out to sign with a debug key.",
        )
    if not password:
        raise ConfigError(
            f"the password of {path} is not known",
            remedy=f"Put it into {STORE_PASSWORD}, or use --keystore-password-file FILE.",
        )
    return Keystore(path, alias, password, key_password)


def debug_keystore() -> Keystore:
    """Return adt's own key, made on first use and kept: a newer APK can replace an older one on a device."""
    path = data_dir() / DEBUG_FILE
    keystore = Keystore(path, DEBUG_ALIAS, DEBUG_PASSWORD, debug=True)
    with cache.lock(path):
        if path.is_file():
            return keystore
        java = "Install Java: apt-get install default-jre-headless; apksigner needs it too."
        keytool = process.find_tool("keytool", remedy=java)
        with cache.fresh_file(path) as temporary:
            words = ["-storetype", "PKCS12", "-storepass:env", STORE_PASSWORD, "-alias", DEBUG_ALIAS]
            words += ["-keyalg", "RSA", "-keysize", "2048", "-validity", str(DEBUG_DAYS)]
            process.run(
                [keytool.path, "-genkeypair", "-keystore", temporary, *words, "-dname", DEBUG_OWNER],
                env=keystore.environment,
                what="keytool cannot make a debug key",
                remedy="Try `keytool -help`; a broken Java installation must be mended first.",
            )
            temporary.chmod(0o600)
    return keystore


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
            # the extra field ends, and the contents begin, at a multiple of the alignment
            zeros = -(begin + FIELD.size) % entry.alignment
            field_size = FIELD.size - 4 + zeros
            member.extra = FIELD.pack(ALIGNMENT_FIELD, field_size, entry.alignment) + bytes(zeros)
            if isinstance(entry.contents, bytes):
                archive.writestr(member, entry.contents)
            else:
                member.file_size = entry.contents.stat().st_size
                with entry.contents.open("rb") as source, archive.open(member, "w") as target:
                    shutil.copyfileobj(source, target, 1 << 20)


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
    """Return the names of the files of *apk* that Android cannot map, and of compressed libraries.

    Libraries begin at a multiple of 16 KB, other uncompressed files of 4 bytes.
    """
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


def build_apk(
    manifest: str,
    entries: Sequence[ApkEntry],
    out: Path,
    *,
    min_sdk: int,
    tools: ApkTools,
    keystore: Keystore,
) -> tuple[str, ...]:
    """Write *manifest* and *entries* to *out*, whole and checked or not at all; equal parts: equal bytes.

    Returns the schemes of its signatures.
    """
    with fresh_file(out) as fresh, scratch_directory("apk", beside=out) as scratch:
        linked = link_manifest(manifest, tools, scratch)
        unsigned = scratch / "unsigned.apk"  # beside *out*: models may be larger than /tmp
        write_archive((*linked, *entries), unsigned)
        sign(unsigned, fresh, keystore, tools, min_sdk=min_sdk)
        return check(fresh, tools, min_sdk=min_sdk)
