"""Text out of HTML: the main text of a page without menus and notices, and leftovers of markup.

Not for reading files (corpus/formats.py) and not for the quality of what comes out (quality.py).
"""

import re
from html import unescape
from html.entities import html5

_START = re.compile(
    r"\s*(?:<\?xml[^>]*>\s*)?(?:<!--(?:(?!-->).)*-->\s*)*<(?:!doctype\s+html|html)\b", re.I | re.S
)
_TAG = re.compile(
    r"</?(?:a|article|b|body|br|button|div|em|font|footer|form|h[1-6]|head|header|hr|i|iframe|img|"
    r"input|li|link|main|meta|nav|ol|p|script|section|span|strong|style|table|tbody|td|th|title|tr|"
    r"u|ul)(?:\s[^<>]*)?/?>",
    re.I,
)
_MIN_TAGS = 4  # a text that only speaks of <br> and <p> has fewer
_MIN_TAG_SHARE = 0.02  # of the characters; a tutorial with some examples has less
_ENTITY = re.compile(r"&(?:amp;)*(#\d{1,7}|#[xX][0-9a-fA-F]{1,6}|[A-Za-z]{2,8}\d?);")


def looks_like_html(text: str) -> bool:
    """True for a page or a piece of one, false for prose that shows a few tags."""
    if "<" not in text:
        return False
    if _START.match(text):
        return True
    tags = [match[0] for match in _TAG.finditer(text)]
    return len(tags) >= _MIN_TAGS and sum(map(len, tags)) >= _MIN_TAG_SHARE * len(text)


def main_text(html: str) -> str:
    """The main text of a page, a paragraph a line, by trafilatura with a preference for precision;
    empty where it finds none. Menus, footers, cookie notices and comments are left out."""
    import trafilatura

    if not html.strip():
        return ""
    found = trafilatura.extract(
        html,
        output_format="txt",
        include_comments=False,
        include_tables=True,
        favor_precision=True,
        deduplicate=False,  # it would remember texts from one call to the next
    )
    return found or ""


def extract_main_text(text: str) -> tuple[str, int]:
    """A text that is still a web page gives way to its main text."""
    return (main_text(text), 1) if looks_like_html(text) else (text, 0)


def unescape_entities(text: str) -> tuple[str, int]:
    """Entities left over from a page, also escaped twice: '&amp;ccedil;ay &#039;ve' -> "çay 've"."""
    if "&" not in text:
        return text, 0
    count = 0

    def mend(match: re.Match[str]) -> str:
        nonlocal count
        name = f"{match[1]};"
        if name[0] != "#" and name not in html5:
            return match[0]
        count += 1
        return unescape(f"&{name}")

    return _ENTITY.sub(mend, text), count
