"""`tailrace image`: what functions in containers and machines start from."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from tailrace.cli import complete
from tailrace.cli.options import JsonOption
from tailrace.cli.output import print_json, print_line, run_command
from tailrace.cli.table import PlainTable, print_table
from tailrace.errors import Mistake
from tailrace.functions.images import (
    DEFAULT,
    KERNELS,
    PROFILES,
    Image,
    build_machine_image,
    container_image,
    images_folder,
    import_root,
    machine_images,
    unusable_images,
)

app = typer.Typer(help="Make what containers and machines start from.", no_args_is_help=True, rich_markup_mode=None)


@app.command()
def build(
    name: Annotated[str, typer.Argument(help="The image's name.", autocompletion=complete.image)] = DEFAULT,
    kernel: Annotated[
        str,
        typer.Option(
            help="Debian's kernel: cloud, small; stock; rt, with real-time priorities for interrupts.",
            autocompletion=complete.kernel,
        ),
    ] = "cloud",
    profile: Annotated[
        str,
        typer.Option(
            help="Tuned inside, with cyclictest: latency. It shows with two CPUs or more (`cpus`).",
            autocompletion=complete.words(*PROFILES),
        ),
    ] = "",
    with_: Annotated[
        str, typer.Option("--with", metavar="LIST", help="Programs of this host that it has too, such as stress-ng.")
    ] = "",
    disk: Annotated[
        bool, typer.Option("--disk", help="As a disk too, which boots by itself and forwards between two ports.")
    ] = False,
    container: Annotated[bool, typer.Option("--container", help="The containers' image, in podman's store.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Make an image of Tailrace's functions: a machine's kernel and initramfs, or with --container an OCI image.

    \b
    sudo tailrace image build
    sudo tailrace image build realtime --kernel rt --profile latency
    sudo tailrace image build loaded --with stress-ng
    sudo tailrace image build router --disk
    sudo tailrace image build --container

    It is made of Debian's packages, which apt downloads once, and of tailrace-vnf. The same input gives the same bytes.
    Containers need no build: their image is made when the first one starts.
    """
    programs = list(dict.fromkeys(filter(None, (each.strip() for each in with_.split(",")))))
    raise typer.Exit(
        run_command(lambda: _build(name, kernel, profile, programs, disk=disk, container=container, as_json=as_json))
    )


@app.command("import")
def import_(
    archive: Annotated[
        Path, typer.Argument(help="A root filesystem in a tar archive, such as LXC's rootfs.tar.xz (untried).")
    ],
    name: Annotated[str, typer.Argument(help="The image's name, such as localhost/fw:3.")],
    entry: Annotated[str, typer.Option(metavar="WORDS", help="The command that it starts.")],
    as_json: JsonOption = False,
) -> None:
    """Make a containers' image of a root filesystem.

    \b
    sudo tailrace image import rootfs.tar.xz localhost/fw:3 --entry '/usr/sbin/fw --config /etc/fw'

    A spec has it with `runs: container` and `image: localhost/fw:3`. What starts finds its sockets in its environment.
    """
    raise typer.Exit(run_command(lambda: _import(archive, name, entry, as_json=as_json)))


@app.command("list")
def list_(as_json: JsonOption = False) -> None:
    """Show the machines' images.

    \b
    sudo tailrace image list
    """
    raise typer.Exit(run_command(lambda: _list(as_json=as_json)))


def _build(
    name: str, kernel: str, profile: str, programs: Sequence[str], *, disk: bool, container: bool, as_json: bool
) -> int:
    if container:
        given = {"": name != DEFAULT and name, "--kernel ": kernel != "cloud" and kernel, "--profile ": profile}
        given |= {"--with ": ",".join(programs), "--disk": disk and " "}
        ignored = [f"{option}{value}".strip() for option, value in given.items() if value]
        if ignored:
            raise Mistake(
                f"--container takes no {', '.join(ignored)}: the containers' image is named by its contents, and has "
                "no system of its own; leave it out, or make an image of your own for `tailrace image import`"
            )
        made = container_image()
        if as_json:
            print_json({"image": made})
        else:
            print_line(f"The containers' image is {made}.")
        return 0
    if kernel not in KERNELS:
        raise Mistake(f"--kernel {kernel}: there is none of this name; expected {', '.join(KERNELS)}")
    if profile not in ("", *PROFILES):
        raise Mistake(f"--profile {profile}: there is none of this name; expected {', '.join(PROFILES)}")
    found = _described(build_machine_image(name, kernel, disk=disk, profile=profile, programs=programs))
    if as_json:
        print_json(found)
    else:
        print_line(f"The image {name} is in {found['folder']}: {found['bytes'] / 1e6:.1f} MB, {found['kernel']}.")
        if disk:
            print_line(f"As a disk it is {found['disk']}; `image: {found['disk']}` boots it.")
    return 0


def _import(archive: Path, name: str, entry: str, *, as_json: bool) -> int:
    try:
        words = shlex.split(entry)
    except ValueError as error:
        raise Mistake(f"--entry {entry}: {error}; expected words as a shell reads them") from None
    if not words:
        raise Mistake("--entry: there is no word; expected a command, such as /usr/sbin/fw")
    made = import_root(archive, name, words)
    if as_json:
        print_json({"image": made})
    else:
        print_line(f"The image {made} is in podman's store.")
    return 0


def _list(*, as_json: bool) -> int:
    images, unusable = [_described(image) for image in machine_images()], unusable_images()
    if as_json:
        damaged = [_nothing_of(name) | {"problem": why} for name, why in unusable.items()]
        print_json(sorted(images + damaged, key=lambda each: each["name"]))
        return 0
    if not images and not unusable:
        print_line(f"There is no image in {images_folder()}; `tailrace image build` makes one.")
        return 0
    if images:
        table = PlainTable("image", "kernel", "MB", "made of")
        for each in images:
            table.add_row(each["name"], each["kernel"], f"{each['bytes'] / 1e6:.1f}", each["made_of"])
        print_table(table)
    for name, why in unusable.items():
        print_line(f"{name} cannot be used: {why}")
    return 0


def _described(image: Image) -> dict[str, Any]:
    return {
        "name": image.folder.name,
        "folder": str(image.folder),
        "kernel": image.kernel,
        "bytes": sum(each.stat().st_size for each in (image.vmlinuz, image.initramfs)),
        "made_of": image.made_of,
        "profile": image.profile or None,
        "programs": list(image.programs),
        "drivers": None if image.drivers is None else list(image.drivers),
        "disk": str(image.disk) if image.disk.exists() else None,
        "problem": None,
    }


def _nothing_of(name: str) -> dict[str, Any]:
    """The same of an image that cannot be used, of which nothing else is sure."""
    keys = ("kernel", "bytes", "made_of", "profile", "programs", "drivers", "disk")
    return {"name": name, "folder": str(images_folder() / name), **dict.fromkeys(keys)}
