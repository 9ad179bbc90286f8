"""The versions that a generated Gradle project pins: one set that its makers' tables say goes together.

A test has the makers' tables, so that a version cannot be moved without the others. Nothing here was
downloaded or built: adt has no Gradle.
"""

from __future__ import annotations

from dataclasses import dataclass


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
