"""A real browser, headless: Debian's chromium, driven by selenium, and axe-core in it.

Whatever is missing is brought once: chromium by apt-get, axe-core from npm into the cache.
"""

import fcntl
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from selenium import webdriver
from selenium.webdriver.chrome.options import Options
from selenium.webdriver.chrome.service import Service

from broker_image.tools.console_assets import fetch, packages, sha512
from e2e.harness.debian import install

CACHE: Final = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "logfleet"
WIDTH: Final = 1280
HEIGHT: Final = 1000
RULES: Final = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"]


class Browser:
    """One window; `driver` is selenium's."""

    def __init__(self, driver: webdriver.Chrome) -> None:
        self.driver = driver

    def prefer(self, scheme: str) -> None:
        """Pages see that the user prefers this colour scheme: light or dark."""
        feature = {"name": "prefers-color-scheme", "value": scheme}
        self.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [feature]})

    def resize(self, width: int = WIDTH, height: int = HEIGHT) -> None:
        """Make pages so wide, as on a telephone; without arguments as they were."""
        wanted = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
        self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", wanted)

    def scripts(self, *, allowed: bool) -> None:
        """Whether the next pages may run scripts."""
        self.driver.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": not allowed})

    def violations(self) -> list[str]:
        """What axe finds on the page: rule, impact and the first element."""
        self.driver.execute_script(axe_source())
        found: dict[str, Any] = self.driver.execute_async_script(
            "const done = arguments[arguments.length - 1];"
            "axe.run(document, {runOnly: arguments[0], resultTypes: ['violations']}).then(done);",
            RULES,
        )
        return [
            f"{each['id']} ({each['impact']}): {each['nodes'][0]['html'][:200]}: "
            f"{each['nodes'][0]['failureSummary']}"
            for each in found["violations"]
        ]

    def complaints(self) -> list[str]:
        """What the browser logged since the last call, such as a violation of the policy."""
        rows: list[dict[str, Any]] = self.driver.get_log("browser")
        return [str(row["message"]) for row in rows if row["level"] == "SEVERE"]


@contextmanager
def browser() -> Iterator[Browser]:
    """A browser that ends with the block. Raises PackagesMissing, CalledProcessError."""
    if shutil.which("chromium") is None or shutil.which("chromedriver") is None:
        install("chromium", "chromium-driver", "fonts-dejavu-core")
    options = Options()
    for argument in ("--headless=new", "--no-sandbox", "--disable-dev-shm-usage", "--disable-gpu"):
        options.add_argument(argument)
    options.add_argument(f"--window-size={WIDTH},{HEIGHT}")
    options.binary_location = shutil.which("chromium") or ""
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    driver = webdriver.Chrome(options=options, service=Service(shutil.which("chromedriver")))
    try:
        yield Browser(driver)
    finally:
        driver.quit()


def axe_source() -> str:
    """The text of axe-core as the lock names it, fetched once."""
    (package,) = [each for each in packages() if each["name"] == "axe-core"]
    folder = CACHE / f"axe-core-{package['version']}"
    path = folder / "axe.min.js"
    CACHE.mkdir(parents=True, exist_ok=True)
    with (CACHE / "axe-core.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not path.exists() or sha512(path.read_bytes()) != package["files"][path.name]["sha512"]:
            fetch(package, folder)
    return path.read_text()
