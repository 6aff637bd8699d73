"""Bytes to text, strictly: in the encoding that is stated, and a byte that does not fit is named with
its offset. Lines end at LF only. Not for what a text holds: see formats.py and tables.py.
"""

import io
import re
from collections.abc import Iterator

from sifirdan.corpus.files import File, LimitReached, Limits

BLOCK_BYTES = 8 << 20
UTF8_MARK = b"\xef\xbb\xbf"
UTF32_MARKS = (b"\xff\xfe\0\0", b"\0\0\xfe\xff")  # the first begins with one of UTF-16
UTF16_MARKS = {b"\xff\xfe": "utf-16-le", b"\xfe\xff": "utf-16-be"}

_TURKISH_BYTES = "çğıöşüÇĞİÖŞÜ".encode("windows-1254")
_C1 = re.compile(rb"[\x80-\x9f]")


def decode(raw: bytes, encoding: str, *, at: int = 0) -> tuple[str, str | None]:
    """The text and None; or the text with U+FFFD in the wrong places, and why it is wrong. `at` is
    where `raw` starts in its file."""
    try:
        text = raw.decode(encoding)
    except UnicodeDecodeError as error:
        return raw.decode(encoding, "replace"), _describe(error, raw, encoding, at)
    if encoding in ("windows-1254", "iso-8859-9") and not raw.isascii():
        if _is_utf8(raw):  # text of a Turkish one-byte encoding is that by no chance
            return text, f"byte {at}: this is UTF-8, not {encoding}"
        if encoding == "iso-8859-9" and (control := _C1.search(raw)):
            found = f"byte {at + control.start()} (0x{raw[control.start()]:02x}) is no character"
            return text, f"{found} of iso-8859-9, but one of windows-1254: is it that?"
    return (text if at else text.removeprefix("\ufeff")), None


def _is_utf8(raw: bytes) -> bool:
    try:
        raw.decode()
    except UnicodeDecodeError:
        return False
    return True


def _describe(error: UnicodeDecodeError, raw: bytes, encoding: str, at: int) -> str:
    found = f"byte {at + error.start} (0x{raw[error.start]:02x}) is not {encoding}"
    if encoding == "utf-8" and raw[error.start] in _TURKISH_BYTES:
        found += "; an older Turkish file? save it as UTF-8, or set the encoding to windows-1254"
    return found


def read_bytes(file: File, limits: Limits) -> bytes:
    """The whole file; LimitReached where it is larger than a document may be."""
    raw = file.stream.read(limits.max_document_bytes + 1)
    if len(raw) > limits.max_document_bytes:
        raise LimitReached(_too_large("the document", limits))
    return raw


def _too_large(what: str, limits: Limits) -> str:
    return f"{what} has more than {limits.max_document_bytes} bytes (ingest.max_document_bytes)"


def read_text(file: File, encoding: str, limits: Limits) -> tuple[str, str | None]:
    """The whole file as one text, or why it is none; see `decode`."""
    return decode(read_bytes(file, limits), encoding)


def lines(
    stream: io.BufferedReader, encoding: str, limits: Limits
) -> Iterator[tuple[str, str | None]]:
    """The lines, which end at LF only, and why one cannot be used."""
    if encoding == "utf-16":
        yield from _lines_utf16(stream, limits)
        return
    start, most = 0, limits.max_document_bytes
    while raw := stream.readline(most + 1):
        size = len(raw)
        if size > most:
            while raw and not raw.endswith(b"\n"):
                raw = stream.readline(BLOCK_BYTES)
                size += len(raw)
            yield "", _too_large("the line", limits)
        else:
            decoded = [decode(raw, encoding, at=start)]
            raw = b""  # a line may have hundreds of megabytes: hold it once
            yield decoded.pop()
        start += size


def _lines_utf16(stream: io.BufferedReader, limits: Limits) -> Iterator[tuple[str, str | None]]:
    """The byte 0x0a alone ends nothing here: it is also a half of other characters."""
    start = 2
    encoding = UTF16_MARKS[stream.read(start)]
    lf = "\n".encode(encoding)
    rest, searched, more = b"", 0, True
    while more:
        block = stream.read(BLOCK_BYTES)
        rest, more, begin = rest + block, bool(block), 0
        while (found := _find_pair(rest, lf, searched)) >= 0:
            yield decode(rest[begin : found + 2], encoding, at=start + begin)
            begin = searched = found + 2
        start, rest = start + begin, rest[begin:]  # once a block, as it copies all that is left
        searched = len(rest) // 2 * 2
        if len(rest) > limits.max_document_bytes:
            raise LimitReached(_too_large("the line", limits))
    if rest:
        yield decode(rest, encoding, at=start)


def _find_pair(raw: bytes, pair: bytes, start: int) -> int:
    found = raw.find(pair, start)
    while found % 2 and found > 0:
        found = raw.find(pair, found + 1)
    return found
