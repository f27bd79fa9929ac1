"""What people do with the console, in a real browser on a fleet of three."""

import json
import shlex
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

import pytest
from selenium.common.exceptions import StaleElementReferenceException
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.remote.webelement import WebElement

from e2e.harness.command_line import said
from e2e.harness.processes import Rig
from e2e.suites.local.console.browser import Browser
from e2e.suites.local.console.conftest import (
    MANY_BATCHES,
    MANY_RECORDS,
    ORDERS,
    Place,
    start_console,
    stuck_consumer,
)

pytestmark = [pytest.mark.xdist_group("console"), pytest.mark.timeout(240)]
PATIENCE_S: Final = 60.0
SEEN_S_MAX: Final = 6.0
PAGES: Final = {
    "overview": "/",
    "topics": "/topics",
    "topic": "/topics/orders",
    "records": "/topics/orders/records",
    "price": "/topics/orders/records?contains=LAX",
    "record": "/topics/orders/records/0/7",
    "groups": "/groups",
    "group": "/groups/billing",
    "brokers": "/brokers",
    "broker": "/brokers/1",
    "events": "/events",
    "health": "/health",
}
SCREENS: Final = ("overview", "topics", "records", "group", "broker", "events")


def until(is_so: Callable[[], object], what: str, patience_s: float = PATIENCE_S) -> float:
    """Wait until it is so; returns the seconds that it took."""
    began = time.monotonic()
    while True:
        try:
            if is_so():
                return time.monotonic() - began
        except StaleElementReferenceException:
            pass  # the page has changed meanwhile
        if time.monotonic() - began > patience_s:
            raise AssertionError(f"not within {patience_s:.0f} s: {what}")
        time.sleep(0.02)


def opened(window: Browser, place: Place, path: str) -> None:
    window.driver.get(place.url + path)


def the(window: Browser, css: str) -> WebElement:
    return window.driver.find_element(By.CSS_SELECTOR, css)


def text_of(window: Browser, css: str = "main") -> str:
    return the(window, css).text


def press(window: Browser, css: str) -> None:
    """Click on it; it may be replaced by an update of the page meanwhile."""

    def pressed() -> bool:
        the(window, css).click()
        return True

    until(pressed, css)


def sampled(window: Browser, place: Place) -> None:
    """Every part has been sampled, disks and checks among them."""

    def is_so() -> bool:
        opened(window, place, "/topics/orders.json")
        data = json.loads(text_of(window, "body"))
        opened(window, place, "/health.json")
        return bool(
            data.get("bytes")
            and data.get("records") == ORDERS
            and json.loads(text_of(window, "body"))["at_s"]
        )

    until(is_so, "a sample of everything")


def search(window: Browser, place: Place, topic: str, **fields: str) -> None:
    """Fill the form of a topic's records, and go on to the price."""
    opened(window, place, f"/topics/{topic}/records")
    for name, value in fields.items():
        the(window, f"form [name='{name}']").send_keys(value)
    press(window, "form[role='search'] button")


def test_a_record_is_found_by_a_field_after_the_price_was_shown(
    place: Place, window: Browser
) -> None:
    sampled(window, place)
    search(window, place, "orders", contains="LAX", where="value.delay == 96 and value.id < 300")
    assert "Up to " in text_of(window, ".price")
    assert f"{ORDERS:,} records" in text_of(window, ".price")
    press(window, "#start")
    until(lambda: "Done: read 6,000 of 6,000 records" in text_of(window, "#progress"), "the end")
    rows = window.driver.find_elements(By.CSS_SELECTOR, ".records tbody tr")
    assert ["LAX" in row.text for row in rows] == [True]
    press(window, ".records tbody a")
    assert '"id": 96' in text_of(window, "#value")
    assert "checksum" in text_of(window)


def test_a_search_that_runs_is_stopped(place: Place, window: Browser) -> None:
    total = f"{MANY_BATCHES * MANY_RECORDS:,}"
    search(window, place, "many", where="value.id == 123456")
    press(window, "#start")
    until(lambda: "Searching" in text_of(window, "#progress"), "a search that runs")
    press(window, "#stop")
    until(lambda: "Stopped: read" in text_of(window, "#progress"), "the stop")
    assert f"of {total} records" in text_of(window, "#progress")
    read = int(text_of(window, "#progress").split("read ")[1].split(" of")[0].replace(",", ""))
    assert read < MANY_BATCHES * MANY_RECORDS
    assert window.driver.find_elements(By.CSS_SELECTOR, "#stop") == []


def test_a_group_that_is_stuck_is_named_with_the_reason(place: Place, window: Browser) -> None:
    consumer = stuck_consumer(place.fleet.bootstrap)
    try:
        opened(window, place, "/groups")

        def is_named() -> bool:
            consumer.poll(0)  # stays a member
            return "stuck" in text_of(window, "table")

        until(is_named, "the stuck group")
        assert "no commit for" in text_of(window, "table")
        press(window, "a[href$='/groups/shipping']")
        assert "1 member" in text_of(window, ".state")
        assert "shipping-app" in text_of(window)
    finally:
        consumer.close()


def test_a_group_and_a_topic_have_the_figures_of_the_command_line(
    place: Place, window: Browser
) -> None:
    sampled(window, place)
    opened(window, place, "/groups/billing")
    line = the(window, "#command").get_attribute("value") or ""
    words = shlex.split(line)
    assert words[0] == "logfleet"
    shown = said(place.fleet.brokers[0], *words[1:])
    assert "orders" in shown
    assert f"{ORDERS - 6 * 700:,} behind" in text_of(window)


