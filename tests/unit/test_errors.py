"""The exit-code table: complete, distinct, documented."""

import pickle
import traceback

import pytest

from adt import errors


def test_exit_codes_are_distinct_and_leave_the_shell_its_own() -> None:
    codes = [error.exit_code for error in errors.all_errors()]
    assert len(codes) == len(set(codes)) > 15
    reserved = {0, errors.INTERNAL, errors.USAGE, *range(124, 256)}
    assert not reserved & set(codes)


@pytest.mark.parametrize("error", list(errors.all_errors()), ids=lambda e: e.__name__)
def test_each_class_says_what_it_means(error: type[errors.AdtError]) -> None:
    assert error.__doc__ and error.__doc__.strip() != (errors.AdtError.__doc__ or "").strip()


def test_an_error_needs_a_remedy() -> None:
    with pytest.raises(TypeError):
        errors.ModelError("something")  # type: ignore[call-arg]


def test_control_characters_of_a_drivers_log_are_not_shown() -> None:
    error = errors.RunError("a\0b", remedy="", details="line 1\n\tline 2\x1b[31m\0")
    assert (error.what, error.details) == ("ab", "line 1\n\tline 2[31m")


@pytest.mark.parametrize("kind", list(errors.all_errors()), ids=lambda kind: kind.__name__)
def test_a_traceback_has_the_remedy_once_also_from_another_process(kind: type[errors.AdtError]) -> None:
    error = kind("it broke", remedy="adt doctor", details="a line", options=["--jobs", "1"])
    copy = pickle.loads(pickle.dumps(error))
    for each in (error, copy):
        lines = "".join(traceback.format_exception(each)).splitlines()
        assert lines == [f"adt.errors.{kind.__name__}: it broke", "remedy: adt doctor"]
    assert (type(copy), vars(copy)) == (kind, vars(error))
