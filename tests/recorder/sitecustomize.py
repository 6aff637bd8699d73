"""Python loads this by itself when its folder is on PYTHONPATH: records what each stage opens.

Not a test. With RECORD_FOLDER set, every process of a DVC stage notes the files that Python code
opens in the project and the addresses it looks up or connects to, a line each, in
`<RECORD_FOLDER>/<stage>.tsv`. Files that libraries open in C are not seen.
"""

import os
import sys


def _record(folder: str, stage: str) -> None:
    root = os.path.realpath(os.environ["DVC_ROOT"])
    out = os.open(os.path.join(folder, f"{stage}.tsv"), os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    seen = set()

    def note(kind: str, value: str) -> None:
        if (kind, value) not in seen:
            seen.add((kind, value))
            os.write(out, f"{kind}\t{value}\n".encode("utf-8", "surrogateescape"))

    def hook(event: str, arguments: tuple) -> None:
        if event == "open" and arguments[1] is not None:  # None: os.open, which opens folders
            path = arguments[0]
            if isinstance(path, str | bytes | os.PathLike):
                full = os.path.realpath(os.fsdecode(path))
                if full.startswith(root + os.sep):
                    note("file", full[len(root) + 1 :])
        elif event in ("socket.connect", "socket.sendto"):
            note("address", repr(arguments[1]))
        elif event in ("socket.getaddrinfo", "socket.gethostbyname"):
            note("address", repr(arguments[:2]))

    sys.addaudithook(hook)


if os.environ.get("RECORD_FOLDER") and os.environ.get("DVC_STAGE"):
    _record(os.environ["RECORD_FOLDER"], os.environ["DVC_STAGE"])