def test_an_address_holds_the_whole_state_of_a_page(place: Place, window: Browser) -> None:
    opened(window, place, "/topics")
    press(window, "thead a[href*='sort=records']")
    until(lambda: the(window, "th[aria-sort='descending']").text.startswith("Records"), "the order")
    the(window, "#filter").send_keys("m")
    press(window, "form button")
    address, rows = window.driver.current_url, text_of(window, "tbody")
    assert "many" in rows
    assert "orders" not in rows
    window.driver.get(address)
    assert text_of(window, "tbody").split()[1:4] == rows.split()[1:4]


def test_a_starred_topic_comes_first(place: Place, window: Browser) -> None:
    opened(window, place, "/topics")
    first = "tbody tr:first-child th"
    assert text_of(window, first) == "many"
    press(window, "button[aria-label='Star payments']")
    until(lambda: text_of(window, first) == "payments", "the starred one first")
    opened(window, place, "/topics")
    until(lambda: text_of(window, first) == "payments", "it stays")
    press(window, "button[aria-label='Star payments'][aria-pressed='true']")


def test_updates_can_be_paused(place: Place, window: Browser) -> None:
    opened(window, place, "/")
    age = "window.age = document.querySelector('.age')"
    window.driver.execute_script(age)
    changed = "return window.age !== document.querySelector('.age')"
    until(lambda: window.driver.execute_script(changed), "an update")
    press(window, "#pause")
    assert the(window, "#pause").get_attribute("aria-pressed") == "true"
    asked = window.driver.execute_script(
        "const event = new CustomEvent('htmx:beforeRequest', {bubbles: true, cancelable: true});"
        "return document.getElementById('live').dispatchEvent(event);"
    )
    assert asked is False


def test_the_keyboard_alone_leads_everywhere(place: Place, window: Browser) -> None:
    opened(window, place, "/")
    keys = window.driver.switch_to.active_element
    keys.send_keys(Keys.TAB)
    assert window.driver.switch_to.active_element.text == "Skip to the content"
    for _ in range(3):
        window.driver.switch_to.active_element.send_keys(Keys.TAB)
    link = window.driver.switch_to.active_element
    assert link.text == "Topics"
    outline = "return getComputedStyle(document.activeElement).outlineStyle"
    assert window.driver.execute_script(outline) != "none"
    link.send_keys(Keys.ENTER)
    until(lambda: text_of(window, "h1") == "Topics", "the page")
    the(window, "#filter").send_keys("ord", Keys.ENTER)
    until(lambda: "filter=ord" in window.driver.current_url, "the filter")
    the(window, "tbody th a").send_keys(Keys.ENTER)
    until(lambda: text_of(window, "h1") == "orders", "the topic")


def test_a_record_is_found_without_javascript(place: Place, window: Browser) -> None:
    window.scripts(allowed=False)
    search(window, place, "orders", contains='"id": 4321')
    press(window, "#start")
    until(lambda: "Done: read 6,000" in text_of(window, "#progress"), "the end")
    press(window, ".records tbody a")
    assert '"id": 4321' in text_of(window, "#value")
    opened(window, place, "/")
    assert len(window.driver.find_elements(By.CSS_SELECTOR, "figure")) == 3
    assert not the(window, "#pause").is_displayed()


def test_pages_fit_into_a_narrow_window(place: Place, window: Browser) -> None:
    wide = {}
    for name, path in PAGES.items():
        opened(window, place, path)
        for width in (400, 320):
            window.resize(width, 800)
            found = window.driver.execute_script("return document.documentElement.scrollWidth")
            if found > width:
                wide[name, width] = found
    assert wide == {}


def test_axe_finds_nothing_on_any_page_in_light_and_dark(
    place: Place, window: Browser, pictures: Path | None
) -> None:
    sampled(window, place)
    found = {}
    for name, path in PAGES.items():
        opened(window, place, path)
        for scheme in ("light", "dark"):
            window.prefer(scheme)
            assert (background_of(window) < 200) == (scheme == "dark")
            if violations := window.violations():
                found[name, scheme] = violations
            if pictures is not None and name in SCREENS:
                window.driver.save_screenshot(str(pictures / f"console-{name}-{scheme}.png"))
    assert found == {}


def background_of(window: Browser) -> int:
    """The sum of red, green and blue of the page itself, from 0 to 765."""
    colour = "return getComputedStyle(document.documentElement).backgroundColor"
    return sum(map(int, window.driver.execute_script(colour).strip("rgb()").split(", ")))


def test_changes_are_drawn_only_where_they_can_be_made(
    place: Place, window: Browser, rig: Rig
) -> None:
    opened(window, place, "/topics/payments")
    assert window.driver.find_elements(By.CSS_SELECTOR, ".danger") == []
    _, url = start_console(rig, place.fleet.bootstrap, "--write")
    writer = Place(place.fleet, place.console, url)

    def is_there() -> bool:
        opened(window, writer, "/topics")
        return "payments" in text_of(window, "tbody")

    until(is_there, "the topic")
    opened(window, writer, "/topics/payments")
    press(window, ".danger")
    assert "logfleet topic delete payments --yes" in text_of(window)
    assert window.violations() == []
    the(window, "#confirmed").send_keys("payments")
    press(window, "#do")
    until(lambda: window.driver.current_url == f"{url}/topics", "the list")
    until(lambda: "payments" not in text_of(window, "tbody"), "the deletion")


def test_a_killed_broker_is_seen_within_six_seconds(place: Place, window: Browser) -> None:
    opened(window, place, "/")
    until(lambda: "Broker 3" in text_of(window, ".zones"), "the brokers")
    killed = place.fleet.brokers[2]
    killed.kill()
    try:
        took_s = until(lambda: "Broker 3: " in text_of(window, ".state"), "the loss")
        assert took_s <= SEEN_S_MAX
    finally:
        killed.start()
    until(lambda: "Broker 3: " not in text_of(window, ".state"), "its return")
