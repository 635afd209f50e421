"""The dashboard's page in a real browser, of a node that is made up: how it looks, and who can read it."""

from __future__ import annotations

import base64
import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from run_folders import add, joined, run_folder
from running_node import wait_until
from served_dashboard import RATES, TOKEN, Heard, MadeUp, served, status_with_functions
from tester_results import both_ways

from tailrace.bench.browser import Browser, browser
from tailrace.dashboard import functions
from tailrace.dashboard.nodes import Remote
from tailrace.dashboard.record import Recorder
from tailrace.results import RunFolder

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


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """With a run, whose hops were traced."""
    folder = tmp_path_factory.mktemp("shown")
    run_folder(folder / "runs", profiles=("64",), chains=2)
    with RunFolder.create(folder / "runs", "later", spec="", host={}, command=[], versions={}) as later:
        add(later, both_ways(1000) | {"hops": {"a-to-b": joined()}}, functions=2)
    return folder


@pytest.fixture
def page(tab: Browser, sampler: MadeUp, folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Browser]:
    monkeypatch.setattr(functions, "status", status_with_functions)
    with served(sampler, Heard(EVENTS), folder=folder, control=True) as port:
        tab.complaints.clear()
        tab.open(f"http://127.0.0.1:{port}/?token={TOKEN}", 1440)
        wait_until(lambda: tab.evaluate("document.querySelectorAll('.place').length") == 6)
        yield tab
        assert tab.complaints == []
        tab.open("about:blank", 1440)  # before the server ends


#: How wide, and whether dark.
LOOKS = [(width, dark) for width in (390, 1440) for dark in (False, True)]


def test_it_fits(page: Browser, tmp_path: Path) -> None:
    for width, dark in LOOKS:
        page.view(width, height=1000, dark=dark)
        wait_until(lambda width=width: page.evaluate("innerWidth") == width)  # type: ignore[misc]
        # Its picture, for who wants to see it: the chart is drawn again with each picture.
        time.sleep(0.5)
        page.picture(tmp_path / f"page-{width}-{'dark' if dark else 'light'}.png")
        assert page.evaluate("document.documentElement.scrollWidth") <= width, (width, dark)
        outside = page.evaluate(
            """[...document.querySelectorAll(".graph text, .graph rect")].filter(e => {
              const own = e.getBoundingClientRect(), all = e.ownerSVGElement.getBoundingClientRect();
              return own.left < all.left - 1 || own.right > all.right + 1
                || own.top < all.top - 1 || own.bottom > all.bottom + 1;
            }).map(e => e.textContent)"""
        )
        assert outside == [], (width, dark)


@pytest.mark.skipif(not AXE.exists(), reason="needs axe-core: `scripts/setup web`, which needs npm")
def test_everybody_can_read_it(page: Browser) -> None:
    """WCAG 2.1 AA, as far as a program can tell."""
    page.evaluate("document.querySelector('.bell button').click()")
    page.evaluate(AXE.read_text())
    for width, dark in LOOKS:
        page.view(width, dark=dark)
        wait_until(lambda width=width: page.evaluate("innerWidth") == width)  # type: ignore[misc]
        assert found_by_axe(page) == [], (width, dark)


def found_by_axe(page: Browser) -> Any:
    return page.evaluate(
        """axe.run({runOnly: ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa"], iframes: false}).then(
          ({violations}) => violations.map(({id, nodes}) => [id, nodes.map(({html}) => html)]))"""
    )


def look_narrow_and_wide(page: Browser, shown: Path) -> None:
    """What is shown fits and can be read, dark at 390 px and light at 1440 px. Its pictures are for who wants them."""
    page.evaluate(AXE.read_text())
    for width, dark in ((390, True), (1440, False)):
        page.view(width, dark=dark)
        wait_until(lambda width=width: page.evaluate("innerWidth") == width)  # type: ignore[misc]
        page.picture(shown.with_name(f"{shown.name}-{width}.png"))
        assert page.evaluate("document.documentElement.scrollWidth") <= width, (shown.name, width)
        assert found_by_axe(page) == [], (shown.name, width)


def remotes(*ports: tuple[str, int]) -> tuple[Remote, ...]:
    return tuple(Remote(name=name, url=f"http://127.0.0.1:{port}", token=TOKEN) for name, port in ports)


