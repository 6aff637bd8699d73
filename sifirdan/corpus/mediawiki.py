"""Articles of a MediaWiki dump (*-pages-articles.xml) as plain text.

One record a page of the main namespace that is no redirect; the dump itself names its namespaces.
What a reader of the page would not read as its text goes: tables, templates (and with them info
boxes), references, galleries, formulas, files, categories, links to other languages. The markup is
parsed by mwparserfromhell (extra `documents`) on all cores, about 150 pages of 3,000 characters a
second and core: the Turkish Wikipedia takes an hour of one.
"""

import re
import xml.etree.ElementTree as ET
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import IO, Any

from sifirdan.corpus.files import File
from sifirdan.corpus.markup import local_name, stream_elements
from sifirdan.corpus.parallel import IN_PROCESS, Workers
from sifirdan.corpus.records import BadRecord, Record
from sifirdan.errors import ConfigError
from sifirdan.text import lower_tr

FILE_NAMESPACE, CATEGORY_NAMESPACE = "6", "14"
_HIDDEN_NAMES = ("File", "Image", "Category", "Dosya", "Resim", "Kategori", "Media", "Ortam")
_HIDDEN_TAGS = frozenset({
    "ref", "references", "table", "gallery", "math", "chem", "timeline", "score", "imagemap",
    "syntaxhighlight", "source", "templatestyles", "graph", "mapframe", "maplink", "indicator",
    "section", "hiero", "inputbox", "categorytree",
})  # fmt: skip
_OWN_LINES = frozenset({
    "br", "p", "div", "li", "dt", "dd", "blockquote", "center", "poem", "hr", "ul", "ol", "dl",
})  # fmt: skip

_OTHER_WIKI = re.compile(r":?[a-z]{2,3}(-[a-z]{2,10})?:")  # [[en:Ankara]], [[:de:Berlin]]
_MAGIC_WORD = re.compile(r"__[A-ZÇĞİÖŞÜ_]+__")
_EMPTY_BRACKETS = re.compile(r" ?\(\s*[,;:.\s]*\)")
_FIRST_MARK = re.compile(r"\(\s*[,;:]\s*")
_BLANKS = re.compile(r"[ \t\u00a0]+")


_BATCH_CHARS = 1 << 17  # of wikitext: about a third of a second of work


@dataclass(frozen=True)
class Page:
    """A page as the dump has it."""

    place: str
    title: str
    number: int
    wikitext: str | None


@dataclass
class Batch:
    """Pages that one worker turns into text; `hidden_names` as in `plain_text`."""

    hidden_names: set[str]
    pages: list[Page | BadRecord] = field(default_factory=list)


def read(file: File, workers: Workers = IN_PROCESS) -> Iterator[Record | BadRecord]:
    """The articles of one dump, in its order, with title and page number as meta."""
    _require_parser()
    for found in workers.map(articles, _batches(file)):
        yield from found


def articles(batch: Batch) -> list[Record | BadRecord]:
    """The text of each page of a batch."""
    names = batch.hidden_names
    return [p if isinstance(p, BadRecord) else _article(p, names) for p in batch.pages]


def _batches(file: File) -> Iterator[Batch]:
    """The pages of a dump. What breaks it off is the last record, so that none before it is lost."""
    batch, num_chars, any_page = Batch(set(map(lower_tr, _HIDDEN_NAMES))), 0, False
    try:
        for element in _pages_and_namespaces(file.stream):
            if local_name(element) == "namespace":
                if element.get("key") in (FILE_NAMESPACE, CATEGORY_NAMESPACE):
                    batch.hidden_names.add(lower_tr(element.text or ""))
                continue
            any_page = True
            if page := _page(element, file.origin):
                batch.pages.append(page)
                num_chars += len(page.wikitext or "")
            if num_chars >= _BATCH_CHARS:
                yield batch
                batch, num_chars = Batch(batch.hidden_names), 0
        if not any_page:
            reason = "holds no page: is it a pages-articles dump?"
            batch.pages.append(BadRecord(file.origin, reason))
    except (ET.ParseError, ValueError) as error:
        batch.pages.append(BadRecord(file.origin, f"is no whole dump: {error}"))
    yield batch


def plain_text(wikitext: str, hidden_names: set[str]) -> str:
    """Wikitext as a reader sees it, a paragraph, list entry or heading a line. `hidden_names` are
    the namespaces of files and categories, in small letters.

    "'''Ankara''' [[Türkiye]]'nin {{alt|x}}[[başkent]]idir.<ref>a</ref>" ->
    "Ankara Türkiye'nin başkentidir."
    """
    import mwparserfromhell

    # Style marks ('' and ''') are dealt with below: unbalanced ones cost the parser much time.
    code = mwparserfromhell.parse(wikitext, skip_style_tags=True)
    return _tidy("".join(_visible(code, hidden_names)))


