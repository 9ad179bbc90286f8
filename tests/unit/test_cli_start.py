"""The command line starts without the heavy parts, and every verb has help with an example."""

import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer

import adt
from adt.bundle.libraries import LIBRARIES
from adt.cli.app import VERBS, app
from adt.compiler.targets.parser import NAMES as TARGETS
from adt.compiler.targets.socs import SOCS
from adt.errors import OutOfMemory
from adt.options.sections import PLATFORM_DEFAULT
from support.devices.programs import MAIN, invoke, try_program
from support.models.onnx_graphs import graph_of, node, write
from support.sampling import matrix

HEAVY = ("tvm", "adbutils", "PIL", "jinja2", "onnx", "numpy", "onnxruntime", "cattrs", "requests")
OBSERVED = (
    """
import atexit, json, sys
import typer.main

built = []
build = typer.main.get_params_convertors_ctx_param_name_from_function

def counted(callback):
    built.append(getattr(callback, "__module__", None))
    return build(callback)

def report():
    modules = [m for m in sys.modules if "." not in m or m.startswith(("adt.cli.", "adt.verbs."))]
    print("LOADED", json.dumps([modules, [m for m in built if m]]), file=sys.stderr)

atexit.register(report)
typer.main.get_params_convertors_ctx_param_name_from_function = counted
"""
    + MAIN
)
"""Says at its end what was imported, and the modules of the functions whose options typer built."""


def adt_program(*arguments: str, program: str = MAIN, **environ: str) -> subprocess.CompletedProcess[str]:
    return try_program(sys.executable, "-c", program, *arguments, **environ)


@pytest.fixture
def own_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HOME", "ADT_CACHE_DIR"):
        monkeypatch.setenv(name, str(tmp_path))


COMPLETION = {"_ADT_COMPLETE": "complete_bash"}