#: Each view, with what it has to have before it is looked at.
VIEWS = {
    "rates": "#by-function ~ .plot canvas",
    "functions": "#functions ~ .wide td",
    "host": "#cpus ~ .wide td",
    "measurement": "#slowest ~ .wide td",
    "runs": "#runs ~ .wide td",
}


@pytest.mark.skipif(not AXE.exists(), reason="needs axe-core: `scripts/setup web`, which needs npm")
def test_each_view_fits_and_can_be_read(page: Browser, tmp_path: Path) -> None:
    for view, part in VIEWS.items():
        page.evaluate(f"location.hash = '{view}'")
        wait_until(lambda part=part: page.evaluate(f"document.querySelector('{part}') !== null"))  # type: ignore[misc]
        look_narrow_and_wide(page, tmp_path / view)
    page.evaluate("location.hash = ''")


def test_an_address_that_names_no_view(page: Browser) -> None:
    """Shows the chains, and does not stop the page."""
    address = page.evaluate("location.origin")
    for wrong in ("%", "none", "@"):
        page.open("about:blank", 1440)
        page.open(f"{address}/#{wrong}", 1440)
        wait_until(lambda: page.evaluate("document.querySelectorAll('.place').length") == 6)


def test_a_function_is_replaced_after_a_second_click(page: Browser, monkeypatch: pytest.MonkeyPatch) -> None:
    restarted: list[str] = []
    monkeypatch.setattr(functions, "restart", lambda _, name: restarted.append(name) or {"version": 8})
    page.evaluate("location.hash = 'functions'")
    button = "document.querySelector('[aria-label^=\"restart nat\"]')"
    wait_until(lambda: page.evaluate(f"{button} !== null"))
    page.evaluate(f"{button}.click()")
    wait_until(lambda: page.evaluate(f"{button}.textContent") == "sure?")
    assert restarted == []
    page.evaluate(f"{button}.click()")
    wait_until(lambda: restarted == ["nat"])
    page.evaluate("location.hash = ''")


def test_a_report_and_what_changed_between_two(page: Browser) -> None:
    page.evaluate("location.hash = 'runs'")
    wait_until(lambda: page.evaluate("document.querySelectorAll('#runs ~ .wide tbody tr').length") == 2)
    for box in range(2):
        page.evaluate(f"document.querySelectorAll('#runs ~ .wide input')[{box}].click()")
    wait_until(lambda: page.evaluate("document.querySelector('#changed') !== null"))
    page.evaluate("document.querySelector('[aria-label^=\"open report\"]').click()")
    wait_until(lambda: page.evaluate("document.querySelector('iframe.report') !== null"))
    page.evaluate("location.hash = ''")


def press(page: Browser, part: str, key: str) -> None:
    """A key, once the part of a chain's graph has the focus."""
    page.evaluate(
        f"""(part => {{
          part.focus();
          if (document.activeElement !== part) throw new Error("no focus");
          part.dispatchEvent(new KeyboardEvent("keydown", {{key: "{key}", bubbles: true}}));
        }})(document.querySelector('[aria-label="{part}"]'))"""
    )


