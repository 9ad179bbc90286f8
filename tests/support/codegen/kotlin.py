"""Kotlin's compiler, as the npm package kotlin-compiler carries it: fetched by sha256, never installed.

It comes with Kotlin's library and with kotlinx-coroutines-core, so Kotlin that uses them compiles and runs here.
"""

import os
import tarfile
from collections.abc import Sequence
from pathlib import Path

from adt.host import cache
from adt.host.contained import write_file
from support.codegen.npm import npm_archive
from support.devices.programs import real_program, run_program

VERSION = "2.4.20"
SHA256 = "c23dab400d7ce5ea8b6c909947c0ca5454189e4bb1108695b5f464500e5e950f"
LANGUAGE = "2.3"
"""Version of Kotlin in generated Gradle projects."""
LIBRARIES = ("kotlin-stdlib", "kotlinx-coroutines-core-jvm")
NEEDED = (*LIBRARIES, "annotations-13.0", "kotlin-compiler", "kotlin-daemon-client", "kotlin-reflect",
          "kotlin-script-runtime")  # fmt: skip
"""Libraries of the package that compiling needs."""
BRIEF = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")
"""Options of a JVM that runs for seconds: optimizing what it runs would take longer."""
JAVAC = ("javac", *(f"-J{option}" for option in BRIEF))
"""Java's compiler."""


def home() -> Path:
    return cache.entry(f"tests/kotlin/{SHA256[:12]}", _fetch)[0]


def _fetch(directory: Path) -> None:
    archive = npm_archive(f"kotlin-compiler@{VERSION}", SHA256, directory)
    with tarfile.open(archive) as packed:
        for name in NEEDED:
            member = packed.getmember(f"package/lib/{name}.jar")
            write_file(packed, member, directory, member.name)
    archive.unlink()


def libraries() -> list[Path]:
    return [home() / "package/lib" / f"{name}.jar" for name in LIBRARIES]


TRAINING = """
import kotlinx.coroutines.*

class Numbers(private val first: Int) {
    suspend fun next(): List<Int> = withContext(Dispatchers.Default) { List(3) { first + it } }
}

fun main() = runBlocking { println(Numbers(3).next().map { it * 2 }) }
"""


def class_archive() -> Path:
    """Return the compiler's classes as this JVM maps them: parsing them takes four of seven seconds.

    A JVM that cannot map the file, after an update, parses the classes.
    """
    java = Path(real_program("java") or "").resolve()
    version = cache.file_sha256(java.parents[1] / "release")[:12]
    return cache.entry(f"tests/kotlin-classes/{SHA256[:12]}-{version}", _archive)[0] / "classes.jsa"


def _archive(directory: Path) -> None:
    source = directory / "Numbers.kt"
    source.write_text(TRAINING)
    _compile(f"-XX:ArchiveClassesAtExit={directory / 'classes.jsa'}", [source], directory / "out", ())


def compile_kotlin(sources: Sequence[Path], out: Path, *, classpath: Sequence[Path] = ()) -> list[Path]:
    """Compile *sources* to the directory *out*; a warning is an error.

    Returns:
        What to run them with: *out* and :func:`libraries`.
    """
    _compile(f"-XX:SharedArchiveFile={class_archive()}", sources, out, classpath)
    return [out, *libraries()]


def _compile(option: str, sources: Sequence[Path], out: Path, classpath: Sequence[Path]) -> None:
    """Compile in a JVM with *option*; its class path is the compiler's, as an archive needs it."""
    words = [
        "java", "-Xmx512m", *BRIEF, option,
        "-cp", class_path(*(home() / f"package/lib/{name}.jar" for name in NEEDED)),
        "org.jetbrains.kotlin.cli.jvm.K2JVMCompiler",
        "-kotlin-home", home() / "package", "-Werror", "-no-reflect", "-no-stdlib",
        "-language-version", LANGUAGE, "-api-version", LANGUAGE, "-jvm-target", "17",
        "-cp", class_path(*classpath, *libraries()),
        "-d", out, *sources,
    ]  # fmt: skip
    run_program(*words)


def class_path(*places: Path) -> str:
    return os.pathsep.join(map(str, places))
