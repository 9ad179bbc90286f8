"""An option is written once: flags, keywords, the environment and adt.toml are all made of one field."""

import inspect
import json
import pydoc
import re
import subprocess
import sys
import typing
from collections.abc import Iterator
from functools import partial
from inspect import isfunction
from pathlib import Path
from typing import Annotated, Any

import pytest
import typer
from typer.testing import CliRunner

import adt
from adt.cli.app import app
from adt.cli.command import command
from adt.errors import ConfigError, DiskError, InputError
from adt.options.option import Option, Options, option, options_of
from adt.options.request import Request, takes
from adt.options.resolve import known_options, load_settings
from adt.options.sections import SECTIONS, VerifySettings
from adt.verbs.arrays import PictureFlags
from adt.verbs.compile import CompileRequest
from adt.verbs.deploy import DeviceFlags
from adt.verbs.generate import GenerateFlags
from adt.verbs.rpc import TrackerRequest
from adt.verbs.tune_request import TuneRequest
from adt.verbs.up import UpRequest
from support.devices.programs import invoke
from support.requests import KINDS, requests

RUNNER = {"threads", "affinity", "warmup_ms", "zero_copy", "pre_compiled", "program_cache"}
OWN = {
    "build-target": {"explain"},
    "compile": {"explains"},
    "quantize": {*options_of(PictureFlags)},
    "tune": set(),
    "run": {*options_of(PictureFlags), "outputs", "labels", "top", "softmax", *RUNNER},
    "verify": {"layers", "calls", "everything", "chunk_bytes"},
    "bench": {"package", "ab", "rounds", "times"},
    "profile": {"sort", "everything", "trace", "html"},
    "deploy": {"serial", "everyone"},
    "up": {"output"},
    "apk": {"password_file"},
    "install": set(),
    "generate": {*options_of(GenerateFlags)},
    "clean": {"serial", "everyone"},
    "doctor": set(),
    "elf": set(),
    "report": {"html", "export", "imported", "fail_on_regression"},
}
"""Options of the command line alone, by verb: form and place of results, and the function that is called."""
NUMBERS = ("Int", "Float")
EVERYWHERE = {"as_json", "verbose", "help"}


@pytest.fixture
def commands() -> dict[str, Any]:
    return dict(typer.main.get_command(app).commands)  # type: ignore[attr-defined]


@pytest.mark.parametrize("verb", OWN)
def test_every_option_of_a_command_is_a_field_of_its_request(verb: str, commands: dict[str, Any]) -> None:
    request = getattr(adt, verb.replace("-", "_")).request
    shown = {param.name: param for param in commands[verb].params if param.name not in EVERYWHERE}
    of_fields = {name for name, about in options_of(request).items() if about.cli is not None}
    assert of_fields <= shown.keys()
    assert shown.keys() - of_fields == OWN[verb] - of_fields
    for name, about in options_of(request).items():
        if name in shown and name not in OWN[verb]:
            expected = {flag for flags in about.flags or (about.flag,) for flag in flags.split("/")}
            flags = {*shown[name].opts, *shown[name].secondary_opts}
            assert not about.kw_only or expected <= flags
            assert shown[name].help == about.short


def test_no_setting_is_written_twice() -> None:
    assert len(KINDS) > 10
    for request in KINDS:
        for about in options_of(request).values():
            if about.key:
                assert about is known_options()[about.key][0], about.key


