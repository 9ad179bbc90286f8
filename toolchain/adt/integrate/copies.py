"""What a generated CMake project carries along: bundles without their programs, and packages."""

from __future__ import annotations

from adt.errors import PackageError
from adt.integrate.describe import Project
from adt.integrate.files import CopiedFile


def copies(project: Project) -> tuple[CopiedFile, ...]:
    """``bundles/<platform>/…`` to compile against and ship, ``models/<platform>/<model>/mod.*``.

    Raises:
        PackageError: a bundle is of an adt that had no CMake package in it.
    """
    made = []
    for bundle in project.bundles:
        facts = bundle.manifest
        if not facts.build_files:
            raise PackageError(
                f"the bundle {bundle.path} has no CMake package: an older adt made it",
                remedy=f"Build it again: adt build-target --for {facts.preset}",
            )
        libraries = [name for name in facts.files if name.startswith("lib/")]
        for file in (*libraries, *facts.headers, *facts.build_files, *facts.licenses):
            made.append(CopiedFile(f"bundles/{facts.platform}/{file}", bundle.file(file)))
    for model in project.models:
        for variant in model.variants:
            directory = f"models/{variant.bundle.manifest.platform}/{model.api.stem}"
            for source in variant.package.files:
                made.append(CopiedFile(f"{directory}/{source.name}", source))
    return tuple(made)
