"""Python, TVM pairs, programs, the cache, virtual devices: each finding gets the right verdict."""

import os
import time
from dataclasses import replace
from pathlib import Path

import pytest

from adt.bundle.platforms import PLATFORMS
from adt.checkup import host, storage
from adt.checkup.check import Action, Area, Check, Fix, Question, Status, answers, make_scope
from adt.checkup.diagnosis import mend
from adt.checkup.host import REQUIRED, check_compiler, check_git, check_required, parse_version
from adt.host import cache, extras, process
from adt.host.process import Finished, Tool
from adt.virtual import prerequisites
from support.devices.programs import write_program
from support.standins.artefacts import make_bundle
from support.standins.emulator_records import emulator_record, write_record


def test_what_travels_with_adt_is_looked_for() -> None:
    assert host.check_adt((), Path("/adt")).status is Status.OK
    assert "cpp_runner" in host.check_adt(("cpp_runner",), Path("/adt")).found


@pytest.mark.parametrize(
    ("code", "out", "err", "status", "message"),
    [
        (0, '["0.25.0.post1", "/tvm/__init__.py"]\n', "", Status.OK, "works"),
        (
            0,
            'noise\n["0.24.dev0", "/tree/__init__.py"]\n',
            "",
            Status.WARNING,
            "0.24.dev0, not the installed",
        ),
        (1, "", "Traceback\nImportError: symbol", Status.FAILED, "exit code 1): ImportError: symbol"),
        (-11, "", "", Status.FAILED, "signal 11"),
        (124, "", "killed after 9 s", Status.FAILED, "killed after 9 s"),
    ],
)
def test_import_of_tvm(code: int, out: str, err: str, status: Status, message: str) -> None:
    check = host.check_import(Finished(("python",), code, out, err))
    assert check.status is status
    assert message in check.found
    assert bool(check.remedy) == (status is not Status.OK)


@pytest.mark.parametrize(
    ("text", "version"),
    [
        ("cmake version 3.26.4", (3, 26, 4)),
        ("1.11.1.git.kitware.jobserver-1", (1, 11, 1)),
        ("git version 2.39.5", (2, 39, 5)),
        ("no number", ()),
        ("", ()),
    ],
)
def test_versions(text: str, version: tuple[int, ...]) -> None:
    assert parse_version(text) == version


@pytest.mark.parametrize(
    ("name", "output", "status"),
    [
        ("cmake", "cmake version 3.26", Status.OK),
        ("cmake", "cmake version 4.0", Status.OK),
        ("cmake", "cmake version 3.25.1", Status.FAILED),
        ("cmake", "segfault", Status.WARNING),
        ("ninja", "1.11.0", Status.OK),
        ("ninja", "1.10.2", Status.FAILED),
    ],
)
def test_minimum_versions(name: str, output: str, status: Status) -> None:
    required = next(requirement for requirement in REQUIRED if requirement.name == name)
    check = check_required(required, Tool(name, Path("/bin") / name, "PATH"), output)
    assert check.status is status
    assert "PATH" in check.origin
    assert (f"pip install -U '{name}>=" in check.remedy) == (status is not Status.OK)


def test_a_missing_compiler_fails_only_for_the_chosen_platform() -> None:
    platform = PLATFORMS["linux-aarch64"]
    absent = check_compiler(platform, None, "", needed=False)
    assert absent.status is Status.WARNING
    assert absent.remedy == f"apt-get install {platform.packages}"
    assert absent.fix == Fix(Action.INSTALL, (platform.packages,))
    assert check_compiler(platform, None, "", needed=True).status is Status.FAILED
    armhf = PLATFORMS["linux-armhf"]  # nobody asked for it: its compiler is not installed by --fix
    assert check_compiler(armhf, None, "", needed=False).fix is None
    assert check_compiler(armhf, None, "", needed=True).fix is not None
    assert check_compiler(platform, Path("/g++"), "g++ 12", needed=True).status is Status.OK


