"""A real browser for tests: Debian's Chromium over its DevTools pipe, without a driver or a Python package."""

from __future__ import annotations

import base64
import json
import os
import select
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--enable-unsafe-swiftshader",  # the 3-D view draws with WebGL, which needs a software renderer here
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-dev-shm-usage",
    "--host-resolver-rules=MAP * ~NOTFOUND",  # even a page that asks gets no answer
    "--remote-debugging-pipe",
)
DOMAINS = ("Page", "Network", "Runtime", "Log")


def find_chromium() -> str | None:
    """Where the browser is, or None."""
    return next((found for name in ("chromium", "chromium-browser") if (found := shutil.which(name))), None)


class Tab:
    """One page: commands in, events out."""

    def __init__(self, into: int, out: int) -> None:
        self._into, self._out, self._buffer, self._id = into, out, b"", 0
        self._session: str | None = None
        self._shown: tuple[Path, bool] | None = None
        self._phone = False
        self.frames: list[str] = []  # sessions of frames that have a process of their own
        self.events: list[dict[str, Any]] = []
        target = self.ask("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.ask("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in DOMAINS:
            self.ask(f"{domain}.enable")
        self.ask("Target.setAutoAttach", autoAttach=True, waitForDebuggerOnStart=True, flatten=True)

    def _send(self, method: str, session: str | None, params: dict[str, Any]) -> int:
        self._id += 1
        message: dict[str, Any] = {"id": self._id, "method": method, "params": params}
        if session:
            message["sessionId"] = session
        os.write(self._into, json.dumps(message).encode() + b"\0")
        return self._id

    def _note(self, event: dict[str, Any]) -> None:
        """Keep an event; a new frame is listened to before it may load anything."""
        self.events.append(event)
        if event.get("method") == "Target.attachedToTarget" and self._session:
            session = event["params"]["sessionId"]
            self.frames.append(session)
            for domain in DOMAINS:
                self._send(f"{domain}.enable", session, {})
            self._send("Runtime.runIfWaitingForDebugger", session, {})

    def _read(self, seconds: float) -> dict[str, Any]:
        until = time.monotonic() + seconds
        while b"\0" not in self._buffer:
            if not select.select([self._out], [], [], max(0.0, until - time.monotonic()))[0]:
                raise TimeoutError("the browser does not answer")
            piece = os.read(self._out, 1 << 20)
            if not piece:
                raise RuntimeError("the browser has ended")
            self._buffer += piece
        message, _, self._buffer = self._buffer.partition(b"\0")
        return json.loads(message)

    def ask(self, method: str, session: str | None = None, **params: Any) -> dict[str, Any]:
        """Give a command and return its answer; events that come meanwhile are kept.

        While one page takes the place of another no page is active, for a moment: then it is asked again.
        """
        until = time.monotonic() + 30
        number = self._send(method, session or self._session, params)
        while True:
            answer = self._read(60)
            if answer.get("id") != number:
                self._note(answer)
            elif "error" not in answer:
                return answer["result"]
            elif "active page" in answer["error"]["message"] and time.monotonic() < until:
                time.sleep(0.2)
                number = self._send(method, session or self._session, params)
            else:
                raise RuntimeError(f"{method}: {answer['error']}")

    def named(self, method: str) -> list[dict[str, Any]]:
        """The events of one kind so far."""
        return [event["params"] for event in self.events if event.get("method") == method]

    def open(self, page: Path) -> None:
        """Load a page from disk and wait until everything in it is there."""
        self.events.clear()
        self.frames.clear()
        self.ask("Page.navigate", url=page.resolve().as_uri())
        while not self.named("Page.loadEventFired"):
            self._note(self._read(60))
        self._shown = page, self._phone

    def show(self, page: Path) -> None:
        """Load a page unless it is there already, for the same kind of screen."""
        if self._shown != (page, self._phone):
            self.open(page)

    def run(self, script: str, frame: str | None = None) -> Any:
        """Return the value of a JavaScript expression, in the page or a frame; a promise is waited for."""
        result = self.ask("Runtime.evaluate", frame, expression=script, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in result:
            raise RuntimeError(f"{script}: {result['exceptionDetails']}")
        return result["result"].get("value")

    def screen(self, width: int, height: int, *, dark: bool = False, phone: bool = False) -> None:
        """Set the size of the window, the colour scheme and whether it is a phone."""
        self._phone = phone
        self.ask("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=phone)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.ask("Emulation.setEmulatedMedia", features=[scheme])

    def screenshot(self, file: Path, *, whole: bool = True) -> None:
        """Write what is seen, or the whole page, as PNG."""
        data = self.ask("Page.captureScreenshot", format="png", captureBeyondViewport=whole)["data"]
        file.write_bytes(base64.b64decode(data))


@contextmanager
def browser(chromium: str, profile: Path) -> Iterator[Tab]:
    """Start a browser with a fresh profile, and end it afterwards."""
    theirs_in, ours_out = os.pipe()
    ours_in, theirs_out = os.pipe()
    words = [chromium, *FLAGS, f"--user-data-dir={profile}", "about:blank"]
    # The browser reads descriptor 3 and writes descriptor 4.
    shell = f'exec "$@" 3<&{theirs_in} 4>&{theirs_out}'
    with open(profile.with_suffix(".log"), "wb") as log:
        process = subprocess.Popen(
            ["bash", "-c", shell, "bash", *words], pass_fds=(theirs_in, theirs_out), stdout=log, stderr=log
        )
    os.close(theirs_in)
    os.close(theirs_out)
    try:
        yield Tab(ours_out, ours_in)
    finally:
        os.close(ours_out)
        os.close(ours_in)  # the browser ends when its pipe does
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