@pytest.mark.skipif(not AXE.exists(), reason="needs axe-core: `scripts/setup web`, which needs npm")
def test_what_is_known_of_a_hop_and_of_a_place(page: Browser, tmp_path: Path) -> None:
    text = "document.querySelector('.detail')?.textContent ?? ''"
    press(page, "hop firewall to nat", "Enter")
    wait_until(lambda: "firewall to nat" in page.evaluate(text))
    cells = "[...document.querySelectorAll('.detail tbody tr')].map(e => [...e.children].map(e => e.textContent))"
    wait_until(lambda: ["packets"] in [row[:1] for row in page.evaluate(cells)])
    forward, back, *others = page.evaluate(cells)
    counters = {row[0]: row[1:] for row in others if len(row) == 3}
    assert set(counters) == {"packets", "bytes", "drop receiver full"}, "what has never dropped anything is left out"
    packets, dropped = counters["packets"], counters["drop receiver full"]
    assert int(packets[0].replace(",", "")) > int(packets[1].replace(",", "")) > int(dropped[0].replace(",", "")) > 0
    assert dropped[1] == "0"
    ports = [row for row in others if len(row) > 3]
    assert (forward[0], back[0]) == ("forward", "back")
    assert (forward[1][-1], forward[3][-1], back[1][-1]) == ("M", "k", "k")
    assert forward[5].startswith("receiver full ")
    assert [(row[0], row[1], row[2]) for row in ports] == [
        (name, "up", "0") for name in ("firewall.0", "firewall.1", "nat.0", "nat.1")
    ]
    bursts = "[...document.querySelectorAll('.bursts figure:first-child li')].map(e => e.textContent)"
    assert page.evaluate(bursts) == ["≥ 125 %", "≥ 80 %", "≥ 1675 %"]
    look_narrow_and_wide(page, tmp_path / "detail")
    page.evaluate(
        "document.querySelector('[aria-label=\"place wan\"]').dispatchEvent(new MouseEvent('click', {bubbles: true}))"
    )
    wait_until(lambda: page.evaluate("document.querySelectorAll('.detail').length") == 2)
    wait_until(lambda: any(row[0] == "sent packets" and len(row) == 2 for row in page.evaluate(cells)))
    press(page, "close wan", "Escape")
    wait_until(lambda: page.evaluate("document.activeElement.getAttribute('aria-label')") == "place wan")
    wait_until(lambda: page.evaluate("document.querySelectorAll('.detail').length") == 1)


def note_what_is_saved(page: Browser) -> None:
    """As window.saved and window.blob, instead of as files."""
    page.evaluate(
        """(() => {
          window.saved = [];
          HTMLAnchorElement.prototype.click = function () { window.saved.push(this.download); };
          const made = URL.createObjectURL;
          URL.createObjectURL = blob => {
            window.blob = blob;
            blob.text().then(text => window.text = text);
            return made(blob);
          };
        })()"""
    )


def test_a_graph_is_saved(page: Browser, tmp_path: Path) -> None:
    note_what_is_saved(page)
    for kind in ("SVG", "JSON", "PNG"):
        page.evaluate(
            f"[...document.querySelectorAll('.graph-export button')].find(e => e.textContent == '{kind}').click()"
        )
        wait_until(lambda kind=kind: f"voice.{kind.lower()}" in page.evaluate("window.saved"))  # type: ignore[misc]
        if kind == "SVG":
            wait_until(lambda: "</svg>" in (page.evaluate("window.text") or ""))
            drawn = ElementTree.fromstring(page.evaluate("window.text"))
            assert {"firewall", "1.23\u202fMpps"} <= {(each.text or "").strip() for each in drawn.iter()}
            (tmp_path / "voice.svg").write_text(page.evaluate("window.text"))
        elif kind == "JSON":
            wait_until(lambda: (page.evaluate("window.text") or "").startswith("{"))
            figures = json.loads(page.evaluate("window.text"))
            assert figures["places"] == ["tester.a", "firewall", "nat", "tester.b"]
            assert figures["hops"]["1"]["forward"]["drops"]["receiver full"]["rate"] == pytest.approx(3400, rel=0.05)
    data = page.evaluate(
        """new Promise(done => {
          const reader = new FileReader();
          reader.onload = () => done(reader.result.split(",")[1]);
          reader.readAsDataURL(window.blob);
        })"""
    )
    (tmp_path / "voice.png").write_bytes(base64.b64decode(data))
    colours = page.evaluate(
        """createImageBitmap(window.blob).then(image => {
          const canvas = new OffscreenCanvas(image.width, image.height), pen = canvas.getContext("2d");
          pen.drawImage(image, 0, 0);
          return new Set(new Uint32Array(pen.getImageData(0, 0, image.width, image.height).data.buffer)).size;
        })"""
    )
    assert colours > 20, "boxes, lines and letters are there"


def test_a_legend_follows_a_change_between_dark_and_light(page: Browser) -> None:
    marker = "[...document.querySelectorAll('.u-marker')].find(e => e.style.border.includes('solid'))"
    wait_until(lambda: page.evaluate(f"{marker} !== undefined"))
    colours = []
    for dark in (False, True, False):
        page.view(1440, dark=dark)
        wait_until(lambda dark=dark: page.evaluate("matchMedia('(prefers-color-scheme: dark)').matches") is dark)  # type: ignore[misc]
        # Of one element, so that nothing is drawn anew between the two.
        colours.append(page.evaluate(f"getComputedStyle({marker}).borderTopColor"))
    assert colours[0] == colours[2] != colours[1]