@pytest.mark.parametrize(
    ("arguments", "environ", "verbs"),
    [
        (["--version"], {}, set()),
        (["--help"], {}, set()),
        (["buld"], {}, set()),
        (["clean", "--help"], {}, {"deploy"}),
        (["db", "stats", "--help"], {}, {"db"}),
        ([], COMPLETION | {"COMP_WORDS": "adt em", "COMP_CWORD": "1"}, set()),
        ([], COMPLETION | {"COMP_WORDS": "adt bundles --rem", "COMP_CWORD": "2"}, {"build"}),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_start_builds_only_the_verb_asked_for(
    arguments: list[str], environ: dict[str, str], verbs: set[str]
) -> None:
    done = adt_program(*arguments, program=OBSERVED, **environ)
    loaded, built = json.loads(done.stderr.split("LOADED", 1)[1])
    assert not set(HEAVY) & set(loaded)
    assert set(built) == {"adt.cli.app", *(f"adt.verbs.{name}" for name in verbs)}
    registering = {f"adt.verbs.{module}" for verb in VERBS.values() for module in verb["modules"]}
    assert verbs or not registering & set(loaded)
    assert done.returncode == (2 if arguments == ["buld"] else 0), done.stderr
    if environ:
        assert ("--remove" if verbs else "emulator") in done.stdout


@pytest.mark.parametrize(
    ("api", "absent"),
    [
        ("build", ("adt.compiler", "adt.device", "cattrs")),
        ("device", ("adt.package.manifest", "adt.rpc", "cattrs")),
        ("package", ("adt.compiler.compile", "adt.compiler.passes.pipeline", "tvm")),
        ("run", ("adt.compiler.compile", "adt.rpc", "asyncio", "numpy", "statistics")),
    ],
)
def test_a_verb_imports_no_more_than_it_needs(api: str, absent: tuple[str, ...]) -> None:
    program = f"import json, sys, adt.verbs.{api}; print(json.dumps([*sys.modules]))"
    loaded = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert not {*absent} & {*json.loads(loaded.stdout)}


def test_modules_that_read_packages_and_models_import_no_tvm() -> None:
    modules = (
        "verbs.tune_result",  # and what every other verb of tuning imports
        "verbs.up",
        "measure.reference",
        "package.host_run.child",
        "compiler.importers.onnx.prepared_file",  # the process that reads models
        "package.integrity",
    )
    program = "import importlib, sys\nfor name in sys.argv[1:]:\n"
    program += "    importlib.import_module(f'adt.{name}')\n    print(name, 'tvm' in sys.modules)"
    command = [sys.executable, "-c", program, *modules]
    answer = subprocess.run(command, capture_output=True, text=True, check=True)
    assert answer.stdout.splitlines() == [f"{name} False" for name in modules]


def test_help_lists_every_verb() -> None:
    assert set(VERBS) == set(typer.main.get_command(app).commands)
    page = adt_program("--help").stdout
    for name, verb in VERBS.items():
        assert page.count(f"\n  {name} ") == 1 and verb["title"][:30] in page
    order = [line.split()[0] for line in page.splitlines() if line[:3].strip()]
    order = [order.index(word) for word in ("Start", "up", "Build:", "compile", "run", "tune", "apk", "Look")]
    assert order == sorted(order) and page.startswith("Start with: adt up MODEL.onnx\n")


def test_help_of_a_long_verb_groups_its_options_and_lists_names() -> None:
    page = adt_program("compile", "--help").stdout
    subjects = [line for line in page.splitlines() if line.endswith(":") and not line.startswith(" ")]
    places = ("Model and target:", "Security and caches:", "General:", "Without a phone:")
    assert [subjects.index(subject) for subject in places] == [
        1,
        *range(len(subjects) - 4, len(subjects) - 1),
    ]
    assert page.index("--target ") < page.index("--ndk ") < page.index("Security") < page.index("--trust ")
    words = set(page.replace(",", " ").replace("[", " ").replace("]", " ").split())
    assert {*LIBRARIES, *TARGETS, *(soc.name for soc in SOCS)} <= words
    short = adt_program("deploy", "--help").stdout
    assert "\nOptions:\n" in short and "\nDevice:\n" not in short


def test_python_m_adt_is_the_program() -> None:
    command = [sys.executable, "-m", "adt", "--version"]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=300)
    assert done.stdout == f"adt {adt.__version__}\n"


def verbs(path: str, command: Any) -> Iterator[tuple[str, Any]]:
    children = getattr(command, "commands", {})
    if not children:
        yield path, command
    for name, child in children.items():
        yield from verbs(f"{path} {name}".strip(), child)


COMMANDS = dict(verbs("", typer.main.get_command(app)))


def page(path: str, width: int = 78) -> str:
    """Return the help of a verb; a terminal of 80 columns leaves it 78."""
    context = COMMANDS[path].make_context(path, [], resilient_parsing=True, terminal_width=width)
    return str(COMMANDS[path].get_help(context))


FRAGMENT = re.compile(r"``|[*]\w+[*]|[Dd]efault|; else |\b(?!tvm_rpc|float16|libadt_)[a-z]+_[a-z_]+")
"""Markup, names of Python's parameters, and defaults said in another way than by the page."""


@pytest.mark.parametrize("path", COMMANDS)
def test_help_of_each_option_is_a_sentence_by_itself(path: str) -> None:
    for parameter in COMMANDS[path].params:
        text = parameter.help
        assert text[0].isupper() and text.endswith(".") and not text.endswith("…."), text
        assert not FRAGMENT.search(text), text
    assert not re.search(r"<\w+( range)?>|\{\w+\}|\{\{", page(path))


@pytest.mark.parametrize("path", COMMANDS)
@pytest.mark.parametrize("width", [58, 78, 198])
def test_help_fits_the_terminal(path: str, width: int) -> None:
    assert max(map(len, page(path, width).splitlines())) <= width


@pytest.mark.parametrize(
    ("path", "words"),
    [
        ("up", "MODEL --for --target --serial --ndk --trust --json"),
        ("report", "--device --package --since --label --threshold --json"),
        ("run", "PACKAGE --serial --input --image --seed --run-count --warmup-runs --warmup-ms --json"),
        ("bench", "--model --serial --runs --seconds --warmup-runs --warmup-ms --ab --rounds --trust"),
        (
            "verify",
            "--model --max-abs --max-rel --reference --layers --calls --all --chunk-mb --trust --json",
        ),
        ("tune", "--for --target --db --trials --per-task --early-stopping --ndk --trust"),
    ],
)
def test_options_that_belong_together_follow_each_other(path: str, words: str) -> None:
    flags = re.findall(r"^  (?:-\w, )?([\w-]+)", page(path).partition("\n\n")[2], re.M)
    assert [flag for flag in flags if flag in words.split()] == words.split()


@pytest.mark.parametrize(
    ("path", "flag", "default"),
    [
        ("compile", "PLATFORM", PLATFORM_DEFAULT),
        ("compile", "--target TARGET", "cpu"),
        ("compile", "--tf32 / --no-tf32", "off"),
        ("compile", "--precision {float32,float16,float16_acc32}", "float32"),
        ("run", "--top K", "5 with --labels"),
        ("run", "--serial SERIAL", "ANDROID_SERIAL, else the only device"),
        ("tune", "--trials N", "1000"),
        ("tune", "--wait NUMBER", "600"),
        ("tune", "--early-stopping K", "never"),
        ("verify", "--max-changed SHARE", "0.01"),
    ],
)
def test_defaults_are_shown_in_one_way(path: str, flag: str, default: str) -> None:
    text = " ".join(page(path).split())
    assert re.search(rf" {re.escape(flag)} [^\]]*\[[^\]]*default: {re.escape(default)}\]", text), text


def test_limits_are_the_type_or_stand_beside_the_default() -> None:
    assert "--port 1..65535 " in page("tracker start") and "--threads N  " in page("run")
    assert "[at least 1; default: 1]" in page("run")


@pytest.mark.parametrize(
    "path", ["up", "build-target", "compile", "tune", "generate", "run", "verify", "deploy"]
)
def test_help_shows_an_example_without_a_phone_and_one_with(path: str) -> None:
    lines = page(path).partition("\nWithout a phone")[2].splitlines()
    assert [line.split()[:2] for line in lines if line.startswith("  adt ")] == [["adt", path]] * 2
    assert any(line.startswith("With a phone") for line in lines)


def test_pages_of_groups_show_whole_titles() -> None:
    text = " ".join(adt_program("db", "--help").stdout.split())
    assert all(
        " ".join(COMMANDS[f"db {name}"].help.split("\n\n")[0].split()) in text for name in ("verify", "prune")
    )


@pytest.mark.parametrize(("path", "command"), COMMANDS.items(), ids=lambda x: str(x))
def test_each_verb_has_an_example_and_json(path: str, command: Any) -> None:
    assert (command.epilog and command.epilog.startswith(f"Example: adt {path}")) or "config" in path
    options = {name for parameter in command.params for name in parameter.opts}
    assert "--verbose" in options
    assert "--json" in options or path in ("adb", "init")


ENDLESS = {
    "adb": "is adb itself, until it ends or ctrl-C",
    "rpc stop": "waits for the watchdog, which has its own limits",
    "report": "reads what is on this machine",
}


def test_each_verb_that_waits_for_a_device_has_a_time_limit() -> None:
    options = {
        path: {name for parameter in command.params for name in parameter.opts}
        for path, command in verbs("", typer.main.get_command(app))
    }
    waiting = {path for path, names in options.items() if "--serial" in names} - ENDLESS.keys()
    assert waiting >= {
        "deploy",
        "run",
        "verify",
        "bench",
        "profile",
        "probe",
        "clean",
        "rpc start",
        "doctor",
        "up",
    }
    assert {path for path in waiting | {"devices"} if "--timeout" not in options[path]} == set()


KINDS = {2: "UsageError", 3: "ConfigError", 5: "NdkError", 8: "ModelError"}


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["buld"], 2, "No such command"),
        (["compile"], 2, "Missing argument"),
        (["compile", "absent.onnx", "--for", "host"], 8, "no model file absent.onnx"),
        (["compile", "absent.onnx", "--for", "android-arm64-v8a", "--ndk", "/absent"], 8, "absent.onnx"),
        (["up", "absent.onnx", "--for", "android-arm64-v8a", "--ndk", "/absent"], 8, "absent.onnx"),
        (["tune", "absent.onnx", "--db", "db", "--ndk", "/absent"], 8, "absent.onnx"),
        (["build-target", "--for", "hots"], 3, "Did you mean 'host'"),
        (["build"], 2, "adt build-target"),
        (["push", "x"], 2, "adt deploy sends a package and its bundle, adt adb -- push"),
        (["shell"], 2, "adt adb -- shell"),
        (["connect", "h:1"], 2, "adt adb -- connect"),
        (["logcat"], 2, "adt adb -- logcat"),
        (["run", "x", "--dry-run", "3"], 2, "No such option: --dry-run"),
        (["version"], 2, "adt --version"),
        (["build-target", "--ndk", "/absent"], 5, "/absent (from --ndk) is not a directory"),
        (["devices", "--nope"], 2, "No such option"),
        (["run", "x", "--seed", "many"], 2, "not a valid int"),
    ],
)
@pytest.mark.usefixtures("own_home")
def test_errors_have_a_code_and_a_remedy(arguments: list[str], code: int, message: str) -> None:
    done = invoke(*arguments)
    assert done.returncode == code
    assert message in done.stderr
    assert "Traceback" not in done.stderr
    first, second, *rest = done.stderr.splitlines()[-3 if code == 2 else -2 :]
    assert first.startswith("error: ") and second.startswith("remedy: ")
    assert all(line.startswith("Usage: ") for line in rest)
    done = invoke(*arguments, "--json")
    document = json.loads(done.stdout)
    assert (document["schema"], document["exit_code"], done.returncode) == ("adt.error", code, code)
    assert document["error"] == KINDS[code] and "rror: " in done.stderr
    assert message in document["what"] and (document["remedy"].endswith("--help") or code != 2)


