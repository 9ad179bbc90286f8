"""Questions and rounds: nothing that a check raises gets out, and repairs are followed by another look."""

from collections.abc import Iterator
from pathlib import Path

import pytest

import adt
from adt.bundle.platforms import PLATFORMS
from adt.checkup import diagnosis as module
from adt.checkup.check import Action, Area, Check, Fix, Question, Scope, Status, answers, make_scope
from adt.checkup.diagnosis import Repair, diagnose, examine, mend, planned_repairs
from adt.errors import ConfigError, NdkError
from adt.options.resolve import load_settings
from support.devices.programs import write_program

OK = Check("fine", Status.OK, "here", area=Area.HOST)
BROKEN = Check("server", Status.FAILED, "not running", fix=Fix(Action.START_SERVER), area=Area.HOST)
AWAY = Check("phone", Status.FAILED, "offline", fix=Fix(Action.RECONNECT_OFFLINE), area=Area.HOST)
SCOPE = make_scope({}, {})


def test_an_error_with_a_remedy_becomes_a_failed_check() -> None:
    def ask() -> Iterator[Check]:
        yield OK
        raise NdkError("no NDK", remedy="install one")

    first, second = answers(Area.NDK, Question("NDK", ask))
    assert (first.area, first.name, first.status) == (Area.NDK, "fine", Status.OK)
    assert (second.area, second.name, second.status) == (Area.NDK, "NDK", Status.FAILED)
    assert (second.found, second.remedy) == ("no NDK", "install one")


def test_a_crashed_check_becomes_a_failed_check_that_asks_for_a_report() -> None:
    (check,) = answers(Area.RPC, Question("ports", lambda: 1 / 0))  # type: ignore[arg-type,return-value]
    assert check.status is Status.FAILED
    assert "ZeroDivisionError" in check.found
    assert "report" in check.remedy


def test_a_crash_before_the_first_question_costs_that_area_only(monkeypatch: pytest.MonkeyPatch) -> None:
    def crash(_: Scope) -> Iterator[Question]:
        raise RuntimeError("boom")

    def fine(_: Scope) -> Iterator[Question]:
        yield Question("fine", lambda: [OK])

    monkeypatch.setattr(module, "AREAS", {Area.HOST: crash, Area.RPC: fine})
    checks = list(examine(SCOPE))
    assert [(check.area, check.status) for check in checks] == [
        (Area.HOST, Status.FAILED),
        (Area.RPC, Status.OK),
    ]
    assert "boom" in checks[0].found


def test_only_the_named_areas_are_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Area] = []

    def questions(area: Area) -> Iterator[Question]:
        asked.append(area)
        yield from ()

    monkeypatch.setattr(module, "AREAS", {area: lambda _, area=area: questions(area) for area in Area})
    list(examine(make_scope({}, {}, areas=(Area.RPC, Area.NDK))))
    assert asked == [Area.NDK, Area.RPC]