def test_charts_are_saved(page: Browser) -> None:
    note_what_is_saved(page)
    buttons = "[...document.querySelectorAll('.export:not(.graph-export) button')]"
    for kind in ("CSV", "SVG", "PNG"):
        page.evaluate(f"{buttons}.find(e => e.textContent == '{kind}').click()")
        wait_until(lambda kind=kind: f"delivered.{kind.lower()}" in page.evaluate("window.saved"))  # type: ignore[misc]
        if kind != "PNG":
            expected = "seconds,voice → packets/s," if kind == "CSV" else "<polyline"
            wait_until(lambda expected=expected: expected in (page.evaluate("window.text") or ""))  # type: ignore[misc]


def test_a_record_is_replayed(tab: Browser, tmp_path: Path) -> None:
    sampler, file = MadeUp(), tmp_path / "record"

    def written(pictures: int) -> bool:
        return file.read_bytes().count(b"\n") > pictures

    with served(sampler, recorder=Recorder(file, 1 << 20)):
        wait_until(lambda: written(20))
        sampler.rates["hop", "late/0", 1] = RATES["hop", "web/0", 1]
        wait_until(lambda: written(40))
    file.write_bytes(file.read_bytes()[:-20])
    moment = "document.querySelector('.replay input')"
    with served(MadeUp(), replayed=file) as port:
        tab.complaints.clear()
        tab.open(f"http://127.0.0.1:{port}/?token={TOKEN}", 1440)
        wait_until(lambda: tab.evaluate(f"{moment} !== null"))
        assert "was cut short" in tab.evaluate("document.querySelector('.replay').textContent")
        names = "[...document.querySelectorAll('h2')].map(e => e.textContent)"
        for place, late in (("max", True), ("min", False)):
            tab.evaluate(
                f"{moment}.value = {moment}.{place}, {moment}.dispatchEvent(new Event('input', {{bubbles: true}}))"
            )
            wait_until(lambda: tab.evaluate("document.querySelector('.pill').textContent") == "replay")
            wait_until(lambda late=late: ("late" in tab.evaluate(names)) == late)  # type: ignore[misc]
        tab.evaluate("document.querySelectorAll('.replay button')[0].click()")
        wait_until(lambda: tab.evaluate("document.querySelector('.pill').textContent") == "live")
        assert tab.complaints == []
        tab.open("about:blank", 1440)


def test_another_node_in_the_same_page(tab: Browser) -> None:
    other = MadeUp(rates={("hop", "far/0", 1): RATES["hop", "web/0", 1]})
    chains = "[...document.querySelectorAll('.chain h2')].map(e => e.textContent).join()"
    choose = "document.querySelector('[aria-label=node]')"
    with served(other) as far, served(MadeUp(), remotes=remotes(("lab-2", far), ("off", 1))) as port:
        tab.open(f"http://127.0.0.1:{port}/?token={TOKEN}", 1440)
        wait_until(lambda: tab.evaluate(chains) == "voice,web")
        for name, shown in (("lab-2", "far"), ("off", ""), ("", "voice,web")):
            wait_until(lambda: tab.evaluate(f"{choose} !== null"))
            tab.evaluate(f"{choose}.value = '{name}', {choose}.dispatchEvent(new Event('change', {{bubbles: true}}))")
            wait_until(lambda shown=shown: tab.evaluate(chains) == shown)  # type: ignore[misc]
            if name == "off":
                wait_until(lambda: "run there?" in tab.evaluate("document.querySelector('.banner').textContent"))
        tab.open("about:blank", 1440)


