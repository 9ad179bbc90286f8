"""The versions that a generated Gradle project pins: one set that its makers' tables say goes together.

Each line of :data:`LIMITS` is a row of a maker's table, so that a version cannot be moved without the
others. Nothing here was downloaded or built: adt has no Gradle.
"""

from __future__ import annotations

from dataclasses import dataclass, fields


@dataclass(frozen=True)
class AndroidVersions:
    """What a Gradle project is built with."""

    agp: str
    """The Android Gradle plugin."""
    gradle: str
    kotlin: str
    """Kotlin's compiler and its Gradle plugin."""
    coroutines: str
    """kotlinx.coroutines."""
    compile_sdk: str
    """API level that the sources are compiled against …"""
    target_sdk: str
    """… and that the application says it knows."""
    build_tools: str
    """Of the SDK: aapt2, d8, zipalign."""
    ndk: str
    """Compiles the JNI layer; the bundle's libraries have their own."""
    cmake: str
    """The SDK's package of CMake."""
    jdk: str
    """Runs Gradle; also the bytecode's level."""
    test_runner: str
    """androidx.test:runner, for tests on a device."""
    junit: str


VERSIONS = AndroidVersions(
    agp="8.13.2",
    gradle="8.13",
    kotlin="2.3.0",
    coroutines="1.10.2",
    compile_sdk="36",
    target_sdk="36",
    build_tools="35.0.0",
    ndk="28.2.13676358",
    cmake="3.22.1",
    jdk="17",
    test_runner="1.7.0",
    junit="4.13.2",
)


@dataclass(frozen=True)
class Limit:
    """What one of the versions asks of another."""

    of: str
    """Field of :class:`AndroidVersions` that asks …"""
    series: str
    """… in versions that begin so …"""
    needs: str
    """… of this field …"""
    lowest: str
    """… at least this …"""
    highest: str = ""
    """… and at most this; empty: no maker has set an end."""

    def __str__(self) -> str:
        span = f"{self.lowest} or newer" if not self.highest else f"{self.lowest} to {self.highest}"
        return f"{self.of} {self.series} needs {self.needs} {span}"


LIMITS = (
    # Android Gradle plugin 8.13, release notes: compatibility.
    Limit("agp", "8.13", "gradle", "8.13"),
    Limit("agp", "8.13", "build_tools", "35.0.0"),
    Limit("agp", "8.13", "jdk", "17"),
    Limit("agp", "8.13", "compile_sdk", "1", "36"),
    # Kotlin 2.3, "Configure a Gradle project": fully supported versions.
    Limit("kotlin", "2.3", "gradle", "7.6.3", "9.0.0"),
    # Android Gradle plugin, "Kotlin support": the R8 that reads this Kotlin's metadata.
    Limit("kotlin", "2.3", "agp", "8.13.2", "8.13.2"),
    # NDK r28: the first whose libraries have 16 KB pages without being told.
    Limit("target_sdk", "36", "ndk", "28"),
    # A target above what the sources are compiled against is refused by lint.
    Limit("target_sdk", "36", "compile_sdk", "36"),
    # kotlinx.coroutines 1.10 is built with Kotlin 2.1, whose metadata 2.1 and newer read.
    Limit("coroutines", "1.10", "kotlin", "2.1"),
    # androidx.test 1.7 is built on JUnit 4.13.2.
    Limit("test_runner", "1.7", "junit", "4.13.2"),
)


def conflicts(versions: AndroidVersions) -> tuple[str, ...]:
    """What in *versions* does not go together, or has no row in :data:`LIMITS`; empty when all is well."""
    values = {field.name: str(getattr(versions, field.name)) for field in fields(versions)}
    problems = [
        f"{limit}, and {values[limit.needs]} is pinned"
        for limit in LIMITS
        if _begins(values[limit.of], limit.series)
        and not _between(values[limit.needs], limit.lowest, limit.highest)
    ]
    for asker in dict.fromkeys(limit.of for limit in LIMITS):
        if not any(limit.of == asker and _begins(values[asker], limit.series) for limit in LIMITS):
            problems.append(f"nothing is written down about {asker} {values[asker]}")
    return tuple(problems)


def _begins(version: str, series: str) -> bool:
    beginning = _numbers(series)
    return _numbers(version)[: len(beginning)] == beginning


def _between(version: str, lowest: str, highest: str) -> bool:
    return _numbers(lowest) <= _numbers(version) and (not highest or _numbers(version) <= _numbers(highest))


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split("."))
