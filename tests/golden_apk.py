"""What `adt apk` puts together of made-up packages, as text: tests/golden/apk/ has what it should be.

After a change that is meant, look at the difference and take it over::

    PYTHONPATH=toolchain python tests/golden_apk.py && git diff tests/golden/apk
"""

from __future__ import annotations

import tempfile
from pathlib import Path

from adt.integrate.apk.entries import BENCH_PLAN, apk_entries
from adt.integrate.apk.manifest import manifest_text
from adt.integrate.apk.measuring import planned_models
from adt.integrate.bench_plan import BenchPlan
from golden_projects import HOSTILE, PLATFORMS, made_up_project

GOLDEN = Path(__file__).resolve().parent / "golden" / "apk"
FIXED_SHAPES = ("detector", "class", "日本", '"; rm')
"""Of the hostile models, those that an app can make up inputs for."""


def texts(directory: Path) -> dict[str, str]:
    """The manifest, the plan, and what else is in the APK."""
    models = {name: HOSTILE[name] for name in FIXED_SHAPES}
    project = made_up_project(directory, PLATFORMS["android-app"], models)
    digests = {bundle.manifest.abi: "0" * 64 for bundle in project.bundles}
    plan = BenchPlan(project.java_package, digests, planned_models(project)).text()
    listing = ""
    for entry in apk_entries(project, plan):
        source = entry.contents.relative_to(directory) if isinstance(entry.contents, Path) else "made here"
        listing += f"{entry.name} = {source}, at a multiple of {entry.alignment}\n"
    return {
        "AndroidManifest.xml": manifest_text(project),
        Path(BENCH_PLAN).name: plan,
        "FILES.txt": listing,
    }


def expected() -> dict[str, str]:
    """What :func:`texts` should make."""
    return {path.name: path.read_bytes().decode() for path in GOLDEN.iterdir()}


def main() -> None:
    """Write what is made now to tests/golden/apk/."""
    GOLDEN.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as directory:
        for name, text in texts(Path(directory)).items():
            (GOLDEN / name).write_bytes(text.encode())


if __name__ == "__main__":
    main()
