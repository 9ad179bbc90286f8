"""Refusals of run-as and of the package manager, and their remedies."""

import pytest

from adt.device.app import _NOT_COPIED, _NOT_INSTALLED, _failure, check_app
from adt.device.transport.shell import Completed
from adt.errors import ConfigError, DeviceError, DeviceFull, MismatchError


@pytest.mark.parametrize(
    "app", ["", "app", "a..b", "com.example.app;rm", "com.example app", "../x.y", "-x.y"]
)
def test_only_names_of_apps_are_taken(app: str) -> None:
    with pytest.raises(ConfigError, match="not the name"):
        check_app(app)


def test_the_name_of_an_app_is_taken() -> None:
    assert check_app("com.example.app_2") == "com.example.app_2"


@pytest.mark.parametrize(
    ("output", "code", "kind", "remedy"),
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
def test_each_refusal_of_run_as_has_its_remedy(
    output: str, code: int, kind: type[Exception], remedy: str
) -> None:
    error = _failure(
        Completed("S", ("run-as",), code, b"", output.encode()), _NOT_COPIED, app="com.example.app"
    )
    assert type(error) is kind
    assert remedy in error.remedy
    assert output in error.details


@pytest.mark.parametrize(
    ("failure", "kind", "remedy"),
    [
        ("UPDATE_INCOMPATIBLE: Package com.a.b signatures", DeviceError, "adb -s S -- uninstall com.a.b"),
        ("VERSION_DOWNGRADE", DeviceError, "adt adb -s S -- uninstall com.a.b"),
        ("NO_MATCHING_ABIS: Failed to extract native libraries", MismatchError, "adt compile"),
        ("OLDER_SDK: Requires newer sdk version #35", MismatchError, "--api-level"),
        ("INSUFFICIENT_STORAGE", DeviceFull, "adt clean --serial S"),
        ("USER_RESTRICTED: Install canceled by user", DeviceError, "developer options"),
        ("MISSING_SHARED_LIBRARY", DeviceError, "own words"),
        ("SOMETHING_NEW", DeviceError, "adt adb -- install"),
        ("INSTALL_PARSE_FAILED_NO_CERTIFICATES: Failed collecting certificates", DeviceError, "apksigner"),
        ("INSTALL_PARSE_FAILED_MANIFEST_MALFORMED", DeviceError, "adt elf"),
        ("java.io.IOException: No space left on device", DeviceFull, "remove apps"),
        ("", DeviceError, "adt adb -- install"),
    ],
)
def test_each_refusal_of_the_package_manager_has_its_remedy(
    failure: str, kind: type[Exception], remedy: str
) -> None:
    failure = f"INSTALL_FAILED_{failure}" if failure[:1].isupper() and "INSTALL" not in failure else failure
    done = Completed("S", ("pm", "install"), 1, f"Failure [{failure}]\n".encode(), b"")
    error = _failure(done, _NOT_INSTALLED, app="com.a.b", begin="a.apk was not installed on S")
    assert type(error) is kind and remedy in error.remedy
    assert "a.apk was not installed on S" in error.what and failure in error.details
