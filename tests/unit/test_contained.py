"""Files that another file names: regular ones below a directory, and nothing else."""

import os
from pathlib import Path

import pytest

from adt.host.contained import UnsafeFile, contained_file, contained_name, file_name, read_contained


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    inside = tmp_path / "package"
    (inside / "inspect").mkdir(parents=True)
    (inside / "inspect" / "a.json").write_text("{}")
    (tmp_path / "secret").write_text("secret")
    (inside / "link").symlink_to(tmp_path / "secret")
    (inside / "out").symlink_to(tmp_path)
    (inside / "zero").symlink_to("/dev/zero")
    os.mkfifo(inside / "fifo")
    return inside


@pytest.mark.parametrize(
    "name",
    ["../secret", "a/../../secret", "/etc/passwd", "", ".", "link", "out/secret", "zero", "fifo", "inspect",
     "a\nb", "a\x1b[2J", "x" * 256, "./../secret"],
)  # fmt: skip
def test_what_leads_out_or_is_no_regular_file_is_refused(directory: Path, name: str) -> None:
    with pytest.raises(UnsafeFile):
        read_contained(directory, name)


def test_a_regular_file_is_read(directory: Path) -> None:
    assert read_contained(directory, "inspect/a.json") == b"{}"
    assert contained_file(directory, "./inspect/a.json").read_text() == "{}"


def test_the_directory_itself_may_be_a_link(directory: Path, tmp_path: Path) -> None:
    (tmp_path / "latest").symlink_to(directory)
    assert read_contained(tmp_path / "latest", "inspect/a.json") == b"{}"


def test_a_larger_file_is_refused(directory: Path) -> None:
    with pytest.raises(UnsafeFile, match="more than 1 bytes"):
        read_contained(directory, "inspect/a.json", most=1)


def test_a_missing_file_is_an_error_of_the_system(directory: Path) -> None:
    with pytest.raises(FileNotFoundError):
        read_contained(directory, "absent")


def test_names_of_files_that_are_written() -> None:
    assert file_name("kernel_1.json") == "kernel_1.json"
    assert contained_name("a/b").parts == ("a", "b")
    for name in ("a/b", "a/", "../a", "/a", ".."):
        with pytest.raises(UnsafeFile):
            file_name(name)