INTERRUPT = "import os, signal, time\nos.kill(os.getpid(), signal.SIGINT)\ntime.sleep(60)\n"


@pytest.mark.parametrize(("module", "flags"), matrix(["typer", "onnx", "logging"], [[], ["--json"]]))
def test_ctrl_c_ends_with_one_line_whatever_is_being_imported(
    module: str, flags: list[str], tmp_path: Path
) -> None:
    """Interrupt at once (what the command line imports) and later (what the verb does)."""
    done = explained(tmp_path, module, INTERRUPT, *flags)
    assert done.returncode == 130
    assert done.stderr.splitlines() == ["interrupted: what was complete before is still there"]
    if flags:
        document = json.loads(done.stdout)
        assert (document["schema"], document["error"]) == ("adt.error", "Interrupted")
        assert document["exit_code"] == 130
    else:
        assert not done.stdout


def explained(directory: Path, module: str, code: str, *flags: str) -> subprocess.CompletedProcess[str]:
    """Explain a model in *directory*, with the module of *code* before the real one."""
    (directory / f"{module}.py").write_text(code)
    model = directory / "m.onnx"
    model.write_bytes(b"\x08\x08\x12\x00")
    path = os.pathsep.join([str(directory), os.environ.get("PYTHONPATH", "")])
    return adt_program("compile", str(model), "--explain", *flags, PYTHONPATH=path)


