"""The versions that a generated Gradle project pins: for each Android Gradle plugin, what goes with it.

By the makers' pages, as they stood on these days:

- developer.android.com/build/releases/agp-8-13-0-release-notes (September 2025) and agp-9-0-0 (January 2026),
  9-1-0 (March 2026), 9-2-0, 9-3-0 (July 2026), 9-4-0-release-notes (September 2026): Gradle, API level, NDK,
  JDK. 9.5 and 9.6 were alphas on 2026-11-08.
- developer.android.com/build/migrate-to-built-in-kotlin, and the release notes of 9.0 and 9.4: the plugin's
  own Kotlin (github.com/android/skills, build-system/agp/agp-9-upgrade, of 2026-08-06, has both as text).
- kotlinlang.org/docs/gradle-configure-project.html (as of Kotlin 2.4.20): the highest Gradle of Kotlin; its
  rows from 2.3.20 on as others quote them.
- developer.android.com/build/kotlin-support: the R8, so the plugin, that reads a Kotlin's metadata.
- plugins.gradle.org/plugin/org.gradle.toolchains.foojay-resolver-convention (1.0.0 of 2025-05-19), and
  docs.gradle.org, UpdateDaemonJvm: without a toolchain repository it fails.
- developer.android.com/jetpack/androidx/releases/activity (1.13.0 of 2026-03-11, the newest on 2026-09-09),
  camera (1.6.1 of 2026-05-06) and lifecycle (2.10.0 of November 2025; what 2.11.0 of 2026-06-17 asks for is
  not known here). They ask for compileSdk 36, plugin 8.9.1 and minSdk 23, as public builds with them say.

The plugin's patch releases are those that public projects pinned in November 2026. A test has the tables, so
that a version cannot be moved without the others. Nothing here was downloaded or built: adt has no Gradle.
"""

from __future__ import annotations

from dataclasses import dataclass

BUILT_IN_KOTLIN = "2.2.10"
"""The Kotlin that the Android Gradle plugin 9 brings along: it needs no other, and takes a newer one."""


@dataclass(frozen=True)
class AndroidVersions:
    agp: str
    """The Android Gradle plugin."""
    gradle: str
    """Its lowest and default."""
    kotlin: str
    """Kotlin's compiler and its Gradle plugin."""
    compile_sdk: str
    """API level that the sources are compiled against: the plugin's highest …"""
    target_sdk: str = "36"
    """API level that the application targets: the one that Google Play asks for."""
    coroutines: str = "1.10.2"
    activity: str = "1.13.0"
    """Version of androidx.activity, of the application …"""
    camera: str = "1.6.1"
    """Version of CameraX …"""
    lifecycle: str = "2.10.0"
    androidx_min_sdk: str = "23"
    """The lowest API level of these three."""
    annotation: str = "1.9.1"
    """Version of androidx.annotation, which the Java sources are compiled with."""
    ndk: str = "28.2.13676358"
    """Compiles the JNI layer; the bundle's libraries have their own."""
    cmake: str = "3.22.1"
    """The SDK's package of CMake."""
    jdk: str = "17"
    """Lowest that runs Gradle; also the bytecode's level."""
    foojay: str = "1.0.0"
    """Gradle's plugin that knows where JDKs are."""
    test_runner: str = "1.7.0"
    """Version of androidx.test:runner, for tests on a device."""
    junit: str = "4.13.2"

    @property
    def series(self) -> str:
        """``9.4`` of 9.4.1: as ``--agp`` has it."""
        return ".".join(self.agp.split(".")[:2])

    @property
    def built_in_kotlin(self) -> bool:
        """Return True if the Android plugin compiles Kotlin itself, and refuses ``kotlin-android``."""
        return int(self.agp.split(".")[0]) >= 9

    @property
    def newer_kotlin(self) -> bool:
        """Return True if the buildscript's classpath has a Kotlin newer than the Android plugin's own."""
        return self.built_in_kotlin and self.kotlin != BUILT_IN_KOTLIN


VERSIONS = {
    row.series: row
    for row in (
        AndroidVersions(agp="9.4.1", gradle="9.6.0", kotlin="2.4.20", compile_sdk="37"),
        AndroidVersions(agp="9.3.1", gradle="9.5.0", kotlin="2.4.10", compile_sdk="37"),
        AndroidVersions(agp="9.2.1", gradle="9.4.1", kotlin="2.4.10", compile_sdk="36"),
        AndroidVersions(agp="9.1.1", gradle="9.3.1", kotlin=BUILT_IN_KOTLIN, compile_sdk="36"),
        AndroidVersions(agp="9.0.1", gradle="9.1.0", kotlin="2.3.21", compile_sdk="36"),
        AndroidVersions(agp="8.13.2", gradle="8.13", kotlin="2.3.0", compile_sdk="36"),
    )
}
"""By the plugin's series, the newest first."""
NEWEST = next(iter(VERSIONS.values()))