@pytest.mark.parametrize(
    ("keyword", "key", "text", "value"),
    [
        ("target", "compile.target", "mali", "mali"),
        ("opt_level", "compile.opt_level", "1", 1),
        ("keep_float32", "compile.keep_float32", "exp;nn.softmax", ("exp", "nn.softmax")),
        ("check", "compile.check", "off", "off"),
        ("ndk", "build.ndk", "/some/ndk", "/some/ndk"),
    ],
)
def test_each_place_of_a_setting_arrives(
    keyword: str,
    key: str,
    text: str,
    value: Any,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    usual = CompileRequest("m.onnx")
    assert getattr(usual, keyword) == known_options()[key][0].default != value
    assert usual.named(keyword) is None
    section, _, name = key.partition(".")
    (tmp_path / "adt.toml").write_text(f"[{section}]\n{name} = {json.dumps(value)}\n")
    assert getattr(CompileRequest("m.onnx"), keyword) == value
    (tmp_path / "adt.toml").unlink()
    monkeypatch.setenv(f"ADT_{section.upper()}_{name.upper()}", text)
    from_environment = CompileRequest("m.onnx")
    assert getattr(from_environment, keyword) == value and from_environment.named(keyword) is None
    monkeypatch.setenv(f"ADT_{section.upper()}_{name.upper()}", "3" if value == 1 else "on")
    request = CompileRequest("m.onnx", **{keyword: value})
    assert getattr(request, keyword) == request.named(keyword) == value
    assert getattr(getattr(request.settings, section), name) == value
    assert getattr(request.but(model="n.onnx"), keyword) == value


def test_a_changed_request_keeps_the_settings_that_were_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "adt.toml").write_text('[compile]\nopt_level = 1\ntarget = "mali"\n')
    request = CompileRequest("m.onnx", check=True)
    (tmp_path / "adt.toml").unlink()
    changed = request.but(model="n.onnx", platform="host", target=None)
    assert (changed.model, changed.platform, changed.named("platform")) == (Path("n.onnx"), "host", "host")
    assert (changed.opt_level, changed.settings.compile.target, changed.named("target")) == (1, "mali", None)
    assert changed.resolved.origins["compile.opt_level"] == str(tmp_path / "adt.toml")
    assert changed.named("check") == "on" == changed.settings.compile.check
    assert (request.model, request.named("platform")) == (Path("m.onnx"), None)
    with pytest.raises(ConfigError, match=r"^opt_level = 'much'"):
        request.but(opt_level="much")


def test_paths_sequences_and_switches_are_taken_as_people_write_them() -> None:
    request = CompileRequest(
        "m.onnx",
        out="pkg",
        db=Path("records"),
        check=True,
        accuracy=False,
        accuracy_inputs=["a.npz"],
        shapes=["x:1"],
        keep_float32=[],
        target=None,
        use_cache=None,
    )
    assert (request.model, request.out) == (Path("m.onnx"), Path("pkg"))
    assert (request.db, request.check, request.accuracy) == ("records", "on", "off")
    assert request.accuracy_inputs == (Path("a.npz"),)
    assert (request.shapes, request.keep_float32, request.target) == (("x:1",), (), "cpu")
    assert request.use_cache is True
    by_name = CompileRequest("m.onnx", shapes={"x": (1, 3), "y": [], "batch": 2})
    assert by_name.shapes == ("x:1,3", "y:", "batch=2")
    assert requests.DeployRequest("one").packages == (Path("one"),)
    assert requests.DeployRequest(["one", Path("two")]).packages == (Path("one"), Path("two"))
    assert requests.LayersRequest("pkg", calls=(10, 20)).calls == (10, 20)
    assert requests.RunRequest("pkg", files=[Path("x.npy"), "y=z.raw"]).files == ("x.npy", "y=z.raw")
    with pytest.raises(AttributeError):
        request.target = "mali"


def test_a_request_without_options_that_are_settings_has_the_settings() -> None:
    request = TrackerRequest()
    assert request.settings.rpc == request.resolved.settings.rpc


def test_mistakes_in_keywords() -> None:
    with pytest.raises(TypeError, match=r"compile\(\).*'taget'"):
        adt.compile("m.onnx", taget="cpu")  # type: ignore[call-arg]
    with pytest.raises(TypeError, match=r"compile\(\).*'model'"):
        adt.compile()  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="model is None"):
        adt.compile(None)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match=r"^opt_level = 'much' is not of type int"):
        adt.compile("m.onnx", opt_level="much")  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match=r"^target = True is not of type str"):
        adt.compile("m.onnx", target=True)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match=r"^shapes = 5 is not of type list of str"):
        adt.compile("m.onnx", shapes=5)  # type: ignore[arg-type]


