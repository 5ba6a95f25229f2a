"""The pictures of the inspector in the documentation: `python -m docs.screenshots` makes them anew.

Needs Chromium and its driver. The gateway in front of the browser has a model server that is not there (`kind: mock`).
"""

from __future__ import annotations

import threading
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from selenium.webdriver.common.action_chains import ActionChains

from tests.inspector.browser import Gateway, Page, browsing, until

FOLDER: Final = Path(__file__).with_name("images")

SCRIPT: Final = [
    {
        "when": "Lisbon",
        "text": (
            "<think>The user wants the weather, and I have a tool for that.</think>I will look that up.\n<tool_call>\n"
            '{"name": "get_weather", "arguments": {"city": "Lisbon",}}\n</tool_call>'
        ),
        "delay_s": 0.03,
    },
    {
        "when": "Oslo",
        "text": 'Sure.\n```json\n{"name": "get_weather", "arguments": {"city": "Oslo"}}\n```',
        "delay_s": 0.02,
    },
    {
        "when": "Rome",
        "text": '<tool_call>{"name": "get_wether", "arguments": {"city": "Rome"}}</tool_call>',
        "delay_s": 0.02,
    },
    {
        "when": "Cairo",
        "text": '<tool_call>{"name": "get_weather", "arguments": {"town": "Cairo"}}</tool_call>',
        "delay_s": 0.02,
    },
    {"when": "away", "error": {"status": 503, "message": "The model is being loaded."}},
    {"text": "It is sunny, with a light wind from the north.", "delay_s": 0.02},
]
QUESTIONS: Final = (
    ("What is the weather in Rome?", "0199f3a1-7c41"),
    ("Are you away?", "0199f3a1-7c41"),
    ("Thank you!", "0199f3a1-7c41"),
    ("What is the weather in Cairo?", "ses_e0028c1a"),
    ("What is the weather in Oslo?", "ses_e0028c1a"),
    ("What is the weather in Lisbon?", "ses_e0028c1a"),
)
"""The questions, each with its session."""
WIDTH: Final = 1200
SCHEMES: Final = ("light", "dark")


def main() -> None:
    """Make them all."""
    FOLDER.mkdir(exist_ok=True)
    with TemporaryDirectory() as folder, browsing() as driver:
        gateway = Gateway(
            Path(folder),
            {
                "backends": {"local": {"kind": "mock", "script": SCRIPT}},
                "routes": [{"model": "smollm2", "aliases": ["*"], "options": {"format": "hermes"}}],
            },
        )
        try:
            _take(Page(driver, gateway.url), gateway)
        finally:
            gateway.close()


def _take(page: Page, gateway: Gateway) -> None:
    for question, session in QUESTIONS:
        gateway.ask(question, model="smollm2", **{"User-Agent": "openai-python/2.8", "session-id": session})
    gateway.post("/v1/v1/chat/completions", b"{}")
    _size(page, 420)
    page.open()
    slow = threading.Thread(target=gateway.ask, args=("And tomorrow?",), kwargs={"model": "smollm2"})
    slow.start()
    until(lambda: len(page.rows()) > len(QUESTIONS) and "running" in page.rows()[0])
    _picture(page, "inspector-list")
    slow.join()
    ids = {text: ident for ident, text in page.run(_ROWS)}
    lisbon, rome = (next(ident for text, ident in ids.items() if city in text) for city in ("Lisbon", "Rome"))
    _size(page, 720)
    page.open(f"#/exchange/{lisbon}")
    page.one("lanes")
    ActionChains(page.driver).move_to_element(page.one("call")).perform()
    for scheme in SCHEMES:
        emulated = {"features": [{"name": "prefers-color-scheme", "value": scheme}]}
        page.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", emulated)
        _picture(page, f"inspector-exchange-{scheme}")
    page.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": []})
    page.one("read-again").click()
    until(lambda: "Reading" not in page.text("readings") and page.all("readings"))
    page.run("document.querySelector('[data-testid=readings]').scrollIntoView()")
    _size(page, 560)
    _picture(page, "inspector-formats")
    page.open(f"#/compare/{lisbon}/{rome}")
    page.one("request-diff")
    _size(page, 760)
    _picture(page, "inspector-compare")
    page.open("#/overview")
    until(lambda: page.all("charts") and page.all("verdicts"))
    _size(page, 700)
    _picture(page, "inspector-overview")


_ROWS: Final = (
    "return [...document.querySelectorAll('[data-testid=row]')].map((row) => [row.dataset.id, row.innerText])"
)


def _size(page: Page, height: int) -> None:
    size = {"width": WIDTH, "height": height, "deviceScaleFactor": 1, "mobile": False}
    page.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)


def _picture(page: Page, name: str) -> None:
    page.driver.save_screenshot(str(FOLDER / f"{name}.png"))


if __name__ == "__main__":
    main()
