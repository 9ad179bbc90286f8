"""What `adt apk` needs on this machine."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping

from adt.checkup.check import Area, Check, Question, Status
from adt.errors import SdkError, ToolNotFound
from adt.host.android_sdk import find_apk_tools

NAME = "APK tools"


def check_tools(environ: Mapping[str, str], keytool: str | None) -> Check:
    """Whether an APK can be linked and signed; nobody else needs it, so its lack is a warning.

    Args:
        keytool: its path; None when there is none, and so no Java.
    """
    try:
        tools = find_apk_tools(environ=environ)
    except (ToolNotFound, SdkError) as why:
        found = f"{why.what}; only `adt apk` needs them"
        return Check(Area.HOST, NAME, Status.WARNING, found, remedy=why.remedy)
    if keytool is None:
        found = "there is no keytool, and so no Java for apksigner; only `adt apk` needs it"
        remedy = "apt-get install default-jre-headless"
        return Check(Area.HOST, NAME, Status.WARNING, found, tools.origin, remedy)
    return Check(Area.HOST, NAME, Status.OK, f"{tools.aapt2}, {tools.apksigner}", tools.origin)


def questions(environ: Mapping[str, str]) -> Iterator[Question]:
    """One."""

    def tools() -> Iterator[Check]:
        yield check_tools(environ, shutil.which("keytool"))

    yield Question(Area.HOST, NAME, tools)
