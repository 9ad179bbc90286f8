"""Whatever an option, a variable or a tracker says, its parser ends in a value or an AdtError."""

import contextlib
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

import adt
from adt.bundle.libraries import parse_libraries
from adt.compiler.importers.shapes import parse_shapes
from adt.compiler.targets.parser import parse_target
from adt.device import selection
from adt.device.survey import Survey
from adt.device.transport.adb import server_port
from adt.errors import AdtError, ConfigError
from adt.host.download import _file_name
from adt.limits import natural
from adt.measure.conditions import parse_cool_down
from adt.measure.history import moment
from adt.options.resolve import known_options, load_settings
from adt.package.inputs.pictures import parse_numbers, parse_size
from adt.rpc import wire
from adt.tuning.fleet.builders import _connect
from adt.verbs.verify import call_span
from adt.virtual.packages import is_distribution, parse_one_line, ports_twin

DIGITS = "9" * 5000
"""More than Python makes a number of."""
PIECES = [
    *"[]:/%@?#,=-+'\"{}. \0\nsdhxX", "::1", "127.0.0.1", "://", "https://", "dask://", "%25", DIGITS, "65536", "0",
    "²", "١", "\udcff", "1e999", "nan", "inf", "opencl", "llvm", "-mcpu=", "batch", "2026-01-31", "T24:00", "C",
]  # fmt: skip
TEXTS = st.one_of(st.text(max_size=20), st.lists(st.sampled_from(PIECES), max_size=6).map("".join))
BOUNDED = settings(max_examples=60, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))


def survey(text: str) -> object:
    """Read *text* wherever a device's survey has a number."""
    properties = f"[ro.build.version.sdk]: [{text}]\n[ro.product.cpu.abilist]: [arm64-v8a]"
    parts = {
        "page": text,
        "cpuinfo": f"processor : {text}\nCPU part : 0x{text}",
        "cpus": f"{text} 1 {text} - -",
    }
    parts |= {"memory": f"MemTotal: {text} kB", "thermal": f"{text} cpu", "properties": properties}
    read = Survey(parts | {"space": f"\n{text} {text} {text} {text} 1%"})
    return read.facts.api_level, read.cpu, read.memory, read.hottest, read.free_space


def source(text: str) -> object:
    return [
        is_distribution(each, "bookworm") and ports_twin(each)
        for each in parse_one_line(f"deb {text} bookworm main")
    ]


PARSERS: dict[str, Callable[[str], object]] = {
    "address": wire.parse_address,
    "registered": lambda text: wire.Registered("key", f"host:{text}").port,
    "grant": lambda text: wire.parse_grant([wire.SUCCESS, ["host", text, "key"]], "tracker"),
    "serial": lambda text: selection.choose(selection.parse_listing(text), text, origin="--serial"),
    "url": lambda text: _file_name(f"https://{text}"),
    "source": lambda text: source(f"http://{text}/debian"),
    "survey": survey,
    "since": moment,
    "cool down": parse_cool_down,
    "size": parse_size,
    "numbers": lambda text: parse_numbers(text, "--mean"),
    "libraries": parse_libraries,
    "shapes": lambda text: parse_shapes([text]),
    "target": parse_target,
    "calls": call_span,
}


@pytest.mark.parametrize("name", PARSERS)
@BOUNDED
@example(text=DIGITS)
@example(text=f"x:{DIGITS}")
@example(text=f"{DIGITS}s")
@example(text="²")
@example(text="[::1/m.onnx")
@example(text="127.0.0.1:99999/m.onnx")
@given(text=TEXTS)
def test_each_parser_refuses_by_name(name: str, text: str) -> None:
    with contextlib.suppress(AdtError):
        PARSERS[name](text)


@BOUNDED
@example(value=DIGITS)
@example(value=1 << 40_000)
@example(value=float("inf"))
@given(value=st.one_of(TEXTS, st.integers(), st.floats(), st.lists(TEXTS, max_size=2), st.none()))
def test_each_setting_refuses_by_name(value: object) -> None:
    """Set each by a flag, and by a variable of the environment where that can hold it."""
    for key, (about, _) in known_options().items():
        with contextlib.suppress(AdtError):
            load_settings({key: value}, environ={})
        if isinstance(value, str):
            with contextlib.suppress(AdtError):
                load_settings({}, environ={about.variable: value})


@pytest.mark.parametrize("key", ["build.jobs", "device.timeout", "device.serial"])
@pytest.mark.parametrize("number", ["0x" + "f" * 5000, "1" * 5000])
def test_a_number_of_a_file_that_nothing_has_room_for(tmp_path: Path, key: str, number: str) -> None:
    section, _, name = key.partition(".")
    (tmp_path / "adt.toml").write_text(f"[{section}]\n{name} = {number}\n")
    with pytest.raises(ConfigError, match=r"is not of type|is not valid TOML"):
        load_settings(environ={}, start=tmp_path)


@BOUNDED
@example(text="²")
@given(text=TEXTS)
def test_the_port_of_adb(text: str) -> None:
    if "\0" in text or any(0xD800 <= ord(character) < 0xDC80 for character in text):
        return  # no environment holds it
    for name in ("ANDROID_ADB_SERVER_PORT", "ADB_SERVER_SOCKET"):
        with pytest.MonkeyPatch.context() as patch, contextlib.suppress(AdtError):
            patch.delenv("ADB_SERVER_SOCKET", raising=False)
            patch.setenv(name, os.fsdecode(os.fsencode(f"tcp:{text}" if "SOCKET" in name else text)))
            assert 0 < server_port() < 65536


JSON: Any = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), TEXTS),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(TEXTS, inner, max_size=3)),
    max_leaves=6,
)


@BOUNDED
@example(free=float("inf"), port=1)
@example(free=1.5, port=DIGITS)
@given(free=JSON, port=JSON)
def test_what_a_tracker_says(free: object, port: object) -> None:
    raw = {"queue_info": {"key": {"free": free}}, "server_info": [{"key": "server:key", "addr": ["h", port]}]}
    with contextlib.suppress(ValueError):  # which its reader calls no tracker
        assert all(0 <= server.port < 65536 for server in wire.parse_summary(raw).servers)
    with contextlib.suppress(AdtError):
        assert 0 < wire.parse_grant([wire.SUCCESS, ["host", port, "key"]], "tracker").port < 65536


def test_an_address_that_is_none_is_a_mistake_of_the_user() -> None:
    for place in (f"https://[::1/m.onnx#sha256={'0' * 64}", "https://h:99999/m.onnx", "https://:1/m.onnx"):
        for any_digest in (False, True):
            with pytest.raises(ConfigError, match=r"no address to download from|its sha256 is missing"):
                adt.explain(place, insecure_no_digest=any_digest)


@pytest.mark.parametrize("place", ["[::1", "[:1", "a b:1", "h:99999", "[h:1", "²:²"])
def test_an_address_of_no_scheduler_is_refused_by_name(place: str) -> None:
    with pytest.raises(ConfigError, match="no address of a Dask scheduler"):
        _connect(f"dask://{place}")


def test_natural() -> None:
    assert [natural(text, 80) for text in ("0", "80", "81", "", "-1", "²", "١", DIGITS, "1 ")] == [
        0, 80, *[None] * 7
    ]  # fmt: skip
