# SPDX-License-Identifier: BSD-3-Clause
"""A headless Chromium or Chrome for tests of pages, controlled through its pipe for debuggers (Chrome DevTools Protocol): NUL
ends each JSON message, on file descriptor 3 to the browser and on 4 from it."""
import base64
import fcntl
import json
import os
import select
import shutil
import subprocess
import time

BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)


class Browser:
    """One page in a browser of its own. requests: the addresses that the page has asked for since open()."""

    def __init__(self, profile, width=1280, height=900):
        (near, self._out), (self._in, far) = os.pipe(), os.pipe()
        inner, outer = (fcntl.fcntl(end, fcntl.F_DUPFD, 10) for end in (near, far))  # not 3 or 4, which the shell makes of these
        command = [BROWSER, "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run", "--disable-background-networking", "--remote-debugging-pipe",
                   f"--user-data-dir={profile}", f"--window-size={width},{height}", "about:blank"]
        shell = ["bash", "-c", f'exec 3<&{inner} 4>&{outer} {inner}<&- {outer}>&-; exec "$@"', "browser", *command]
        self._log = open(os.path.join(os.path.dirname(profile), "browser.log"), "wb")
        self._process = subprocess.Popen(shell, pass_fds=(inner, outer), stdin=subprocess.DEVNULL, stdout=self._log, stderr=self._log)
        for end in (near, far, inner, outer):
            os.close(end)
        self._number, self._pending, self._events, self.requests, self.problems, self._session = 0, b"", [], [], [], None
        page = next(target for target in self._call("Target.getTargets")["targetInfos"] if target["type"] == "page")
        self._session = self._call("Target.attachToTarget", targetId=page["targetId"], flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Network", "Log"):
            self._call(f"{domain}.enable")

    def close(self):
        self._session = None
        try:
            self._call("Browser.close")
            self._process.wait(30)
        except (OSError, TimeoutError, subprocess.TimeoutExpired):
            self._process.kill()
            self._process.wait()
        os.close(self._in)
        os.close(self._out)
        self._log.close()

    def _message(self, deadline):
        while b"\0" not in self._pending:
            ready, _, _ = select.select([self._in], [], [], max(0, deadline - time.monotonic()))
            if not ready:
                raise TimeoutError("the browser does not answer")
            data = os.read(self._in, 1 << 20)
            if not data:
                raise OSError("the browser has ended")
            self._pending += data
        one, _, self._pending = self._pending.partition(b"\0")
        return json.loads(one)

    def _note(self, message):
        method, about = message.get("method"), message.get("params", {})
        if method == "Network.requestWillBeSent":
            self.requests.append(about["request"]["url"])
        elif method == "Runtime.exceptionThrown":
            self.problems.append(about["exceptionDetails"].get("exception", {}).get("description") or about["exceptionDetails"]["text"])
        elif method == "Log.entryAdded" and about["entry"]["level"] == "error":
            self.problems.append(f"{about['entry']['text']} {about['entry'].get('url', '')}")
        self._events.append(method)

    def _call(self, method, timeout=120, **about):
        self._number += 1
        message = {"id": self._number, "method": method, "params": about, **({"sessionId": self._session} if self._session else {})}
        os.write(self._out, json.dumps(message).encode() + b"\0")
        deadline = time.monotonic() + timeout
        while True:
            answer = self._message(deadline)
            if answer.get("id") == self._number:
                if "error" in answer:
                    raise RuntimeError(f"{method}: {answer['error']}")
                return answer["result"]
            self._note(answer)

    def open(self, address):
        """Show a page and wait until it is loaded."""
        self._events, self.requests, self.problems = [], [], []
        self._call("Page.navigate", url=address)
        deadline = time.monotonic() + 120
        while "Page.loadEventFired" not in self._events:
            self._note(self._message(deadline))

    def value(self, script):
        """The value of a script's last expression."""
        answer = self._call("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in answer:
            raise RuntimeError(answer["exceptionDetails"].get("exception", {}).get("description"))
        return answer["result"].get("value")

    def wait(self, script, timeout=60):
        """Wait until the script's value is true."""
        deadline = time.monotonic() + timeout
        while not self.value(f"!!({script})"):
            if time.monotonic() > deadline:
                raise TimeoutError(f"not true after {timeout} s: {script}")
            time.sleep(0.05)

    def move(self, x, y):
        """Move the pointer to a place of the window."""
        self._call("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y)

    def click(self, selector):
        """Click on the middle of an element, with the pointer."""
        x, y = self.value(f"(function () {{ var one = document.querySelector({json.dumps(selector)}); one.scrollIntoView({{block: 'center'}}); var box = one.getBoundingClientRect(); return [box.x + box.width / 2, box.y + box.height / 2]; }})()")
        for kind in ("mousePressed", "mouseReleased"):
            self._call("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=1)

    def scheme(self, name):
        """Ask pages for the colours "light" or "dark", as the user's system does."""
        self._call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": name}])

    def picture(self, path):
        with open(path, "wb") as out:
            out.write(base64.b64decode(self._call("Page.captureScreenshot", format="png")["data"]))
