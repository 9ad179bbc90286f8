"""Drive a real browser: headless Chromium over its debugging pipe, with nothing else installed."""

import base64
import contextlib
import itertools
import json
import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

NAMES = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")
SHELL = 'in=$1 out=$2; shift 2; exec "$@" 3<&$in 4>&$out'
"""The browser reads commands from descriptor 3 and answers on 4."""


class Page:
    """One page of a running browser."""

    def __init__(self, commands: int, answers: int) -> None:
        self._commands, self._answers = commands, os.fdopen(answers, "rb")
        self._numbers = itertools.count(1)
        self._session = ""
        self._pending = b""
        self.complaints: list[str] = []
        """Lines that the page wrote to its console, and exceptions that nothing caught."""
        self.requests: list[str] = []
        """Addresses that it asked for."""
        target = self.ask("Target.createTarget", url="about:blank", width=1500, height=950)["targetId"]
        self._session = self.ask("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Network", "Log"):
            self.ask(f"{domain}.enable")

    def ask(self, method: str, **parameters: Any) -> dict[str, Any]:
        """Send one command of the DevTools protocol and return its result."""
        number = next(self._numbers)
        message = {"id": number, "method": method, "params": parameters}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._commands, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._receive()
            if answer.get("id") == number:
                assert "error" not in answer, answer["error"]
                result: dict[str, Any] = answer["result"]
                return result

    def _receive(self) -> dict[str, Any]:
        while b"\0" not in self._pending:
            data = self._answers.read1(1 << 16)
            assert data, "the browser ended"
            self._pending += data
        text, _, self._pending = self._pending.partition(b"\0")
        message: dict[str, Any] = json.loads(text)
        facts = message.get("params", {})
        match message.get("method"):
            case "Runtime.exceptionThrown":
                self.complaints.append(str(facts["exceptionDetails"]))
            case "Runtime.consoleAPICalled":
                self.complaints.append(str(facts["args"]))
            case "Log.entryAdded":
                self.complaints.append(facts["entry"]["text"])
            case "Network.requestWillBeSent":
                self.requests.append(facts["request"]["url"])
        return message

    def open(self, file: Path) -> None:
        """Load *file* and wait until its scripts have run."""
        self.ask("Page.navigate", url=file.resolve().as_uri())
        self.ask("Page.bringToFront")
        while self.run("document.readyState") != "complete":
            pass

    def run(self, script: str) -> Any:
        """Return the value of a JavaScript expression."""
        result = self.ask("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in result, result["exceptionDetails"]
        return result["result"].get("value")

    def click(self, selector: str) -> None:
        """Click in the middle of the first element that *selector* names."""
        quoted = json.dumps(selector)
        x, y = self.run(
            f"(() => {{ const e = document.querySelector({quoted}); e.scrollIntoView({{block: 'center'}});"
            " const b = e.getBoundingClientRect(); return [b.x + b.width / 2, b.y + b.height / 2]; })()"
        )
        for kind in ("mousePressed", "mouseReleased"):
            self.ask("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=1)

    def screenshot(self, file: Path) -> None:
        file.write_bytes(base64.b64decode(self.ask("Page.captureScreenshot", format="png")["data"]))


@contextlib.contextmanager
def browser() -> Iterator[Page]:
    """Open a browser with one empty page; it and all that it started is gone afterwards."""
    program = next(filter(None, map(shutil.which, NAMES)), None)
    assert program, "no Chromium is installed: apt-get install chromium-headless-shell"
    read_commands, write_commands = os.pipe()
    read_answers, write_answers = os.pipe()
    with tempfile.TemporaryDirectory(prefix="adt-browser-") as profile:
        options = [
            "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars",
            "--no-first-run", "--disable-background-networking", "--remote-debugging-pipe",
            f"--user-data-dir={profile}",
        ]  # fmt: skip
        words = ["bash", "-c", SHELL, "bash", str(read_commands), str(write_answers), program, *options]
        child = subprocess.Popen(
            words,
            pass_fds=(read_commands, write_answers),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        os.close(read_commands)
        os.close(write_answers)
        try:
            yield Page(write_commands, read_answers)
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(child.pid, signal.SIGKILL)
            child.wait()
            os.close(write_commands)