def _require_parser() -> None:
    try:
        import mwparserfromhell  # noqa: F401
    except ModuleNotFoundError:
        raise ConfigError(
            "a MediaWiki dump is read by mwparserfromhell, which is not installed",
            todo="run: pip install 'sifirdan[documents]'",
        ) from None


def _pages_and_namespaces(stream: IO[bytes]) -> Iterator[ET.Element]:
    yield from stream_elements(stream, ("page", "namespace"), None)


def _page(page: ET.Element, origin: str) -> Page | None:
    """A page of the main namespace that is no redirect."""
    parts = {local_name(element): element for element in page.iter()}
    if parts["ns"].text != "0" or "redirect" in parts:
        return None
    number = next(e.text for e in page if local_name(e) == "id")
    wikitext = parts["text"].text if "text" in parts else None
    return Page(f"{origin}#{number}", parts["title"].text or "", int(number or 0), wikitext)


def _article(page: Page, names: set[str]) -> Record | BadRecord:
    if page.wikitext is None:
        return BadRecord(page.place, f"the page '{page.title}' has no text")
    if (unclosed := _unclosed(page.wikitext)) > MOST_UNCLOSED:
        reason = f"leaves {unclosed} brackets or tags open, which no page of a wiki does"
        return BadRecord(page.place, f"the page '{page.title}' {reason}")
    try:
        text = plain_text(page.wikitext, names)
    except RecursionError:
        return BadRecord(page.place, f"the page '{page.title}' nests too deeply")
    return Record(page.place, text, {"title": page.title, "page": page.number})


# The parser tries every mark that is never closed again and again, so its time grows with their
# square: 20,000 would take minutes, this many a third of a second.
MOST_UNCLOSED = 1000
_MARK = re.compile(r"[{}\[\]]|</?[a-z]+(?:[^<>]*/>)?", re.IGNORECASE)
_STAND_ALONE = frozenset(
    "<" + name for name in ("br", "hr", "li", "dt", "dd", "p", "td", "th", "tr")
)


def _unclosed(wikitext: str) -> int:
    """How many opening brackets and tags nothing behind them closes."""
    closing: Counter[str] = Counter()  # those behind that are still to be opened
    found = 0
    for mark in map(lower_tr, reversed(_MARK.findall(wikitext))):
        if mark in ("}", "]") or mark.startswith("</"):
            closing[{"}": "{", "]": "["}.get(mark, "<" + mark[2:])] += 1
        elif closing[mark] > 0:
            closing[mark] -= 1
        elif not mark.endswith("/>") and mark not in _STAND_ALONE:
            found += 1
    return found


def _visible(code: Any, names: set[str]) -> Iterator[str]:
    from mwparserfromhell import nodes

    for node in code.nodes:
        if isinstance(node, nodes.Text):
            yield str(node.value)
        elif isinstance(node, nodes.Wikilink):
            yield from _link(node, names)
        elif isinstance(node, nodes.ExternalLink):
            if node.title is not None:
                yield from _visible(node.title, names)
        elif isinstance(node, nodes.Heading):
            yield f"\n{_HEADING}{node.level}{''.join(_visible(node.title, names)).strip()}\n"
        elif isinstance(node, nodes.HTMLEntity):
            yield node.normalize()
        elif isinstance(node, nodes.Tag):
            yield from _tag(node, names)


def _link(node: Any, names: set[str]) -> Iterator[str]:
    title = str(node.title).strip()
    space = lower_tr(title.partition(":")[0].strip()) if ":" in title else ""
    if space in names or (_OTHER_WIKI.match(title) and node.text is None):
        return
    yield from _visible(node.text, names) if node.text is not None else [title.lstrip(":")]


def _tag(node: Any, names: set[str]) -> Iterator[str]:
    name = str(node.tag).strip()
    if name in _HIDDEN_TAGS:
        return
    line = "\n" if name in _OWN_LINES and not node.wiki_markup else ""
    yield line
    if node.contents is not None:
        yield from _visible(node.contents, names)
    yield line


_HEADING = "\x00"  # marks a heading, and its level, until it is known what stands below it
_QUOTES = re.compile("'{5}|'{2,3}(?!')")


def _tidy(text: str) -> str:
    """Lines with something in them; no marks of style, no heading over nothing, no brackets that a
    template has left empty."""
    text = _MAGIC_WORD.sub("", _QUOTES.sub("", text))
    text = _FIRST_MARK.sub("(", _EMPTY_BRACKETS.sub("", text))
    kept: list[str] = []
    for line in [*text.split("\n"), f"{_HEADING}0"]:
        line = _BLANKS.sub(" ", line).strip()
        while line.startswith(_HEADING) and kept and _HEADING + line[1] <= kept[-1][:2] < "\x01":
            kept.pop()  # a section of which only its heading is left
        if line:
            kept.append(line)
    return "\n".join(line[2:] if line.startswith(_HEADING) else line for line in kept[:-1])
