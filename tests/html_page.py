"""A page as a browser takes it apart, and what every page of ours must be."""

import re
from html.parser import HTMLParser

VOID = {"meta", "rect", "polygon", "br"}


class Page(HTMLParser):
    """Tags, their attributes, text, and what is not closed."""

    def __init__(self, source: str) -> None:
        super().__init__()
        self.attributes: list[tuple[str, str, str]] = []
        self.elements: list[tuple[str, dict[str, str]]] = []
        self.tags: set[str] = set()
        self.open: list[str] = []
        self.text: list[str] = []
        self.feed(source)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_startendtag(tag, attrs)
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.attributes += [(tag, name, value or "") for name, value in attrs]
        self.elements.append((tag, {name: value or "" for name, value in attrs}))

    def handle_endtag(self, tag: str) -> None:
        assert self.open and self.open.pop() == tag, tag

    def handle_data(self, data: str) -> None:
        self.text.append(data)


def check_page(source: str) -> Page:
    """Well formed, self-contained, without script, every link inside leads somewhere, and every figure
    says what it shows."""
    page = Page(source)
    assert not page.open
    assert not page.tags & {"script", "link", "iframe", "img", "object", "embed", "base", "form"}
    for tag, name, value in page.attributes:
        if name in ("src", "href", "srcset", "action", "data", "poster", "xlink:href"):
            assert (tag, name) == ("a", "href") and not re.match(r"[a-z]+:|//", value), value
        assert not name.startswith("on"), name
        assert "nan" not in value.split(",") and "nan%" not in value and "inf%" not in value, value
    style = re.findall(r"<style>(.*?)</style>", source, flags=re.S)
    assert "url(" not in style[0] and "@import" not in style[0]
    assert "default-src 'none'" in source and '<meta charset="utf-8">' in source
    assert "text-transform" not in source  # İ and ı would be spoilt
    ids = [value for _, name, value in page.attributes if name == "id"]
    assert len(ids) == len(set(ids))
    targets = {v[1:] for _, name, v in page.attributes if name == "href" and v.startswith("#")}
    assert targets <= set(ids)
    for tag, attributes in page.elements:
        if tag == "svg" and attributes.get("aria-hidden") != "true":
            assert attributes.get("role") == "img" and attributes.get("aria-label"), attributes
    return page
