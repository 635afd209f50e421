"""The dashboard's page in a real browser, of a node that is made up: how it looks, and who can read it."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from browser import Browser, browser
from running_node import wait_until
from served_dashboard import RATES, TOKEN, Heard, MadeUp, served

pytestmark = [pytest.mark.requires_program("chromium"), pytest.mark.unsanitized]

EVENTS = {"7": {"time": "2026-11-27T10:36:31.428Z", "kind": "function.died", "level": "warning", "about": "nat"}}
AXE = Path(__file__).resolve().parents[2] / "web/node_modules/axe-core/axe.min.js"


@pytest.fixture(scope="module")
def tab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with browser(tmp_path_factory.mktemp("profile")) as found:
        yield found


@pytest.fixture
def sampler() -> MadeUp:
    return MadeUp()


@pytest.fixture
def page(tab: Browser, sampler: MadeUp) -> Iterator[Browser]:
    with served(sampler, Heard(EVENTS)) as port:
        tab.complaints.clear()
        tab.open(f"http://127.0.0.1:{port}/?token={TOKEN}", 1440)
        wait_until(lambda: tab.evaluate("document.querySelectorAll('.place').length") == 6)
        yield tab
        assert tab.complaints == []
        tab.open("about:blank", 1440)  # before the server ends


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("width", [390, 1440])
def test_it_fits(page: Browser, width: int, dark: bool, tmp_path: Path) -> None:
    page.view(width, height=1000, dark=dark)
    wait_until(lambda: page.evaluate("innerWidth") == width)
    # Its picture, for who wants to see it: the chart is drawn again with each picture.
    time.sleep(0.5)
    page.picture(tmp_path / "page.png")
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    outside = page.evaluate(
        """[...document.querySelectorAll(".graph text, .graph rect")].filter(e => {
          const own = e.getBoundingClientRect(), all = e.ownerSVGElement.getBoundingClientRect();
          return own.left < all.left - 1 || own.right > all.right + 1
            || own.top < all.top - 1 || own.bottom > all.bottom + 1;
        }).map(e => e.textContent)"""
    )
    assert outside == []


@pytest.mark.skipif(not AXE.exists(), reason="needs axe-core: `scripts/setup web`, which needs npm")
@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("width", [390, 1440])
def test_everybody_can_read_it(page: Browser, width: int, dark: bool) -> None:
    """WCAG 2.1 AA, as far as a program can tell."""
    page.view(width, dark=dark)
    page.evaluate("document.querySelector('.bell button').click()")
    page.evaluate(AXE.read_text())
    found = page.evaluate(
        """axe.run({runOnly: ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa"]}).then(
          ({violations}) => violations.map(({id, nodes}) => [id, nodes.map(({html}) => html)]))"""
    )
    assert found == []


def test_names_are_text(page: Browser, sampler: MadeUp) -> None:
    name = "<img src=x onerror=alert(1)>"
    sampler.rates[("hop", f"{name}/0", 1)] = RATES["hop", "web/0", 1]
    wait_until(lambda: name in page.evaluate("[...document.querySelectorAll('h2')].map(e => e.textContent)"))
    assert page.evaluate("document.querySelectorAll('img').length") == 1


def test_the_bell_tells_how_many_are_new(page: Browser) -> None:
    bell = "document.querySelector('.bell button').getAttribute('aria-label')"
    wait_until(lambda: page.evaluate(bell) == "2 new alarms")
    page.evaluate("document.querySelector('.bell button').click()")
    wait_until(lambda: page.evaluate(bell) == "no new alarms")
    shown = page.evaluate("[...document.querySelectorAll('.bell li')].map(e => e.textContent.slice(8))")
    assert shown == ["voice loss: receiver full", "nat function.died"]
    page.evaluate("document.querySelector('.bell button').click()")
    wait_until(lambda: page.evaluate("document.querySelector('.bell ol')") is None)
    assert page.evaluate(bell) == "no new alarms"


def test_a_server_that_is_lost(tab: Browser, tmp_path: Path) -> None:
    with served(MadeUp()) as port:
        tab.open(f"http://127.0.0.1:{port}/?token={TOKEN}", 1440)
        wait_until(lambda: tab.evaluate("document.querySelector('.pill')?.textContent") == "live")
    wait_until(lambda: tab.evaluate("document.querySelector('.pill').textContent") == "stale")
    tab.picture(tmp_path / "stale.png")
    assert "has not answered since" in tab.evaluate("document.querySelector('[role=status]').textContent")
    assert tab.evaluate("document.querySelectorAll('.place').length") == 6, "what was seen last, as old"
