"""HTML and XML as text.

`page` gives the title and all text of an HTML page, chapter of a book or fragment; of a web page
only the main text is wanted, which cleaning/html.py finds. `elements` streams the text of an XML
file. Not for wikitext: mediawiki.py.
"""

import xml.etree.ElementTree as ET
from collections.abc import Iterator
from html.parser import HTMLParser
from typing import IO

_BLOCKS = frozenset({
    "address", "article", "aside", "blockquote", "body", "br", "caption", "dd", "div", "dl",
    "dt", "fieldset", "figcaption", "figure", "footer", "form", "h1", "h2", "h3", "h4", "h5",
    "h6", "header", "hr", "li", "main", "nav", "ol", "p", "pre", "section", "table", "tbody",
    "td", "tfoot", "th", "thead", "title", "tr", "ul",
})  # fmt: skip
_HIDDEN = frozenset({"script", "style", "template", "noscript", "svg", "math"})


def page(html: str) -> tuple[str, str]:
    """The title and the text of a page, one block of it a line; no script, no style.

    '<title>Ev</title><p>Bir <b>iki</b></p><p>üç</p>' -> ('Ev', 'Bir iki\\nüç')
    """
    parser = _Page()
    parser.feed(html)
    parser.close()
    return " ".join("".join(parser.title).split()), join_lines("".join(parser.text))


class _Page(HTMLParser):
    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.title: list[str] = []
        self.text: list[str] = []
        self._in_title = False
        # Open elements whose content nobody sees, and where in `text` it begins. It is taken out at
        # their end, for one that has none would hide the rest of the page.
        self._hidden: list[tuple[str, int]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag == "title":
            self._in_title = not self.title
        if tag in _HIDDEN:
            self._hidden.append((tag, len(self.text)))
        if tag in _BLOCKS:
            self.text.append("\n")

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag in _BLOCKS:
            self.text.append("\n")

    def handle_endtag(self, tag: str) -> None:
        if tag == "title":
            self._in_title = False
        if tag in _HIDDEN:
            self._take_out(tag)
        if tag in _BLOCKS:
            self.text.append("\n")

    def handle_data(self, data: str) -> None:
        if self._in_title:
            self.title.append(data)
        else:
            self.text.append(" ".join(data.split("\n")))

    def close(self) -> None:
        super().close()
        for tag in ("script", "style"):  # code, with an end or without
            self._take_out(tag)

    def _take_out(self, tag: str) -> None:
        """What the outermost open element of a name hides; its line breaks stay."""
        for number, (hidden, start) in enumerate(self._hidden):
            if hidden == tag:
                self.text[start:] = ["\n"] if "\n" in self.text[start:] else []
                del self._hidden[number:]
                return


def join_lines(text: str) -> str:
    """The lines that hold something, each without blanks at its ends and doubled ones inside."""
    lines = (" ".join(line.split()) for line in text.split("\n"))
    return "\n".join(line for line in lines if line)


def elements(stream: IO[bytes], name: str, encoding: str | None) -> Iterator[str]:
    """The text of each outermost element of a name (its namespace does not count), in order and
    with one such element in memory. `encoding` overrides what the file declares. Raises
    xml.etree.ElementTree.ParseError."""
    for element in stream_elements(stream, (name,), encoding):
        yield join_lines("".join(element.itertext()))


def stream_elements(
    stream: IO[bytes], names: tuple[str, ...], encoding: str | None
) -> Iterator[ET.Element]:
    """Each outermost element that has one of the names; what has been passed is forgotten."""
    opened: list[ET.Element] = []
    depth = 0  # of elements with such a name
    parser = ET.XMLParser(encoding=encoding)
    for event, element in ET.iterparse(stream, events=("start", "end"), parser=parser):
        wanted = local_name(element) in names
        if event == "start":
            opened.append(element)
            depth += wanted
            continue
        opened.pop()
        depth -= wanted
        if depth:
            continue
        if wanted:
            yield element
        if opened:  # or the whole file would pile up in memory
            opened[-1].remove(element)


def whole(stream: IO[bytes], encoding: str | None) -> str:
    """All text of an XML file. Raises xml.etree.ElementTree.ParseError."""
    root = ET.parse(stream, ET.XMLParser(encoding=encoding)).getroot()
    return join_lines("".join(root.itertext()))


def local_name(element: ET.Element) -> str:
    """The name without its namespace: '{http://…}page' -> 'page'."""
    return element.tag.rpartition("}")[2]
