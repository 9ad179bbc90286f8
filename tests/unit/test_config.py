"""Precedence, origins and mistakes of the settings."""

import contextlib
import inspect
import os
from pathlib import Path

import pytest

from adt.bundle import plugins
from adt.checkup.check import make_scope
from adt.errors import ConfigError, SourceError
from adt.options.option import options_of
from adt.options.resolve import _show_program, executed, known_options, load_settings
from adt.options.sections import SECTIONS
from adt.verbs.build import BuildRequest
from adt.verbs.deploy import DeployRequest
from adt.verbs.inspect import ElfRequest


def test_precedence_and_origin(tmp_path: Path) -> None:
    project = tmp_path / "project"
    inside = project / "deep" / "inside"
    inside.mkdir(parents=True)
    text = "[tool.adt.build]\njobs = 1\napi_level = 29\nrpc = false\nopencl = false\n"
    (project / "pyproject.toml").write_text(text)
    (project / "adt.toml").write_text("[build]\njobs = 2\napi_level = 30\nrpc = true\n")
    environ = {"ADT_BUILD_JOBS": "3", "ADT_BUILD_API_LEVEL": "31"}
    loaded = load_settings({"build.jobs": 4, "build.ndk": None}, environ=environ, start=inside)
    build = loaded.settings.build
    assert (build.jobs, build.api_level, build.rpc, build.opencl, build.ndk) == (4, 31, True, False, "")
    assert loaded.origins["build.jobs"] == "flag"
    assert loaded.origins["build.api_level"] == "ADT_BUILD_API_LEVEL"
    assert loaded.origins["build.rpc"] == str(project / "adt.toml")
    assert loaded.origins["build.opencl"] == f"{project / 'pyproject.toml'} [tool.adt]"
    assert loaded.origins["build.ndk"] == "default"


