"""A gateway with the inspector in a process of its own, and a browser in front of it. Skips where there is no
Chromium."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from http.client import HTTPConnection
from pathlib import Path
from typing import Any, Final, TypeVar
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest
from selenium import webdriver
from selenium.common.exceptions import StaleElementReferenceException
from selenium.webdriver.common.by import By
from selenium.webdriver.remote.webelement import WebElement

from tests.e2e.forking import Forked
from tests.optional import CHROMEDRIVER, CHROMIUM, program
from tests.waiting import PROGRAM_S

ROOT: Final = Path(__file__).resolve().parents[2]

T = TypeVar("T")

WEATHER: Final = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "The weather in a city",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
    },
}


def until(what: Callable[[], T]) -> T:
    """Wait until `what` gives something true."""
    end = time.monotonic() + PROGRAM_S
    while True:
        try:
            found = what()
        except StaleElementReferenceException:  # drawn anew meanwhile
            found = None
        if found:
            return found
        if time.monotonic() > end:
            pytest.fail(f"waited in vain for {what}")
        time.sleep(0.02)


class Gateway:
    """A running gateway. `url` is its address."""

    def __init__(self, folder: Path, config: Mapping[str, Any]) -> None:
        file = folder / "gateway.yaml"
        own = {"server": {"port": 0}, "inspect": True, "store": {"kind": "none"}}
        file.write_text(json.dumps({**own, **config}))
        with (folder / "log").open("wb") as log:
            self._process = Forked(file, env={"STATE_DIRECTORY": str(folder)}, folder=folder, log=log)
        line = self._process.stdout.readline().decode()
        assert line.startswith("toolwire is serving "), (folder / "log").read_text()
        self.url = line.split()[-1].removesuffix("/v1")

    def ask(
        self, text: str, *, model: str = "m", stream: bool = True, tools: bool = True, **headers: str
    ) -> tuple[int, bytes]:
        """Ask it, and wait for the answer: its status and its body."""
        body: dict[str, Any] = {"model": model, "stream": stream, "messages": [{"role": "user", "content": text}]}
        if tools:
            body["tools"] = [WEATHER]
        return self.post("/v1/chat/completions", json.dumps(body).encode(), **headers)

    def post(self, path: str, body: bytes, **headers: str) -> tuple[int, bytes]:
        """The status and the body of any answer."""
        request = Request(f"{self.url}{path}", body, {"Content-Type": "application/json", **headers})
        try:
            with urlopen(request, timeout=PROGRAM_S) as answer:
                return answer.status, answer.read()
        except HTTPError as error:
            return error.code, error.read()

    @contextmanager
    def asking(self, text: str) -> Iterator[None]:
        """A stream that is asked for, and left at the end of the block."""
        body = {"model": "m", "stream": True, "messages": [{"role": "user", "content": text}]}
        with closing(HTTPConnection(self.url.removeprefix("http://"), timeout=PROGRAM_S)) as connection:
            connection.request("POST", "/v1/chat/completions", json.dumps(body), {"Content-Type": "application/json"})
            yield

    def close(self) -> None:
        """End it."""
        self._process.close()


class Page:
    """The inspector's page in the browser."""

    def __init__(self, driver: webdriver.Chrome, url: str) -> None:
        self.driver = driver
        self.url = f"{url}/inspect"

    def open(self, place: str = "#/") -> None:
        """Go there, from nothing."""
        self.driver.get("about:blank")
        self.driver.get(self.url + place)
        until(lambda: self.driver.find_elements(By.CSS_SELECTOR, "main > *:not(.wait)"))

    def all(self, name: str) -> list[WebElement]:
        """The elements with this test id."""
        return self.driver.find_elements(By.CSS_SELECTOR, f'[data-testid="{name}"]')

    def one(self, name: str) -> WebElement:
        """The first one, as soon as there is one."""
        return until(lambda: self.all(name))[0]

    def text(self, name: str) -> str:
        """What the first one says; nothing if there is none."""
        found = self.all(name)
        return found[0].text if found else ""

    def run(self, script: str, *arguments: object) -> Any:
        """The value of a script."""
        return self.driver.execute_script(script, *arguments)

    def rows(self) -> list[str]:
        """What the rows in view say, from the top."""
        found: list[str] = self.run(
            "return [...document.querySelectorAll('[data-testid=row]')].map((row) => row.innerText)"
        )
        return found

    def complaints(self) -> list[str]:
        """What the browser has complained of since this was asked last: violations of the policy, errors of scripts.
        Not that a gateway which was ended has broken off its feed: that may be told at any time."""
        return [entry["message"] for entry in self.driver.get_log("browser") if "net::ERR_" not in entry["message"]]


@contextmanager
def browsing() -> Iterator[webdriver.Chrome]:
    """A browser without a screen."""
    options = webdriver.ChromeOptions()
    for argument in ("--headless=new", "--no-sandbox", "--disable-gpu", "--window-size=1500,1000"):
        options.add_argument(argument)
    options.binary_location = program(CHROMIUM)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    driver = webdriver.Chrome(options=options, service=webdriver.ChromeService(program(CHROMEDRIVER)))
    try:
        yield driver
    finally:
        driver.quit()
