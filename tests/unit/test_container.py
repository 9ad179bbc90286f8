"""The container is made of what is there, in a way that the clean Debian of the tests can repeat."""

import json
import subprocess
import tomllib

from support.dockerfile import ROOT, instructions


def test_it_is_a_debian_that_the_tests_can_make_with_adt_where_they_have_it() -> None:
    names = [name for name, _ in instructions()]
    assert names == ["FROM", "SHELL", "WORKDIR", "COPY", "RUN", "ENV", "CMD"]
    arguments = dict(instructions())
    distribution, suite = arguments["FROM"].split(":")
    clean = (ROOT / "scripts/clean_debian.sh").read_text()
    assert distribution == "debian" and f"{suite} |" in clean
    assert (
        arguments["WORKDIR"] == "/root/adt"
        and 'inside /root 0 "$@"' in clean
        and '--chdir "$home/adt"' in clean
    )
    assert arguments["COPY"] == ". ."
    assert arguments["ENV"].startswith(f"PATH={arguments['WORKDIR']}/.venv/bin:")


def test_its_steps_are_the_setups() -> None:
    step = dict(instructions())["RUN"]
    assert subprocess.run(["bash", "-n", "-c", step], check=False).returncode == 0
    demo = (ROOT / "demo.sh").read_text()
    (needed,) = (line.split()[1:] for line in demo.splitlines() if line.startswith("need_packages "))
    assert set(needed) <= set(step.split()), "what the demo needs"
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    assert set(step.split("[")[1].split("]")[0].split(",")) <= extras.keys()


def test_nothing_of_this_machine_is_copied() -> None:
    assert {".git", ".venv*", "**/build"} <= set((ROOT / ".dockerignore").read_text().split())


def test_editors_open_the_same_container_with_the_hosts_adb_server() -> None:
    file = ROOT / ".devcontainer/devcontainer.json"
    described = json.loads(file.read_text())
    assert (file.parent / described["build"]["dockerfile"]).resolve() == ROOT / "Dockerfile"
    assert (file.parent / described["build"]["context"]).resolve() == ROOT
    assert described["runArgs"] == ["--network=host"]