@pytest.mark.parametrize("theirs", ["file", "link", "directory"])
@pytest.mark.parametrize("name", ["adt.toml", "pyproject.toml"])
def test_settings_of_another_user_are_not_read(
    tmp_path: Path, name: str, theirs: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Refuse what lies in a stranger's directory, and a stranger's link to a file of ours."""
    tmp_path = tmp_path / "project"
    tmp_path.mkdir()
    path = file = tmp_path / name
    if theirs == "link":
        file = tmp_path.parent / "elsewhere"
        path.symlink_to(file)
    file.write_text("[build]\njobs = 2\n" if name == "adt.toml" else "[tool.adt.build]\njobs = 2\n")
    assert load_settings(environ={}, start=tmp_path).settings.build.jobs == 2
    if os.geteuid() == 0:
        os.chown(tmp_path if theirs == "directory" else path, 54321, -1, follow_symlinks=False)
    else:
        monkeypatch.setattr(os, "geteuid", lambda: 54321)
    resolved = load_settings(environ={}, start=tmp_path)
    assert resolved.settings.build.jobs != 2 and resolved.origins["build.jobs"] == "default"
    (line,) = (record.message for record in caplog.records)
    remedy = line.partition("export ")[2].partition("=")
    assert remedy[0] == "ADT_SAFE_DIRECTORY"
    assert remedy[2] == str(tmp_path)
    assert load_settings(environ={remedy[0]: remedy[2]}, start=tmp_path).settings.build.jobs == 2
    assert load_settings(environ={remedy[0]: "*"}, start=tmp_path).settings.build.jobs == 2


@pytest.mark.parametrize(("name", "table"), [("adt.toml", "[build]"), ("pyproject.toml", "[tool.adt.build]")])
def test_what_a_project_has_run_is_shown_once(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    name: str,
    table: str,
) -> None:
    (tmp_path / name).write_text(f"{table}\nndk = '/some/ndk'\njobs = 2\n")
    monkeypatch.chdir(tmp_path)
    _show_program.cache_clear()
    with caplog.at_level("INFO", logger="adt"):
        DeployRequest()  # runs nothing of it
        assert not caplog.records
        for _ in range(2):
            ElfRequest("x")
        ElfRequest("x", ndk="/mine")
        monkeypatch.setenv("ADT_BUILD_NDK", "/mine")
        ElfRequest("x")
    lines = [record.getMessage() for record in caplog.records]
    assert len(lines) == 1 and str(tmp_path / name) in lines[0] and "build.ndk = /some/ndk" in lines[0]


def test_each_setting_that_names_a_place_says_whether_code_there_is_run() -> None:
    """Require the mark of new settings, too: what is run is shown when a project's file sets it."""
    for section in SECTIONS.values():
        annotations = {}
        for base in section.__mro__:
            annotations |= inspect.get_annotations(base)
        for name, about in options_of(section).items():
            place = annotations[name] in ("Directory", "Files", "PathTo", "MaybePath", "Paths")
            place |= any(word in about.metavar for word in ("DIR", "FILE", "PATH", "HOST", "PROGRAM"))
            assert place == (about.executes is not None), about.key


def test_what_is_run_is_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Try each setting by each way to it: a verb of builds, the doctor, the build of a plugin."""
    keys = sorted(executed())
    assert {"build.xnnpack_source", "build.clml", "build.opencl_sdk", "tune.builders"} < {*keys}
    (tmp_path / "adt.toml").write_text(_toml(keys))
    monkeypatch.chdir(tmp_path)
    for way in (BuildRequest, lambda: make_scope({}, os.environ), lambda: plugins.build(plugins.OPENCL)):
        _show_program.cache_clear()
        caplog.clear()
        with caplog.at_level("INFO", logger="adt"), contextlib.suppress(SourceError):
            way()
        lines = "\n".join(record.getMessage() for record in caplog.records)
        assert all(f"sets {key} = /theirs" in lines for key in keys)
    security = (Path(__file__).parents[2] / "docs/security.md").read_text()
    assert all(f"`{key}`" in security for key in keys)


def _toml(keys: list[str]) -> str:
    """Write a file that sets each of *keys*."""
    sections: dict[str, str] = {}
    for key in keys:
        section, _, name = key.partition(".")
        sections[section] = f"{sections.get(section, '')}{name} = '/theirs'\n"
    return "".join(f"[{section}]\n{rows}" for section, rows in sections.items())


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[build]\njob = 2\n", "Did you mean 'jobs'"),
        ("[biuld]\njobs = 2\n", "Did you mean 'build'"),
        ("[build]\njobs = 'two'\n", "is not of type int"),
        ("[build]\nopencl = 1\n", "is not of type bool"),
        ("[compile]\nshapes = [1]\n", "compile.shapes"),
        ("[build\n", "not valid TOML"),
        ("build = 3\n", "must be a table"),
    ],
)
def test_mistakes_in_a_file(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "adt.toml").write_text(text)
    with pytest.raises(ConfigError, match=message):
        load_settings(environ={}, start=tmp_path)


@pytest.mark.parametrize(
    ("variable", "value", "message"),
    [
        ("ADT_BUILD_JOBZ", "1", "Did you mean 'ADT_BUILD_JOBS'"),
        ("ADT_BUILD_JOBS", "many", "ADT_BUILD_JOBS"),
        ("ADT_BUILD_RPC", "perhaps", "is not of type bool"),
    ],
)
def test_mistakes_in_the_environment(tmp_path: Path, variable: str, value: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        load_settings(environ={variable: value}, start=tmp_path)


def test_environment_converts(tmp_path: Path) -> None:
    environ = {"ADT_COMPILE_SHAPES": "a:1,2;b:3", "ADT_BUILD_RPC": "off", "ADT_VERIFY_MAX_ABS": "0.5"}
    settings = load_settings(environ=environ, start=tmp_path).settings
    assert settings.compile.shapes == ("a:1,2", "b:3")
    assert settings.build.rpc is False
    assert settings.verify.max_abs == 0.5


def test_every_setting_is_documented() -> None:
    for section in SECTIONS.values():
        assert all(about.doc and about.short for about in options_of(section).values())


def test_init_writes_what_load_reads(tmp_path: Path) -> None:
    from adt.verbs.build import write_initial

    path = write_initial(tmp_path, "host")
    loaded = load_settings(environ={}, start=tmp_path)
    assert loaded.settings.build.platform == "host"
    assert loaded.origins["build.platform"] == str(path)
    with pytest.raises(ConfigError, match="left alone"):
        write_initial(tmp_path, "host")


@pytest.mark.parametrize(
    ("key", "wrong", "message"),
    [
        (
            "compile.precision",
            "float61",
            "--precision: 'float61' is none of its values. Did you mean 'float16'",
        ),
        ("tune.cost_model", "mlp", "--cost-model: 'mlp' is none of its values"),
        ("tune.tuner", "genetic", "--tuner: 'genetic' is none of its values"),
        ("verify.fill_mode", "one", "Did you mean 'ones'"),
    ],
)
def test_a_word_that_is_none_of_the_choices(key: str, wrong: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message) as caught:
        load_settings({key: wrong}, environ={})
    assert all(choice in caught.value.remedy for choice in known_options()[key][0].choices)
