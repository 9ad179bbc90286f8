"""Generated files are written again and again, and what the user wrote or edited is never lost."""

import json
from pathlib import Path

import pytest

from adt.errors import PackageError, WouldOverwrite
from adt.integrate import output
from adt.integrate.output import (
    RECORD,
    CopiedFile,
    FileStep,
    OutputFile,
    TextFile,
    WritePlan,
    diff,
    plan,
    write,
)

CODE = TextFile("src/detector.h", "int version = 1;\n")
NEW_CODE = TextFile("src/detector.h", "int version = 2;\n")
MAIN = TextFile("src/main.cc", "int main() {}\n", users=True)
SCRIPT = TextFile("run.sh", "#!/bin/sh\n")


@pytest.fixture(autouse=True)
def own_cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ADT_CACHE_DIR", str(tmp_path_factory.mktemp("cache")))


def generate(out: Path, *files: OutputFile, force: bool = False) -> WritePlan:
    write_plan = plan(files, out, kind="cpp")
    write(write_plan, force=force)
    return write_plan


def contents(out: Path) -> dict[str, str]:
    return {
        path.relative_to(out).as_posix(): path.read_text()
        for path in out.rglob("*")
        if path.is_file() and path.name != RECORD
    }


def steps(write_plan: WritePlan) -> dict[str, FileStep]:
    return {action.path: action.step for action in write_plan.actions}


def test_a_second_time_changes_nothing(tmp_path: Path) -> None:
    out = tmp_path / "out"
    (tmp_path / "lib.so").write_bytes(b"\x7fELF\0")
    files = (CODE, MAIN, SCRIPT, CopiedFile("lib/lib.so", tmp_path / "lib.so"))
    assert set(steps(generate(out, *files)).values()) == {FileStep.CREATE}
    before = {path: path.stat().st_mtime_ns for path in out.rglob("*")}
    again = generate(out, *files)
    assert steps(again) == {
        "src/detector.h": FileStep.SAME,
        "src/main.cc": FileStep.SAME,
        "run.sh": FileStep.SAME,
        "lib/lib.so": FileStep.SAME,
    }
    assert not again.changes
    assert {path: path.stat().st_mtime_ns for path in out.rglob("*")} == before


def test_what_changed_is_replaced_and_what_is_gone_is_removed(tmp_path: Path) -> None:
    generate(tmp_path / "out", CODE, MAIN, TextFile("deep/er/old.h", "old"), SCRIPT)
    (tmp_path / "out/src/main.cc").write_text("mine\n")
    write_plan = generate(tmp_path / "out", NEW_CODE, MAIN, SCRIPT)
    assert steps(write_plan)["deep/er/old.h"] is FileStep.REMOVE
    assert contents(tmp_path / "out") == {
        "src/detector.h": NEW_CODE.text,
        "src/main.cc": "mine\n",
        "run.sh": SCRIPT.text,
    }
    assert not (tmp_path / "out/deep").exists()


def test_the_users_file_comes_back_only_when_it_is_absent(tmp_path: Path) -> None:
    generate(tmp_path, MAIN)
    (tmp_path / "src/main.cc").write_text("mine\n")
    generate(tmp_path, TextFile(MAIN.path, "another template\n", users=True))
    assert (tmp_path / "src/main.cc").read_text() == "mine\n"
    (tmp_path / "src/main.cc").unlink()
    generate(tmp_path, MAIN)
    assert (tmp_path / "src/main.cc").read_text() == MAIN.text


def test_the_users_file_is_named_when_adts_of_today_is_another(tmp_path: Path) -> None:
    generate(tmp_path, MAIN, CODE)
    newer = TextFile(MAIN.path, "another template\n", users=True)
    assert steps(generate(tmp_path, newer, CODE))[MAIN.path] is FileStep.KEEP
    assert (tmp_path / MAIN.path).read_text() == MAIN.text
    assert MAIN.path not in json.loads((tmp_path / RECORD).read_text())["files"]


@pytest.mark.parametrize("edited", [False, True])
def test_a_file_that_was_adts_becomes_the_users(tmp_path: Path, edited: bool) -> None:
    """Bring a file that an earlier adt wrote each time up to date once, unless it was edited."""
    generate(tmp_path, TextFile("CMakeLists.txt", "of an earlier adt\n"))
    if edited:
        (tmp_path / "CMakeLists.txt").write_text("mine\n")
    users = TextFile("CMakeLists.txt", "include(adt.cmake)\n", users=True)
    first = generate(tmp_path, users)
    assert steps(first) == {users.path: FileStep.KEEP if edited else FileStep.UPDATE}
    assert contents(tmp_path) == {users.path: "mine\n" if edited else users.text}
    (tmp_path / users.path).write_text("of an earlier adt\n")  # which is the user's choice from now on
    assert steps(generate(tmp_path, users)) == {users.path: FileStep.KEEP}