@pytest.mark.skipif(not AXE.exists(), reason="needs axe-core: `scripts/setup web`, which needs npm")
def test_all_nodes_at_a_glance(tab: Browser, tmp_path: Path) -> None:
    cells = """[...document.querySelectorAll('#overview ~ .wide tbody tr')].map(
      row => [...row.children].map(e => e.textContent))"""
    with (
        served(MadeUp(rates={("hop", "far/0", 1): RATES["hop", "web/0", 1]})) as far,
        served(MadeUp(), Heard(EVENTS), remotes=remotes(("lab-2", far), ("off", 1))) as port,
    ):
        tab.complaints.clear()
        tab.open(f"http://127.0.0.1:{port}/?token={TOKEN}#nodes", 1440)
        wait_until(lambda: [row[1] for row in tab.evaluate(cells)] == ["live", "live", "unreachable"])
        own, lab, off = tab.evaluate(cells)
        assert (own[2:4], own[6][-1], lab[2:4], lab[6]) == (["2", "1"], "k", ["1", "0"], "0")
        assert lab[0] == "lab-2" and "run there?" in off[-1]
        look_narrow_and_wide(tab, tmp_path / "nodes")
        tab.evaluate("document.querySelector('#overview ~ .wide a[href=\"#chains@lab-2\"]').click()")
        wait_until(lambda: tab.evaluate("document.querySelector('.chain h2')?.textContent") == "far")
        assert tab.complaints == []
        tab.open("about:blank", 1440)


def test_of_many_chains_some_are_shown(page: Browser, sampler: MadeUp) -> None:
    sampler.rates.update({("hop", f"chain-{n}/0", 1): RATES["hop", "web/0", 1] for n in range(1000)})
    search = "document.querySelector('[aria-label=\"filter chains\"]')"
    wait_until(lambda: page.evaluate(f"{search} !== null"))
    assert page.evaluate("document.querySelectorAll('.chain').length") == 12
    assert page.evaluate("document.querySelector('.chain h2').textContent") == "voice", "it drops"
    page.evaluate(f"{search}.value = 'chain-777', {search}.dispatchEvent(new Event('input', {{bubbles: true}}))")
    wait_until(lambda: page.evaluate("document.querySelector('.chain h2')?.textContent") == "chain-777")


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


def test_what_is_new_is_a_notification(tab: Browser) -> None:
    """What was there before is none, nor what comes back; no clock matters."""
    heard = Heard(dict(EVENTS))
    with served(MadeUp(), heard) as port:
        tab.complaints.clear()
        address = f"http://127.0.0.1:{port}"
        tab.call("Browser.grantPermissions", permissions=["notifications"], origin=address)
        tab.open(f"{address}/?token={TOKEN}", 1440)
        tab.evaluate(
            """(() => {
              window.shown = [];
              window.Notification = class extends Notification {
                constructor(title, options) {
                  super(title, options);
                  this.onshow = () => window.shown.push([this.title, this.tag]);
                  this.onerror = () => window.shown.push("refused");
                }
              };
            })()"""
        )
        wait_until(lambda: "2 new" in tab.evaluate("document.querySelector('.bell button').getAttribute('aria-label')"))
        time_ = EVENTS["7"]["time"].replace("10:36", "10:37")
        heard.latest = heard.latest | {"8": {**EVENTS["7"], "time": time_, "about": "firewall"}}
        wait_until(lambda: tab.evaluate("window.shown.length"))
        assert tab.evaluate("window.shown") == [["firewall: function.died", f"8 {time_}"]]
        shown = "document.querySelectorAll('.bell li').length"
        tab.evaluate("document.querySelector('.bell button').click()")
        told = heard.latest["8"]
        heard.latest = dict(EVENTS)
        wait_until(lambda: tab.evaluate(shown) == 2)
        heard.latest = heard.latest | {"8": told, "9": {**told, "about": "router"}}
        wait_until(lambda: tab.evaluate("window.shown.length") > 1)
        assert tab.evaluate("window.shown[1]") == ["router: function.died", f"9 {time_}"], "of 8 it was told before"
        assert tab.complaints == []
        tab.open("about:blank", 1440)


def test_a_server_that_is_lost(tab: Browser, tmp_path: Path) -> None:
    with served(MadeUp()) as port:
        tab.open(f"http://127.0.0.1:{port}/?token={TOKEN}", 1440)
        wait_until(lambda: tab.evaluate("document.querySelector('.pill')?.textContent") == "live")
    wait_until(lambda: tab.evaluate("document.querySelector('.pill').textContent") == "stale")
    tab.picture(tmp_path / "stale.png")
    assert "has not answered since" in tab.evaluate("document.querySelector('[role=status]').textContent")
    assert tab.evaluate("document.querySelectorAll('.place').length") == 6, "what was seen last, as old"