def test_options_are_values() -> None:
    settings = VerifySettings(seed=3)
    assert settings == VerifySettings(seed=3) != VerifySettings() and hash(settings) == hash(
        VerifySettings(seed=3)
    )
    assert settings.but(max_abs=0.5) == VerifySettings(seed=3, max_abs=0.5)
    assert "seed=3" in repr(settings) and settings.reference == "auto"
    with pytest.raises(TypeError, match="too many positional arguments"):
        CompileRequest("m.onnx", "pkg")  # type: ignore[misc]
    with pytest.raises(TypeError, match="multiple values for argument 'model'"):
        CompileRequest("m.onnx", model="n.onnx")  # type: ignore[misc]


def test_two_verbs_have_options_of_one_name_and_each_its_own_setting() -> None:
    tuning, whole = TuneRequest("m", timeout=3.0, seed=5), UpRequest("m", timeout=4.0, seed=6)
    assert (tuning.settings.tune.timeout, tuning.settings.tune.seed) == (3.0, 5)
    assert (tuning.settings.device.timeout, tuning.settings.verify.seed) == (0.0, 0)
    assert (whole.settings.device.timeout, whole.settings.verify.seed) == (4.0, 6)


@pytest.mark.parametrize(
    ("words", "keywords"),
    [
        (["m.onnx", "--shape", "x:1", "--shape", "y:2"], {"shapes": ["x:1", "y:2"]}),
        (["m.onnx", "--keep-float32", "exp,nn.softmax"], {"keep_float32": ["exp", "nn.softmax"]}),
        (["m.onnx", "--no-check", "--for", "host"], {"check": False, "platform": "host"}),
        (["m.onnx", "--no-cache", "-o", "pkg"], {"use_cache": False, "out": Path("pkg")}),
        (["m.onnx"], {"check": None, "use_cache": True, "target": None, "accuracy_inputs": None}),
    ],
)
def test_flags_become_keywords(words: list[str], keywords: dict[str, Any]) -> None:
    seen: dict[str, Any] = {}
    program = typer.Typer()

    @command("compile", group=program, json=False)
    def compile_(
        parsed: partial[CompileRequest],
        loud: Annotated[bool, option("Print more.", default=False)],
        devices: DeviceFlags,
    ) -> None:
        """Keep what came."""
        seen.update(parsed.keywords, loud=loud)
        assert devices == DeviceFlags(serial=None, everyone=False)

    done = CliRunner().invoke(program, [*words, "--loud"])
    assert done.exit_code == 0, done.output
    assert {name: seen[name] for name in keywords} == keywords
    assert (seen["model"], seen.pop("loud")) == (Path("m.onnx"), True)
    assert CompileRequest(**seen).model == Path("m.onnx")


def test_a_command_receives_the_request_that_it_was_parsed_into() -> None:
    seen: list[CompileRequest] = []
    program = typer.Typer()

    @command("compile", group=program, json=False)
    def compile_(request: CompileRequest, out: Annotated[Path | None, CompileRequest.out]) -> None:
        """Keep what came."""
        seen.append(request.but(out=out))

    done = CliRunner().invoke(program, ["m.onnx", "--for", "host", "-o", "pkg", "--input", "x"])
    assert done.exit_code == 2 and "No such option" in done.output
    done = CliRunner().invoke(program, ["m.onnx", "--for", "host", "-o", "pkg"])
    assert done.exit_code == 0, done.output
    assert seen == [CompileRequest("m.onnx", platform="host", out="pkg")]
    assert (seen[0].named("platform"), seen[0].named("target")) == ("host", None)