def test_nothing_is_written_when_one_file_was_edited(tmp_path: Path) -> None:
    generate(tmp_path, CODE, SCRIPT)
    (tmp_path / "src/detector.h").write_text("edited\n")
    with pytest.raises(WouldOverwrite, match=r"src/detector\.h") as caught:
        generate(tmp_path, NEW_CODE, TextFile("run.sh", "new"), TextFile("another.h", ""))
    assert "--force" in caught.value.remedy
    assert contents(tmp_path) == {"src/detector.h": "edited\n", "run.sh": SCRIPT.text}
    generate(tmp_path, NEW_CODE, force=True)
    assert contents(tmp_path) == {"src/detector.h": NEW_CODE.text}
    assert not plan([NEW_CODE], tmp_path, kind="cpp").changes


def test_an_edited_file_that_is_no_longer_generated_stays(tmp_path: Path) -> None:
    generate(tmp_path, CODE, SCRIPT)
    (tmp_path / "run.sh").write_text("edited\n")
    assert steps(generate(tmp_path, CODE))["run.sh"] is FileStep.LEAVE
    assert (tmp_path / "run.sh").read_text() == "edited\n"
    assert "run.sh" not in steps(generate(tmp_path, CODE))  # it is the user's now
    with pytest.raises(WouldOverwrite, match=r"overwritten: not written by adt: run\.sh"):
        generate(tmp_path, CODE, SCRIPT)


def test_somebody_elses_file_is_not_overwritten(tmp_path: Path) -> None:
    (tmp_path / "src").mkdir()
    (tmp_path / "src/detector.h").write_text("foreign\n")
    with pytest.raises(WouldOverwrite) as caught:
        generate(tmp_path, CODE)
    assert "not written by adt: src/detector.h" in caught.value.details
    assert contents(tmp_path) == {"src/detector.h": "foreign\n"}
    assert not (tmp_path / RECORD).exists()
    generate(tmp_path, CODE, force=True)
    assert contents(tmp_path) == {"src/detector.h": CODE.text}


def test_a_file_that_is_already_right_is_taken_over(tmp_path: Path) -> None:
    (tmp_path / "src").mkdir()
    (tmp_path / "src/detector.h").write_text(CODE.text)
    assert steps(generate(tmp_path, CODE)) == {"src/detector.h": FileStep.SAME}
    generate(tmp_path, NEW_CODE)
    assert contents(tmp_path) == {"src/detector.h": NEW_CODE.text}


def test_an_edit_back_to_what_adt_wrote_is_no_edit(tmp_path: Path) -> None:
    generate(tmp_path, CODE)
    (tmp_path / "src/detector.h").write_text("edited\n")
    (tmp_path / "src/detector.h").write_text(CODE.text)
    generate(tmp_path, NEW_CODE)
    assert contents(tmp_path) == {"src/detector.h": NEW_CODE.text}


@pytest.mark.parametrize("files_written", [0, 1, 2, 3])
def test_what_was_interrupted_is_finished_by_other_code_the_next_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, files_written: int
) -> None:
    """Stop after any number of files: the record still knows every one as adt's own."""
    first = [TextFile(f"{name}.h", "1") for name in "abc"]
    second = [TextFile(f"{name}.h", "2") for name in "abc"]
    third = [TextFile(f"{name}.h", "3") for name in "ab"]
    generate(tmp_path, *first)
    place = output._place
    count = 0

    def interrupted(file: OutputFile, path: Path) -> None:
        nonlocal count
        if count == files_written:
            raise KeyboardInterrupt
        count += 1
        place(file, path)

    monkeypatch.setattr(output, "_place", interrupted)
    if files_written < len(second):
        with pytest.raises(KeyboardInterrupt):
            generate(tmp_path, *second)
    else:
        generate(tmp_path, *second)
    monkeypatch.undo()
    generate(tmp_path, *third)
    assert contents(tmp_path) == {"a.h": "3", "b.h": "3"}
    recorded = json.loads((tmp_path / RECORD).read_text())["files"]
    assert {path: len(digests) for path, digests in recorded.items()} == {"a.h": 1, "b.h": 1}


def test_an_interrupted_file_leaves_no_temporary_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(self: Path, _data: bytes) -> None:
        self.touch()
        raise KeyboardInterrupt

    monkeypatch.setattr(Path, "write_bytes", interrupted)
    with pytest.raises(KeyboardInterrupt):
        generate(tmp_path / "out", CODE)
    assert not (tmp_path / "out").exists()
    (tmp_path / "out").mkdir()
    with pytest.raises(KeyboardInterrupt):
        generate(tmp_path / "out", CODE)
    assert [path.name for path in (tmp_path / "out").rglob("*") if path.is_file()] == [RECORD]


