"""Refusals of run-as and their remedies."""

from __future__ import annotations

import pytest

from adt.device.app import _NOT_COPIED, _failure, check_app
from adt.device.transport.shell import Completed
from adt.errors import ConfigError, DeviceError, DeviceFull


@pytest.mark.parametrize(
    "app", ["", "app", "a..b", "com.example.app;rm", "com.example app", "../x.y", "-x.y"]
)
def test_only_names_of_apps_are_taken(app: str) -> None:
    with pytest.raises(ConfigError, match="not the name"):
        check_app(app)


def test_the_name_of_an_app_is_taken() -> None:
    assert check_app("com.example.app_2") == "com.example.app_2"


@pytest.mark.parametrize(
    ("said", "code", "kind", "remedy"),
    [
        ("run-as: unknown package: com.example.app", 1, ConfigError, "Install it"),
        ("run-as: Package 'com.example.app' is unknown", 1, ConfigError, "Install it"),
        ("run-as: package not debuggable: com.example.app", 1, ConfigError, "debug variant"),
        ("run-as: Package 'com.example.app' is not debuggable", 1, ConfigError, "debug variant"),
        ("run-as: package not an application: com.example.app", 1, ConfigError, "debug variant"),
        ("/system/bin/sh: run-as: inaccessible or not found", 127, DeviceError, "without --run-as"),
        ("sh: run-as: not found", 127, DeviceError, "without --run-as"),
        ("cp: write error: No space left on device", 1, DeviceFull, "adt clean"),
        ("run-as: couldn't stat /data/user/0/x: Permission denied", 1, DeviceError, "message above"),
    ],
)
def test_each_refusal_has_its_remedy(said: str, code: int, kind: type[Exception], remedy: str) -> None:
    error = _failure(
        Completed("S", ("run-as",), code, b"", said.encode()), _NOT_COPIED, app="com.example.app"
    )
    assert type(error) is kind
    assert remedy in error.remedy
    assert said in error.details