def test_compilers_that_path_lacks_fail_where_settings_build_with_them(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    scope = make_scope({}, {"ADT_BUILD_PLATFORM": "linux-aarch64"})
    asked = [question for question in host.questions(scope) if question.name.startswith("compiler for ")]
    checks = {question.name: next(iter(answers(Area.HOST, question))) for question in asked}
    failed = {name for name, check in checks.items() if check.status is Status.FAILED}
    assert failed == {"compiler for linux-aarch64"} and len(checks) > 2


def test_git_may_be_absent() -> None:
    assert check_git(None, "").status is Status.WARNING
    assert check_git(Path("/git"), "git version 2.39").found == "2.39"


def test_a_program_that_hangs_or_fails_is_a_failed_check_and_is_gone(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    write_program(tmp_path / "git", f'echo $$ >"{tmp_path}/pid"; sleep 4324')
    write_program(tmp_path / "g++", "echo broken >&2; exit 1")
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    monkeypatch.setattr(host, "VERSION_SECONDS", 1.5)
    asked = [
        query for query in host.questions(make_scope({}, {})) if query.name in ("git", "compiler for host")
    ]
    compiler, git = (next(iter(answers(Area.HOST, query))) for query in asked)
    assert git.status is Status.FAILED and "does not say its version" in git.found
    assert compiler.status is Status.WARNING and compiler.remedy == "apt-get install g++"
    assert process.start_time(int((tmp_path / "pid").read_text())) is None


# --- the cache ---------------------------------------------------------------


@pytest.fixture
def root(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    directory = tmp_path / "cache"
    directory.mkdir()
    monkeypatch.setenv("ADT_CACHE_DIR", str(directory))
    return directory


def make_entry(name: str) -> Path:
    def fill(directory: Path) -> None:
        (directory / "file").write_text("contents")

    return cache.entry(name, fill)[0]


@pytest.mark.parametrize(
    ("writable", "free", "status"),
    [("", 10 << 30, Status.OK), ("", 1 << 30, Status.WARNING), ("", 1 << 20, Status.FAILED)],
)
def test_room_for_the_cache(writable: str, free: int, status: Status) -> None:
    check = storage.check_place(Path("/cache"), writable, free)
    assert check.status is status
    assert ("ADT_CACHE_DIR" in check.remedy) == (status is not Status.OK)


def test_a_cache_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    reason = storage.not_writable(tmp_path / "file" / "cache")
    assert reason
    check = storage.check_place(tmp_path / "file/cache", reason, 10 << 30)
    assert check.status is Status.FAILED and reason in check.found
    assert storage.not_writable(tmp_path / "absent" / "cache") == ""
    assert list(tmp_path.iterdir()) == [tmp_path / "file"]  # looking leaves nothing


def test_a_whole_cache_has_nothing_to_mend(root: Path) -> None:
    make_entry("packages/one")
    make_entry("tvm-source/two")
    make_bundle(root / "bundles/three")
    (check,) = storage.check_contents(root)
    assert check.status is Status.OK and check.found.endswith("in 2 entries and 1 bundles")
    assert "at least" not in check.found and not check.found.startswith("0 ")


def test_a_changed_entry_is_told_and_removed_only_if_its_bytes_differ(root: Path) -> None:
    touched, damaged = make_entry("packages/touched"), make_entry("packages/damaged")
    os.utime(touched / "file", (1, 1))
    (damaged / "file").write_text("other")
    checks = [check for check in storage.check_contents(root) if check.fix]
    assert [check.fix.arguments for check in checks if check.fix] == [
        ("packages/damaged",),
        ("packages/touched",),
    ]
    assert all(check.status is Status.WARNING for check in checks)
    messages = [mend(check.fix).said for check in checks if check.fix]
    assert "removed packages/damaged" in messages[0] and "stays" in messages[1]
    assert not damaged.exists() and (touched / "file").read_text() == "contents"
    assert not any(check.fix for check in storage.check_contents(root))


def test_a_damaged_bundle_is_told_and_removed(root: Path) -> None:
    make_bundle(root / "bundles/cut")
    make_bundle(root / "bundles/whole")
    with (root / "bundles/cut/lib/libone.so").open("a") as file:
        file.write("more")
    (check,) = (check for check in storage.check_contents(root) if check.fix)
    assert "lib/libone.so has 3004 bytes instead of 3000" in check.found
    assert check.fix == Fix(Action.DROP_BUNDLE, ("cut",))
    assert mend(check.fix).done
    assert not (root / "bundles/cut").exists()
    assert mend(Fix(Action.DROP_BUNDLE, ("whole",))).said == "whole is whole and stays"


def test_only_old_leftovers_are_removed(root: Path) -> None:
    old, new = root / "packages/.one.0123456789ab.tmp", root / "packages/.two.0123456789ab.tmp"
    for path in (old, new):
        path.mkdir(parents=True)
        (path / "file").touch()
    part = root / "downloads/0123/file.whl.part"
    part.parent.mkdir(parents=True)
    part.touch()
    long_ago = time.time() - 2 * storage.LEFTOVER_AGE
    for path in (old, part):
        os.utime(path, (long_ago, long_ago))
    (check,) = (check for check in storage.check_contents(root) if check.fix)
    assert check.fix is not None and check.fix.action is Action.DROP_LEFTOVER
    assert mend(check.fix).done
    assert not old.exists() and not part.exists() and new.exists()


@pytest.mark.parametrize("name", ["../outside", "/outside", "a/../../outside", "."])
def test_nothing_outside_the_cache_is_removed(root: Path, name: str) -> None:
    outside = root.parent / "outside"
    outside.mkdir()
    for action in (Action.DROP_LEFTOVER, Action.DROP_ENTRY):
        done = mend(Fix(action, (str(outside) if name.startswith("/") else name,)))
        assert not done.done, done.said
    assert outside.is_dir() and root.is_dir()


def test_adding_up_sizes_ends_in_time(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make_entry("packages/one")
    monkeypatch.setattr(storage, "SIZE_SECONDS", -1.0)
    assert "at least" in next(iter(storage.check_contents(root))).found


def test_no_cache_yet_is_fine(root: Path) -> None:
    root.rmdir()
    asked = [check for question in storage.questions() for check in answers(Area.HOST, question)]
    assert [check.name for check in asked] == ["cache directory"]
    assert not root.exists()


# --- virtual devices ---------------------------------------------------------


def test_prerequisites_never_fail_and_keep_their_remedies() -> None:
    checks = list(
        host.check_prerequisites(
            [
                prerequisites.Prerequisite("Linux", True, "6.1", ""),
                prerequisites.Prerequisite("qemu", False, "absent", prerequisites.INSTALL_QEMU),
                prerequisites.Prerequisite("namespaces", False, "forbidden", "sudo sysctl x"),
            ]
        )
    )
    assert [check.status for check in checks] == [Status.OK, Status.WARNING, Status.WARNING]
    assert [check.fix for check in checks] == [None, Fix(Action.INSTALL, ("qemu-user-static",)), None]
    assert checks[2].remedy == "sudo sysctl x"


def test_stale_records_are_told_kept_and_removed_by_the_fix(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    ours = process.start_time(os.getpid())
    assert ours is not None
    alive, dead, garbled = (
        write_record(emulator_record(name, pid, start_time))
        for name, pid, start_time in (
            ("alive", os.getpid(), ours),
            ("dead", os.getpid(), ours + 1),
            ("garbled", 1, 1),
        )
    )
    garbled.record.write_text("{")
    assert [emulator.name for emulator in host.running_emulators()] == ["alive"]
    (check,) = host.check_stale(host.stale_emulators())
    assert "dead, garbled" in check.found and check.status is Status.WARNING
    assert dead.record.exists()  # looking removes nothing
    assert check.fix is not None and mend(check.fix).done
    assert not dead.record.exists() and not garbled.record.exists() and alive.record.exists()
    assert host.stale_emulators() == []


def test_each_host_question_has_a_name_of_its_own() -> None:
    scope = replace(make_scope({}, {}))
    asked: list[Question] = list(host.questions(scope))
    names = [question.name for question in asked]
    assert len(names) == len(set(names)) > 8


@pytest.mark.parametrize("variable", ["ADT_NO_SUCH", "ADT_BUILD_PLATFORM"])
def test_broken_settings_are_a_failed_check(variable: str) -> None:
    scope = make_scope({}, {variable: "nonsense"})
    question = next(question for question in host.questions(scope) if question.name == "settings")
    (check,) = answers(Area.HOST, question)
    assert check.status is Status.FAILED
    assert (variable if variable == "ADT_NO_SUCH" else "nonsense") in check.found


def test_no_import_is_tried_with_a_pair_that_breaks(monkeypatch: pytest.MonkeyPatch) -> None:
    versions = {extras.TVM: "0.25.0.post1", extras.FFI: "0.1.15.post2"}
    monkeypatch.setattr(extras, "installed_version", versions.get)
    monkeypatch.setattr(host.process, "run", lambda *_, **__: pytest.fail("must not run"))
    question = next(question for question in host.questions(make_scope({}, {})) if question.name == "TVM")
    checks: list[Check] = list(answers(Area.HOST, question))
    assert [check.status for check in checks] == [Status.FAILED]