def test_requests_are_flat_and_few() -> None:
    assert all(kind.__bases__ in ((Options,), (Request,)) for kind in KINDS)
    assert all(kind.__bases__ == (Options,) for kind in SECTIONS.values())
    assert len(KINDS) + len(SECTIONS) <= 45


def test_a_function_that_takes_a_request_says_so() -> None:
    @takes(CompileRequest)
    def build(request: CompileRequest) -> str:
        """Build it.

        Raises:
            ConfigError: no.
        """
        return f"{request.model} {request.precision}"

    assert build("m", precision="float16") == "m float16"
    assert build(CompileRequest("m", precision="float16")) == "m float16"
    assert inspect.signature(build).parameters["model"].kind is inspect.Parameter.POSITIONAL_OR_KEYWORD
    assert inspect.signature(build).parameters["precision"].kind is inspect.Parameter.KEYWORD_ONLY
    assert "\nArgs:\n" in str(build.__doc__) and str(build.__doc__).rstrip().endswith("ConfigError: no.")


@pytest.mark.parametrize(
    ("verb", "several", "remedy"),
    [
        (adt.deploy, {"serials": ["a", "b"]}, "deploy_many"),
        (adt.clean, {"serials": ["a", "b"]}, "clean_many"),
        (adt.build_target, {"abis": ["arm64-v8a", "x86_64"]}, "build_abis"),
    ],
)
def test_a_verb_of_one_refuses_what_is_of_several(
    verb: Any, several: dict[str, list[str]], remedy: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        verb(**several)
    assert remedy in caught.value.remedy


def every_option() -> Iterator[tuple[str, Option, Any]]:
    """Yield each option of each command, and the type that typer gives it."""
    commands: list[tuple[str, Any]] = [("adt", typer.main.get_command(app))]
    for name, parsed in commands:
        commands += [(f"{name} {title}", child) for title, child in getattr(parsed, "commands", {}).items()]
        types = {parameter.name: parameter.type for parameter in parsed.params}
        for option_name, about in getattr(parsed, "options", {}).items():
            yield f"{name} {option_name}", about, types[option_name]


def test_each_number_has_a_range() -> None:
    numbers = {name: about for name, about, kind in every_option() if type(kind).__name__.startswith(NUMBERS)}
    assert len(numbers) > 60
    for about in numbers.values():
        for wrong in (about.least - 1, float("nan"), float("inf"), *([about.most + 1] if about.most else [])):
            with pytest.raises(ConfigError, match="is not a number"):
                about.checked(wrong)


@pytest.mark.parametrize(
    ("verb", "key", "wrong"),
    [
        (adt.compile, "compile.opt_level", 9),
        (adt.verify, "verify.max_abs", -1.0),
        (adt.tune, "tune.trials", 0),
        (adt.run, "verify.seed", -1),
    ],
)
def test_a_range_holds_wherever_the_number_comes_from(verb: Any, key: str, wrong: float) -> None:
    about, _ = known_options()[key]
    with pytest.raises(ConfigError, match=f"{about.flag}: {wrong} is not a number"):
        verb("none.onnx", **{about.name: wrong})
    with pytest.raises(ConfigError, match=f"from {about.variable}"):
        load_settings(environ={about.variable: str(wrong * 7 - 7)})


OUTPUTS = {"--out", "--output", "--html", "--trace", "--times", "--export", "--metaschedule", "--into"}


def test_each_output_is_checked_before_the_work(tmp_path: Path) -> None:
    outputs = [about for _, about, _ in every_option() if about.flag in OUTPUTS]
    assert len(outputs) > 20
    (tmp_path / "file").touch()
    for about in outputs:
        for place in ("/proc/x.npz", f"{tmp_path}/file/x.npz"):
            with pytest.raises((DiskError, InputError)):
                about.checked([place] if about.name == "outputs" else place)
    (tmp_path / "x.tar").touch()
    options_of(CompileRequest)["out"].checked(tmp_path / "x.tar")
    options_of(CompileRequest)["out"].checked(f"{tmp_path}/new/pkg")
    with pytest.raises(DiskError, match="is a file, and a directory is to be written"):
        options_of(CompileRequest)["out"].checked(tmp_path / "file")


def test_a_wrong_choice_is_seen_before_what_is_missing() -> None:
    done = CliRunner().invoke(app, ["tune", "none.onnx", "--tuner", "foo"])
    assert done.exit_code == ConfigError.exit_code and "--tuner: 'foo' is none of its values" in done.stderr


FUNCTIONS = {name: getattr(adt, name) for name in adt.NAMES if isfunction(getattr(adt, name))}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_help_of_each_verb_has_types_and_defaults(name: str) -> None:
    function, signature = FUNCTIONS[name], inspect.signature(FUNCTIONS[name])
    types = typing.get_type_hints(function)
    assert all(each.annotation == types[key] != str(types[key]) for key, each in signature.parameters.items())
    page = pydoc.plain(pydoc.render_doc(function))
    aliases = "PathTo|Texts?|Number|Switch|Flag|Real|MaybePath|Paths|Directory|Files|Arrays|AnyPath|Shapes"
    assert "_empty" not in page and not re.search(rf": '|: ({aliases})\b", page.splitlines()[2])
    assert {"trust", "insecure_no_digest"}.isdisjoint([*signature.parameters][:-2])
    for field, about in options_of(function.request).items() if hasattr(function, "request") else ():
        default = "" if about.default in (None, "", (), signature.empty) else f" Default: {about.default!r}."
        assert f"    {field}: {about.doc}{default}" in page
    assert "Raises:" in page or name.replace("_", "-") not in OWN


def test_keywords_are_named_as_flags_are() -> None:
    """Compare names: a flag may be in the singular where it is repeated; for ``--for`` there is ``--platform``."""
    for request in KINDS:
        for name, about in options_of(request).items():
            flags = {
                flag.strip("-").replace("-", "_") for spelling in about.flags for flag in spelling.split("/")
            }
            if name != "chunk_bytes" and about.cli is not None:  # --chunk-mb: sizes are in bytes in Python
                assert not flags or {name, name.removesuffix("s")} & flags, (request, name)


def test_a_program_of_all_verbs_passes_strict_type_checks(tmp_path: Path) -> None:
    text = (Path(__file__).parents[1] / "support/every_verb.py").read_text()
    assert {*re.findall(r"\badt\.(\w+)", text)} == {*adt.NAMES}
    (tmp_path / "program.py").write_text(text)
    (tmp_path / "wrong.py").write_text("import adt\nadt.complie('m')\nadt.run('p', run_count='x')\n")
    command = [sys.executable, "-m", "mypy", "--strict", "--cache-dir=/dev/null", "program.py", "wrong.py"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    lines = [line for line in done.stdout.splitlines() if ": error: " in line]
    assert [line.split(": ")[0] for line in lines] == ["wrong.py:2", "wrong.py:3"], done.stdout


def test_results_print_as_on_the_command_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ADT_DATA_DIR", str(tmp_path))
    result = adt.report()
    assert str(result) == invoke("report").stdout.strip()
    assert repr(result) == f"<TrendReport: {result}>"
    for verb in OWN.keys() - {"doctor", "elf"}:
        function = inspect.unwrap(FUNCTIONS[verb.replace("-", "_")])
        functions = filter(isfunction, vars(sys.modules[function.__module__]).values())
        firsts = [
            [*each.__annotations__.values()][:1] for each in functions if each.__name__.endswith("lines")
        ]
        assert firsts.count([function.__annotations__["return"]]) == 1, verb


def test_documentation_and_examples_use_public_names() -> None:
    root = Path(__file__).parents[2]
    pages = [root / "README.md", *(root / "docs").glob("*.md"), *(root / "examples").iterdir()]
    inner = re.compile(r"(?:from|import) adt\.|\badt\.(?!errors)\w+\.[\w.]+\(")
    for page in pages:
        assert not inner.findall(page.read_text()), page