class Bench:
    """An area whose state repairs change, in place of the real ones."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.server = self.phone = False
        monkeypatch.setattr(module, "AREAS", {Area.HOST: self.questions})
        monkeypatch.setattr(module, "mend", self.mend)

    def questions(self, _: Scope) -> Iterator[Question]:
        yield Question("state", self.checks)

    def checks(self) -> Iterator[Check]:
        if not self.server:
            yield BROKEN
        elif not self.phone:
            yield AWAY
        else:
            yield OK

    def mend(self, fix: Fix) -> Repair:
        if fix.action is Action.START_SERVER:
            self.server = True
            return Repair(fix, True, "started")
        return Repair(fix, False, "still away")


def test_without_fix_nothing_is_mended(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = Bench(monkeypatch)
    diagnosis = diagnose(SCOPE)
    assert (diagnosis.checks, diagnosis.repairs, diagnosis.passed) == ((BROKEN,), (), False)
    assert not bench.server


def test_a_repair_is_followed_by_a_look_that_may_uncover_another(monkeypatch: pytest.MonkeyPatch) -> None:
    Bench(monkeypatch)
    seen: list[Check | Repair] = []
    diagnosis = diagnose(SCOPE, fix=True, on_check=seen.append, on_repair=seen.append)
    assert [repair.said for repair in diagnosis.repairs] == ["started", "still away"]
    assert diagnosis.checks == (AWAY,)  # as things are now, and each fix was tried once
    assert [event for event in seen if isinstance(event, Check)] == [BROKEN, AWAY, AWAY]


def test_fixes_are_planned_once_and_packages_together() -> None:
    def install(*names: str) -> Check:
        return Check("x", Status.WARNING, "absent", fix=Fix(Action.INSTALL, names))

    plan = planned_repairs([OK, install("git"), BROKEN, install("g++", "git"), BROKEN])
    assert plan == [Fix(Action.START_SERVER), Fix(Action.INSTALL, ("git", "g++"))]
    assert planned_repairs([install("git")]) == [Fix(Action.INSTALL, ("git",))]


def test_a_failed_repair_is_said_and_does_not_raise(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("ADBUTILS_ADB_PATH", str(tmp_path / "absent"))
    done = mend(Fix(Action.START_SERVER))
    assert not done.done
    assert "ADBUTILS_ADB_PATH" in done.said


def test_packages_are_not_installed_without_root(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    done = mend(Fix(Action.INSTALL, ("git",)))
    assert (done.done, done.said) == (
        False,
        "needs root: sudo apt-get install -y --no-install-recommends git",
    )


def fake_apt(directory: Path, script: str) -> Path:
    """Install an apt-get that logs its arguments to apt.log."""
    write_program(directory / "apt-get", f'echo "$@" >>"{directory}/apt.log"\n{script}')
    return directory / "apt.log"


def test_root_installs_packages_and_updates_the_lists_when_they_are_old(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    log = fake_apt(tmp_path, f'[ "$1" = update ] && touch {tmp_path}/new; [ -e {tmp_path}/new ]')
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    monkeypatch.setattr("os.geteuid", lambda: 0)
    assert mend(Fix(Action.INSTALL, ("git",))).done
    install = "install -y --no-install-recommends git"
    assert log.read_text().splitlines() == [install, "update", install]


def test_what_cannot_be_installed_is_said(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    fake_apt(tmp_path, "exit 100")
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    monkeypatch.setattr("os.geteuid", lambda: 0)
    done = mend(Fix(Action.INSTALL, ("git",)))
    assert not done.done
    assert "apt-get update failed" in done.said


def test_settings_that_cannot_be_read_are_told_and_the_defaults_are_used() -> None:
    scope = make_scope({"build.ndk": "/ndk"}, {"ADT_NO_SUCH": "1"})
    assert scope.settings_error is not None and "ADT_NO_SUCH" in scope.settings_error.what
    assert scope.settings.build.ndk == "/ndk"
    assert scope.settings.build.api_level == load_settings(environ={}).settings.build.api_level


def test_a_platform_counts_as_chosen_only_when_somebody_chose_it(tmp_path: Path) -> None:
    assert make_scope({}, {}).platform is None
    scope = make_scope({}, {"ADT_BUILD_PLATFORM": "linux-aarch64"})
    assert scope.platform is PLATFORMS["linux-aarch64"]
    preset = make_scope({"build.platform": "linux-aarch64-cpu"}, {})
    assert preset.platform is PLATFORMS["linux-aarch64"]
    assert make_scope({"build.platform": "nonsense"}, {}).platform is None


def test_the_serial_of_a_flag_comes_before_the_environment() -> None:
    assert make_scope({}, {"ANDROID_SERIAL": "b"}).serial == "b"
    assert make_scope({"device.serial": "a"}, {"ANDROID_SERIAL": "b"}).serial == "a"


def test_the_verb_checks_the_names_of_areas_and_is_not_hidden_by_a_package(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "AREAS", {Area.RPC: lambda _: iter([Question("fine", lambda: [OK])])})
    assert [(check.area, check.name) for check in adt.doctor("rpc").checks] == [(Area.RPC, "fine")]
    with pytest.raises(ConfigError, match="'hots'") as caught:
        adt.doctor("hots")
    assert "host" in caught.value.remedy