def test_no_memory_is_an_error_with_a_remedy(tmp_path: Path) -> None:
    code = "raise MemoryError('Unable to allocate 3.64 TiB')"
    done = explained(tmp_path, "onnx", code, "--json")
    document = json.loads(done.stdout)
    assert (done.returncode, document["error"]) == (OutOfMemory.exit_code, "OutOfMemory")
    assert "3.64 TiB" in document["what"] and "ulimit" in document["remedy"]
    assert "Traceback" not in done.stderr


def test_the_ready_command_is_the_users_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write(graph_of([node("Relu", ["x"], ["y"])], {"x": (1, "n")}, ["y"]), tmp_path / "a model.onnx")
    words = ["compile", str(path), "--for", "host", "--explain"]
    monkeypatch.setattr(sys, "argv", ["adt", *words])
    command = invoke(*words).stdout.splitlines()[-1].strip()
    assert command == f"adt compile '{path}' --for host --explain --shape n=16"
    assert invoke(*shlex.split(command)[1:]).returncode == 0


def test_names_of_the_package_are_found_right_after_the_import() -> None:
    assert sorted(adt.NAMES) == adt.__all__ == sorted({*dir(adt)} - {"__version__"})
    assert all(callable(getattr(adt, name)) for name in adt.NAMES if name != "errors")
    with pytest.raises(AttributeError, match=r"no attribute 'complie'\. Did you mean 'compile'\?$"):
        adt.complie  # type: ignore[attr-defined]  # noqa: B018
    program = "import sys, adt; print('compile' in dir(adt), *sys.modules); print(adt.errors.ModelError)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    first, last = done.stdout.splitlines()
    assert not {*HEAVY, "typer", "inspect", "ast"} & {*first.split()}
    assert {name for name in first.split() if name.startswith("adt")} == {"adt"}
    assert (first.split()[0], last) == ("True", "<class 'adt.errors.ModelError'>")
