#!/usr/bin/env python3
"""Runs several `tailrace` commands in one interpreter: importing it takes an emulated machine half a minute.

The arguments are JSON: a list of commands, each a list of words. For each, one line of JSON is printed: its exit status
and what it wrote.
"""

import contextlib
import io
import json
import sys
from pathlib import Path

sys.path.insert(0, "/opt/tailrace")

from tailrace.cli.main import main

for words in json.loads(sys.argv[1]):
    out, error = io.StringIO(), io.StringIO()
    sys.argv = ["tailrace", *words]
    # On the console too, so that a machine that stops answering shows at which command.
    with contextlib.suppress(OSError), Path("/dev/kmsg").open("w") as console:
        console.write("<3>tailrace " + " ".join(words) + "\n")
    status: object = 0
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(error):
        try:
            main()
        except SystemExit as end:
            status = end.code or 0
    document = {"status": status, "out": out.getvalue(), "error": error.getvalue()}
    sys.__stdout__.write(json.dumps(document) + "\n")
    sys.__stdout__.flush()
