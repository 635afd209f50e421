"""Writes a file as an array in C: embed.py FILE HEADER."""

import sys
from pathlib import Path

source, header = map(Path, sys.argv[1:])
name = header.stem
numbers = ", ".join(str(byte) for byte in source.read_bytes())
header.write_text(f"static const unsigned char {name}[] __attribute__((aligned(8))) = {{{numbers}}};\n")