def test_a_removed_binary_file_has_no_diff_of_its_bytes(tmp_path: Path) -> None:
    (tmp_path / "from.so").write_bytes(b"\x7fELF\0")
    generate(tmp_path / "out", CopiedFile("a.so", tmp_path / "from.so"))
    assert diff(plan([], tmp_path / "out", kind="cpp")) == "Binary files a/a.so and /dev/null differ\n"


def test_a_diff_shows_what_would_change_and_writes_nothing(tmp_path: Path) -> None:
    (tmp_path / "lib.so").write_bytes(b"\x7fELF\0")
    library = CopiedFile("lib/lib.so", tmp_path / "lib.so")
    out = tmp_path / "out"
    generate(out, CODE, TextFile("old.txt", "old\n"), TextFile("same.txt", "same\n"))
    write_plan = plan(
        [NEW_CODE, TextFile("new.txt", "no end"), library, TextFile("same.txt", "same\n")], out, kind="cpp"
    )
    assert diff(write_plan) == (
        "Binary files /dev/null and b/lib/lib.so differ, 5 bytes\n"
        "--- /dev/null\n+++ b/new.txt\n@@ -0,0 +1 @@\n+no end\n\\ No newline at end of file\n"
        "--- a/old.txt\n+++ /dev/null\n@@ -1 +0,0 @@\n-old\n"
        "--- a/src/detector.h\n+++ b/src/detector.h\n@@ -1 +1 @@\n"
        "-int version = 1;\n+int version = 2;\n"
    )
    assert set(contents(out)) == {"src/detector.h", "old.txt", "same.txt"}


def test_the_directory_of_another_kind_is_refused(tmp_path: Path) -> None:
    generate(tmp_path, CODE)
    with pytest.raises(PackageError, match="generated as cpp, not jni"):
        plan([CODE], tmp_path, kind="jni")


def test_a_file_or_directory_in_the_way_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(PackageError, match="is a file"):
        plan([CODE], tmp_path / "file", kind="cpp")
    (tmp_path / "out/src/detector.h").mkdir(parents=True)
    with pytest.raises(PackageError, match="is a directory"):
        generate(tmp_path / "out", CODE, force=True)


@pytest.mark.parametrize("text", ["", "{}", "not json", '{"schema": "adt.generated", "schema_version": 2}'])
def test_a_damaged_record_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / RECORD).write_text(text)
    with pytest.raises(PackageError, match=RECORD) as caught:
        plan([CODE], tmp_path, kind="cpp")
    assert caught.value.remedy


def test_a_record_cannot_name_files_elsewhere(tmp_path: Path) -> None:
    """Remove nothing outside of a project by a record that came with it from elsewhere."""
    outside = tmp_path / "outside"
    outside.write_text("precious\n")
    out = tmp_path / "out"
    generate(out, CODE)
    record = json.loads((out / RECORD).read_text())
    record["files"]["../outside"] = [output._digest(b"precious\n")]
    (out / RECORD).write_text(json.dumps(record))
    with pytest.raises(PackageError, match="outside"):
        generate(out, CODE)
    assert outside.read_text() == "precious\n"


def test_nothing_goes_through_a_symbolic_link(tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "detector.h").write_text(CODE.text)
    out = tmp_path / "out"
    out.mkdir()
    (out / "src").symlink_to(elsewhere)
    with pytest.raises(WouldOverwrite):
        generate(out, NEW_CODE)
    with pytest.raises(PackageError, match="symbolic link"):
        generate(out, NEW_CODE, force=True)
    with pytest.raises(PackageError, match="symbolic link"):
        generate(out, MAIN)
    assert contents(elsewhere) == {"detector.h": CODE.text}


def test_a_link_in_place_of_a_file_is_replaced_by_force_and_not_followed(tmp_path: Path) -> None:
    target = tmp_path / "target.h"
    target.write_text("precious\n")
    out = tmp_path / "out"
    generate(out, CODE)
    (out / CODE.path).unlink()
    (out / CODE.path).symlink_to(target)
    with pytest.raises(WouldOverwrite):
        generate(out, NEW_CODE)
    generate(out, NEW_CODE, force=True)
    assert (out / CODE.path).read_text() == NEW_CODE.text and not (out / CODE.path).is_symlink()
    assert target.read_text() == "precious\n"


@pytest.mark.parametrize("path", ["/etc/passwd", "../out", "a/../b", "a\\b", "a//b", "./a", "", RECORD])
def test_generators_cannot_leave_the_directory(tmp_path: Path, path: str) -> None:
    with pytest.raises(ValueError):
        plan([TextFile(path, "")], tmp_path, kind="cpp")


def test_two_files_of_one_path_are_a_bug(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="two files"):
        plan([TextFile("A.h", ""), TextFile("a.h", "")], tmp_path, kind="cpp")
