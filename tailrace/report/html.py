"""report.html: one file that needs no network, holds no untrusted markup and prints.

Whatever the run folder holds is untrusted. The template escapes it, data for the charts is JSON with <, > and &
escaped, and a content security policy lets only the page's own two scripts run, by their hashes.
"""

from __future__ import annotations

import base64
import hashlib
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from tailrace.report import curves, figures, findings, hops
from tailrace.results.histogram import Histogram
from tailrace.results.model import ResultError, Run
from tailrace.results.run import load_histogram, load_run, write_atomically

REPORT = "report.html"
_HERE = Path(__file__).parent


def write_report(folder: Path) -> Path:
    """Make report.html in the run `folder` from what lies there, and return its path.

    A histogram that is missing or damaged costs its curve, and the report says so. Raises ResultError if there is no
    results.json that can be read, OSError if the report cannot be written.
    """
    run = load_run(folder)
    histograms: dict[str, Histogram] = {}
    missing: list[str] = []
    for trial in run.trials:
        way = trial.worse
        if way.histogram is None or way.latency_us is None:
            continue
        try:
            histograms[trial.name] = load_histogram(folder, way.histogram, way.latency_us)
        except ResultError as error:
            missing.append(f"No curve for {figures.trial_name(trial)}: {error}")
    spec = folder / "spec.yaml"
    try:
        text = spec.read_text(encoding="utf-8", errors="replace")
    except OSError as error:
        text = ""
        missing.append(f"No spec: {error}")
    path = folder / REPORT
    write_atomically(path, render(run, histograms, spec=text, remarks=missing))
    return path


def render(run: Run, histograms: Mapping[str, Histogram], *, spec: str, remarks: list[str] | None = None) -> str:
    """The report of `run` as HTML. `histograms` is by trial, of its headline; `remarks` are further warnings."""
    environment = Environment(
        loader=PackageLoader("tailrace.report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    uplot = (_HERE / "vendor/uPlot.iife.min.js").read_text(encoding="utf-8")
    own = (_HERE / "templates/report.js").read_text(encoding="utf-8")
    columns = [*figures.NAMING, *figures.TRAFFIC, *figures.LATENCY]
    groups: list[tuple[str, int]] = []
    for column in columns:
        if groups and groups[-1][0] == column.group:
            groups[-1] = (column.group, groups[-1][1] + 1)
        else:
            groups.append((column.group, 1))
    return environment.get_template("report.html.j2").render(
        run=run,
        trials=figures.in_order(run),
        columns=columns,
        groups=groups,
        reading=figures.READING,
        warnings=[*figures.warnings(run), *(figures.plain(text) for text in remarks or [])],
        sections=list(findings.sections(run)),
        hops=list(hops.tables(run)),
        hop_titles=hops.TITLES,
        verdict=figures.verdict(run),
        faultless=not any(trial.total(name) for trial in run.trials for name in figures.FAULTS),
        figures=figures,
        host=list(facts(run.host)),
        command=figures.plain(shlex.join(run.command)),
        spec=spec,
        data=curves.charts(run, histograms),
        style=_source("templates/report.css"),
        uplot_style=_source("vendor/uPlot.min.css"),
        scripts=[Markup(uplot), Markup(own)],
        hashes=" ".join(f"'{_hash(script)}'" for script in (uplot, own)),
    )


def facts(value: Any, name: str = "") -> list[tuple[str, str]]:
    """The leaves of a tree of host facts as pairs of name and text: {"cpu": {"cores": 2}} is ("cpu: cores", "2")."""
    if isinstance(value, Mapping):
        return [pair for key, part in value.items() for pair in facts(part, f"{name}: {key}" if name else str(key))]
    if isinstance(value, list | tuple):
        if any(isinstance(part, Mapping | list | tuple) for part in value):
            return [pair for number, part in enumerate(value) for pair in facts(part, f"{name} {number}")]
        return [(name, ", ".join(_leaf(part) for part in value) or "none")]
    return [(name, _leaf(value))]


def _leaf(value: object) -> str:
    if value is None:
        return "unknown"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return str(value)


def _source(name: str) -> Markup:
    return Markup((_HERE / name).read_text(encoding="utf-8"))


def _hash(script: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(script.encode()).digest()).decode("ascii")
