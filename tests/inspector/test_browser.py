"""The inspector's page in a real browser (R25.3)."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.common.keys import Keys

from tests.inspector.browser import Gateway, Page, browsing, until
from tests.optional import CHROMEDRIVER

pytestmark = [pytest.mark.needs(CHROMEDRIVER), pytest.mark.xdist_group("browser")]

HOSTILE = (
    "<img src=x onerror=\"document.title='hacked'\"></script><script>document.title='hacked'</script>\u202e\x1b[31m"
)

SCRIPT = [
    {
        "when": "weather",
        "text": 'Let me look.\n<tool_call>\n{"name": "get_weather", "arguments": {"city": "Paris",}}\n</tool_call>',
    },
    {"when": "slowly", "text": "One more word. " * 400, "delay_s": 0.1},
    {"when": "typo", "text": 'I try <tool_call>{"name": "get_wether", "arguments": {}}</tool_call> and go on.'},
    {"when": "hostile", "text": HOSTILE},
    {"when": "fail", "error": {"status": 500, "message": HOSTILE}},
    {"text": "Fine."},
]


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    own = Gateway(tmp_path_factory.mktemp("gateway"), {"backends": {"m": {"kind": "mock", "script": SCRIPT}}})
    yield own
    own.close()


@pytest.fixture(scope="module")
def browser() -> Iterator[object]:
    with browsing() as driver:
        yield driver


@pytest.fixture
def page(gateway: Gateway, browser: object) -> Iterator[Page]:
    own = Page(browser, gateway.url)  # type: ignore[arg-type]  # selenium is imported where there is a browser
    own.complaints()
    yield own
    assert own.complaints() == [], "neither the policy nor a script complains"


def open_first(page: Page, saying: str) -> None:
    """Open the exchange at the top, as soon as its row says this."""
    row = until(lambda: next((row for row in page.all("row")[:1] if saying in row.text), None))
    row.click()
    page.one("lanes")


def test_a_stream_is_seen_while_it_runs(page: Page, gateway: Gateway) -> None:
    page.open()
    with gateway.asking("slowly please"):  # for minutes, were it not for the client who leaves
        open_first(page, "running")
        early = until(lambda: page.text("raw"))
        until(lambda: len(page.text("raw")) > len(early))
    until(lambda: "running" not in page.text("outcome"))
    assert "left" in page.text("outcome") or "499" in page.text("outcome")


def test_a_call_is_lit_up_in_all_lanes(page: Page, gateway: Gateway) -> None:
    gateway.ask("the weather?")
    page.open()
    open_first(page, "1 call")
    assert "get_weather" in page.one("call").text
    assert "a trailing comma" in page.text("judgements")
    assert page.text("why") == 'Called "get_weather", after a repair.'
    ActionChains(page.driver).move_to_element(page.one("call")).perform()
    lit = "return [...document.querySelectorAll('.lanes > *')].filter((lane) => lane.querySelector('.lit')).length"
    until(lambda: page.run(lit) == 3)


def test_the_scrubber_goes_frame_by_frame(page: Page, gateway: Gateway) -> None:
    gateway.ask("the weather?")
    page.open()
    open_first(page, "1 call")
    end = page.one("where").text
    until(page.one("scrubber").is_displayed)
    page.one("scrubber").send_keys(Keys.HOME)
    until(lambda: page.text("where") != end)
    seen = {page.text("where")}
    for _ in range(3):
        before = page.text("where")
        page.one("scrubber").send_keys(Keys.ARROW_RIGHT)
        until(lambda before=before: page.text("where") != before)  # type: ignore[misc]
        seen.add(page.text("where"))
    assert len(seen) == 4


def test_why_a_call_was_not_a_call(page: Page, gateway: Gateway) -> None:
    gateway.ask("a typo")
    page.open()
    open_first(page, "near miss")
    said = page.one("judgements").text
    assert '"get_wether"' in said
    assert 'The closest is "get_weather".' in said


def test_an_error(page: Page, gateway: Gateway) -> None:
    status, _ = gateway.ask("fail now")
    assert status == 502
    page.open()
    open_first(page, "502")
    assert "502" in page.one("outcome").text
    assert "The server failed" in page.one("judgements").text


def test_what_was_said_is_never_markup(page: Page, gateway: Gateway) -> None:
    gateway.ask(f"hostile {HOSTILE}", model=f"m{HOSTILE[:90]}", **{"User-Agent": "<b>me</b>"})
    page.open()
    open_first(page, "<b>me</b>")
    assert "<img src=x" in page.one("raw").text
    for toggle in page.driver.find_elements("css selector", "[data-testid^=toggle-]"):
        toggle.click()
    page.one("read-again").click()
    until(lambda: page.run("return document.querySelectorAll('[data-testid=readings] tbody tr').length"))
    assert page.run("return document.querySelectorAll('img, main script, iframe').length") == 0
    assert "me" not in page.run("return [...document.querySelectorAll('b')].map((bold) => bold.textContent)")
    assert page.driver.title != "hacked"


def test_hundreds_of_exchanges(page: Page, gateway: Gateway) -> None:
    page.open()
    until(lambda: "live" in page.text("connection"))
    for _ in range(300):
        gateway.ask("quick", stream=False, tools=False)
    until(lambda: int(re.sub(r"\D", "", page.text("count").split()[0])) >= 300)
    assert len(page.rows()) < 100, "only what is in view is drawn"
    page.run(
        "window.changes = 0;"
        "new MutationObserver((found) => { window.changes += found.length })"
        ".observe(document.querySelector('main'), {subtree: true, childList: true, attributes: true})"
    )
    gateway.ask("a typo")
    until(lambda: "near miss" in page.rows()[0])
    assert page.run("return window.changes") < 300, "a new exchange does not draw the list anew"


def test_by_keyboard_alone(page: Page, gateway: Gateway) -> None:
    gateway.ask("quick")
    gateway.ask("the weather?")
    page.open()
    until(lambda: len(page.rows()) > 1)
    keys = ActionChains(page.driver)
    keys.send_keys("/").perform()
    until(lambda: page.run("return document.activeElement.dataset.testid") == "search")
    ActionChains(page.driver).send_keys(Keys.ESCAPE).perform()
    ActionChains(page.driver).send_keys("j", Keys.ENTER).perform()
    page.one("lanes")
    ActionChains(page.driver).send_keys("?").perform()
    until(lambda: page.run("return document.querySelector('dialog[open]') !== null"))
    ActionChains(page.driver).send_keys(Keys.ESCAPE).perform()
    until(lambda: page.run("return document.querySelector('dialog[open]') === null"))
    ActionChains(page.driver).send_keys(Keys.ESCAPE).perform()
    page.one("exchanges")


USABLE = {
    *("button", "link", "textbox", "searchbox", "combobox", "listbox", "checkbox", "radio", "switch", "slider"),
    *("spinbutton", "tab", "option", "menuitem", "DisclosureTriangle"),
}
"""Roles of what is used, as Chromium says them."""


def test_everything_that_can_be_used_has_a_name(page: Page, gateway: Gateway) -> None:
    gateway.ask("the weather?")
    page.open()
    open_first(page, "1 call")
    exchange = page.driver.current_url.partition("#")[2]
    for place in ("#/", f"#{exchange}", "#/playground", "#/overview"):
        page.open(place)
        nodes = page.driver.execute_cdp_cmd("Accessibility.getFullAXTree", {})["nodes"]
        used = [node for node in nodes if not node["ignored"] and node["role"]["value"] in USABLE]
        assert len(used) > 5, place
        assert [node for node in used if not node["name"]["value"].strip()] == [], place


_CONTRAST = """
const channel = (value) => { const v = value / 255; return v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4 };
const parse = (text) => { const [r, g, b, a] = text.match(/[\\d.]+/g).map(Number); return [r, g, b, a ?? 1] };
const light = ([r, g, b]) => 0.2126 * channel(r) + 0.7152 * channel(g) + 0.0722 * channel(b);
const over = ([r, g, b, a], [x, y, z]) => [r * a + x * (1 - a), g * a + y * (1 - a), b * a + z * (1 - a), 1];
const behind = (node) => {
  const layers = [];
  for (let at = node; at; at = at.parentElement) layers.push(parse(getComputedStyle(at).backgroundColor));
  return layers.reverse().reduce((below, layer) => over(layer, below), [255, 255, 255, 1]);
};
const bad = [];
for (const node of document.querySelectorAll("body *")) {
  const own = [...node.childNodes].some((child) => child.nodeType === 3 && child.data.trim());
  if (!own || !node.checkVisibility({ opacityProperty: true }) || node.closest("[disabled], .later, svg")) continue;
  const ground = behind(node), ink = over(parse(getComputedStyle(node).color), ground);
  const [a, b] = [light(ground), light(ink)].sort((x, y) => y - x);
  if ((a + 0.05) / (b + 0.05) < 4.5) bad.push(`${node.tagName}.${node.className}: ${node.textContent.slice(0, 40)}`);
}
return [getComputedStyle(document.documentElement).backgroundColor, bad];
"""


def test_both_colour_schemes_can_be_read(page: Page, gateway: Gateway) -> None:
    gateway.ask("the weather?")
    grounds = set()
    for scheme in ("light", "dark"):
        emulated = {"features": [{"name": "prefers-color-scheme", "value": scheme}]}
        page.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", emulated)
        page.open()
        open_first(page, "1 call")
        ground, unreadable = page.run(_CONTRAST)
        assert unreadable == [], scheme
        grounds.add(ground)
    page.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": []})
    assert len(grounds) == 2


def test_a_narrow_window_needs_no_sideways_scrolling(page: Page, gateway: Gateway) -> None:
    gateway.ask("the weather?")
    _size(page, 390)
    try:
        page.open()
        open_first(page, "")
        exchange = page.driver.current_url.partition("#")[2]
        for place in ("#/", f"#{exchange}", "#/playground", "#/overview"):
            page.open(place)
            wide = page.run("return document.documentElement.scrollWidth - document.documentElement.clientWidth")
            assert wide <= 0, place
    finally:
        page.driver.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})


def _size(page: Page, width: int) -> None:
    size = {"width": width, "height": 800, "deviceScaleFactor": 1, "mobile": False}
    page.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)


def test_the_question_is_readable_at_every_width(page: Page, gateway: Gateway) -> None:
    """The column of questions takes what the others leave."""
    gateway.ask("the weather?")
    page.open()
    page.one("row")
    try:
        for width in (390, 520, 521, 640, 641, 900, 901, 1050, 1051, 1200, 1201, 1500):
            _size(page, width)
            wide = page.run("return document.querySelector('th.question').getBoundingClientRect().width")
            assert wide >= 120, width
    finally:
        page.driver.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})


def test_a_row_without_a_question_has_the_path(page: Page, gateway: Gateway) -> None:
    gateway.post("/v1/embeddings", b'{"model": "m", "input": "x"}')
    page.open()
    until(lambda: any("/v1/embeddings" in row for row in page.rows()))


def test_the_first_paint_is_small_and_nothing_comes_from_elsewhere(page: Page, gateway: Gateway) -> None:
    page.open()
    loaded = page.run(
        "return [...performance.getEntriesByType('navigation'), ...performance.getEntriesByType('resource')]"
        ".map(({name, transferSize}) => [name, transferSize])"
    )
    assert all(name.startswith(gateway.url) for name, _ in loaded)
    assert 0 < sum(size for name, size in loaded if "/api/" not in name) < 100_000


def test_the_playground_asks_and_compares(page: Page, gateway: Gateway) -> None:
    page.open("#/playground")
    page.run(
        "const field = document.querySelector('main textarea');"
        "field.value = 'the weather?'; field.dispatchEvent(new Event('input', {bubbles: true}))"
    )
    assert page.one("model-1").text == "another name…", "the route takes any name, and the server lists none"
    page.one("model-name-1").send_keys("m")
    page.one("palette").find_element("css selector", "[data-name=read_file]").click()
    page.one("stream").click()
    page.one("send").click()
    until(lambda: "get_weather" in page.text("answer-1") and "<tool_call>" in page.text("beside-1"))
    page.one("beside-1").find_element("css selector", "[data-value=client]").click()
    assert '"tool_calls"' in page.text("beside-1"), "the whole body, because no stream was asked for"
    page.one("to-exchange").click()
    page.one("lanes")
    tools = page.run("return fetch(`/inspect/api/exchanges/${location.hash.split('/')[2]}`).then((got) => got.json())")
    assert [tool["function"]["name"] for tool in json.loads(tools["request"]["text"])["tools"]] == [
        "get_weather",
        "read_file",
    ]


def test_rows_are_told_apart_compared_and_shared(page: Page, gateway: Gateway, tmp_path: Path) -> None:
    for text, session in (("the weather?", "session-one"), ("a typo", "session-two"), ("hostile", "session-two")):
        gateway.ask(text, **{"session-id": session})
    page.open()
    until(lambda: "hostile" in "".join(page.rows()[:1]))
    first, second, third = page.rows()[:3]
    assert "…on-two" in second
    assert "a typo" in second
    assert "the weather?" in third
    assert "1 call: get_weather" in third
    assert "native" in first or "auto" in first
    page.all("row")[0].find_element("css selector", ".session").click()
    until(lambda: len(page.rows()) == 2)
    for tick in page.all("pick"):
        tick.click()
    ids = page.run("return [...document.querySelectorAll('[data-testid=row]')].map((row) => row.dataset.id)")
    page.one("compare-two").click()
    assert "hostile" in page.one("request-diff").text
    assert "get_wether" in page.one("answer-diff").text
    assert "is not on offer" in page.one("decisions").text
    assert page.run("return document.querySelectorAll('main img, main script').length") == 0
    script = "const [ids] = arguments; return fetch('/inspect/api/export', {method: 'POST', "
    script += "body: JSON.stringify({ids, as: 'html'})}).then((answer) => answer.text())"
    file = tmp_path / "shared.html"
    file.write_text(page.run(script, ids))
    page.driver.get("about:blank")
    page.driver.get(file.as_uri())
    until(lambda: len(page.rows()) == 2)
    open_first(page, "")
    assert "<img src=x" in page.one("raw").text
    page.one("read-again").click()
    until(lambda: page.run("return document.querySelectorAll('[data-testid=readings] tbody tr').length"))
    assert page.run("return document.querySelectorAll('main img, main script').length") == 0
    assert page.driver.title != "hacked"


def test_a_key_is_asked_for(browser: object, tmp_path: Path) -> None:
    config = {"backends": {"m": {"kind": "mock"}}, "auth": {"keys": ["sk-inspector-test-key"]}}
    gateway = Gateway(tmp_path, config)
    try:
        gateway.ask("hello", Authorization="Bearer sk-inspector-test-key")
        page = Page(browser, gateway.url)  # type: ignore[arg-type]
        page.driver.get(page.url)
        page.one("key").send_keys("sk-inspector-test-key", Keys.ENTER)
        until(page.rows)
        assert "sk-inspector-test-key" not in page.driver.page_source
        page.complaints()  # the answer 401 is one
    finally:
        gateway.close()


def test_a_file_without_a_gateway(page: Page, gateway: Gateway, tmp_path: Path) -> None:
    gateway.ask("the weather?", **{"X-Request-Id": "to-be-saved"})
    page.open("#/exchange/to-be-saved")
    page.one("lanes")
    content = page.run("return fetch('/inspect/api/exchanges/to-be-saved/capture').then((answer) => answer.text())")
    file = tmp_path / "one.capture.jsonl"
    file.write_text(content)
    command = (sys.executable, "-m", "toolwire", "inspect", str(file))
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            url = process.stdout.readline().strip()
            page.driver.get("about:blank")
            page.driver.get(url)
            until(lambda: page.all("lanes") or [row.click() for row in page.all("row")])
            until(lambda: "a trailing comma" in page.text("judgements"))
        finally:
            process.terminate()
