"""Whether this machine has the images that a plan's functions name: a short look for a plan, and a whole one before
anything starts. Any thread."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from tailrace.errors import Mistake, Refused
from tailrace.functions.runtimes import STARTERS
from tailrace.plan.planned import Plan


def look_for_images(plan: Plan, names: Collection[str]) -> list[str]:
    """Finds images and files that functions name and this machine lacks, by a short look, and says what was not looked
    at: of a runtime with images that it lacks, only files are. Raises Failure, Refused."""
    lacks: dict[str, Mistake] = {}
    for runtime in dict.fromkeys(each.runs for each in plan.started if each.name in names and not each.arrives):
        if not STARTERS[runtime].images:
            continue
        try:
            STARTERS[runtime].check_by_looking()
        except Mistake as mistake:
            lacks[runtime] = mistake
    _check_files(plan, names)
    for each in _with_images(plan, names):
        with _about_image(each):
            if each.runs in lacks:
                STARTERS[each.runs].check_image_file(each.kind, each.image, each.settings)
            else:
                STARTERS[each.runs].check_image(each.kind, each.image, each.settings)
    _check_drivers(plan, names, lacks)
    return [f"not checked whether a {runtime} starts here, nor its image: {why}" for runtime, why in lacks.items()]


def check_images(plan: Plan, names: Collection[str]) -> None:
    """Finds images that functions name and this machine lacks, or that are damaged; before them what the functions live
    in. Raises Failure, Mistake, Refused."""
    wanted = _with_images(plan, names)
    for runtime in {each.runs for each in wanted}:
        STARTERS[runtime].check()
    _check_files(plan, names)
    for each in wanted:
        with _about_image(each):
            STARTERS[each.runs].check_whole_image(each.kind, each.image, each.settings)
    _check_drivers(plan, names)


def _check_drivers(plan: Plan, names: Collection[str], lacks: Collection[str] = ()) -> None:
    """Finds interfaces that an image of Tailrace's own has no driver for; not of runtimes that this machine lacks, nor
    of images of somebody else's. Raises Refused."""
    for each in plan.started:
        if each.name in names and each.kind is not None and not each.arrives and each.runs not in lacks:
            try:
                STARTERS[each.runs].check_drivers(each.image, each.interfaces, each.driver)
            except Mistake as mistake:
                raise Refused(f"functions.{each.function}.interface: {mistake}") from None


def _check_files(plan: Plan, names: Collection[str]) -> None:
    """Finds files, other than images, that functions name and that are not there. Raises Refused."""
    for each in plan.started:
        if each.name in names and not each.arrives:
            try:
                STARTERS[each.runs].check_files(each.settings)
            except Mistake as mistake:
                raise Refused(f"functions.{each.function}.{mistake}") from None


@dataclass(frozen=True)
class _WithImage:
    """What an image is checked for; replicas of a function ask for the same."""

    runs: str
    kind: str | None
    image: str
    settings: tuple[str, ...]
    function: str = field(compare=False)
    """The first that names it."""


def _with_images(plan: Plan, names: Collection[str]) -> list[_WithImage]:
    """The images of functions, each once, but of those that come with theirs."""
    found: dict[_WithImage, None] = {}
    for each in plan.started:
        if each.name in names and each.image is not None and not each.arrives:
            found.setdefault(_WithImage(each.runs, each.kind, each.image, tuple(each.settings), each.function))
    return list(found)


@contextmanager
def _about_image(of: _WithImage) -> Iterator[None]:
    try:
        yield
    except Mistake as mistake:
        raise Refused(f"functions.{of.function}.image: {mistake}") from None
