"""The pages in a real browser, headless Chromium, from the disk: nothing is asked for outside, nothing
complains, plots are drawn, nothing is cut, on a phone as on a wide screen. Chromium comes from the
system (`apt install chromium`): the download of playwright's own is not needed."""

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from page_facts import NOISE, all_metrics, comparison, make_files, reference
from tiny_corpus import findings

from sifirdan.compare.comparison import FOLDERS
from sifirdan.compare.reference import reference_record
from sifirdan.corpus.corpus_report import page as corpus_page
from sifirdan.pages.compare_page import compare_page
from sifirdan.pages.index_page import index_page
from sifirdan.pages.model_facts import collect
from sifirdan.pages.model_page import model_page

pytestmark = pytest.mark.slow

CHROMIUM = next(
    filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None
)
SIZES = {"wide": (1280, 800), "phone": (390, 844)}
PLOTS = {"base": 15, "chat": 15, "index": 0, "compare": 5, "corpus": 15}  # at least

# What is wrong with how a page is laid out, a line each.
LAYOUT = """() => {
  const wide = document.documentElement.clientWidth, found = [];
  const scrolls = e => { for (; e; e = e.parentElement)
    if (['auto', 'scroll'].includes(getComputedStyle(e).overflowX)) return true; return false; };
  const shown = e => e.checkVisibility() && e.getClientRects().length;
  if (document.documentElement.scrollWidth > wide) found.push('the body scrolls sideways');
  const walk = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  for (let n = walk.nextNode(); n; n = walk.nextNode()) {
    const e = n.parentElement;
    if (!n.data.trim() || !shown(e) || e.closest('svg')) continue;
    const range = document.createRange(); range.selectNodeContents(n);
    const r = range.getBoundingClientRect();
    if (!scrolls(e) && (r.left < -0.5 || r.right > wide + 0.5)) found.push('outside: ' + n.data.slice(0, 60));
    const hides = ['hidden', 'clip'].includes(getComputedStyle(e).overflowX);
    if (hides && e.scrollWidth > e.clientWidth) found.push('cut: ' + n.data.slice(0, 60));
  }
  for (const axis of document.querySelectorAll('.xs, .ys')) {
    const r = [...axis.children].filter(shown).map(e => e.getBoundingClientRect());
    r.forEach((a, i) => r.slice(i + 1).forEach(b => {
      if (a.left < b.right && b.left < a.right && a.top < b.bottom && b.top < a.bottom)
        found.push('labels over each other: ' + axis.textContent.slice(0, 60)); }));
  }
  return found; }"""

# Figures that are shown, and of these the ones without a drawn mark of some size.
FIGURES = """() => {
  const all = [...document.querySelectorAll('svg[role=img]')].filter(e => e.checkVisibility());
  const size = e => { const r = e.getBoundingClientRect(); return r.width + r.height; };
  const marks = e => [...e.querySelectorAll('rect, polyline, polygon, circle')].filter(m => size(m) > 0.5);
  const blank = all.filter(e => e.getBoundingClientRect().width < 40
    || e.getBoundingClientRect().height < 5 || !e.querySelector('rect, polyline, polygon, circle, path'));
  const unmarked = all.filter(e => !marks(e).length
    && !/ 0(\\.0+)? | 0$|^0 | of 0 /.test(e.getAttribute('aria-label')));
  return {drawn: all.filter(e => marks(e).length).length,
          wrong: [...blank, ...unmarked].map(e => e.getAttribute('aria-label'))}; }"""


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    try:
        from playwright.sync_api import sync_playwright
    except ModuleNotFoundError:
        _absent("playwright is not installed (pip install playwright)")
    if CHROMIUM is None:
        _absent("there is no Chromium (apt install chromium)")
    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=CHROMIUM)
        yield started
        started.close()


def _absent(what: str) -> None:
    """Skip on a user's machine; a machine of ours must have it."""
    if os.environ.get("CI") == "true":
        pytest.fail(what)
    pytest.skip(what)


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Every kind of page, with every section."""
    root = tmp_path_factory.mktemp("sayfalar ığ")
    reports, models = make_files(root)
    other = reference_record(reference(), "run.json")
    made = {
        name: model_page(
            collect(name, all_metrics(), reports, models, other, NOISE, {"sifirdan": "0.1"})
        )
        for name in ("base", "chat")
    }
    far = reference() | {"hashes": dict.fromkeys(FOLDERS, "0" * 64)}
    far["params"] = dict.fromkeys(all_params(reports, models), "another value")
    far["metrics"]["evaluate_chat"]["val"]["text"] = "another text"
    other = reference_record(far, "run.json")
    made["far"] = model_page(collect("chat", all_metrics(), reports, models, other, NOISE, {}))
    links = {f"{name}.html": f"models/{name}" for name in ("base", "chat")}
    made["index"] = index_page("kart: ığdır\n" + "uzun " * 60, links, all_metrics())
    made["compare"] = compare_page(comparison())
    made["corpus"] = corpus_page(findings(root / "corpus"))
    for name, source in made.items():
        (root / f"{name}.html").write_text(source, encoding="utf-8")
    return root


def all_params(reports: Path, models: Path) -> dict[str, Any]:
    return dict(collect("chat", {}, reports, models, None, None).params)


def opened(browser: Any, path: Path, size: tuple[int, int]) -> tuple[Any, list[str]]:
    """The open page, and everything that it asked for or complained of."""
    context = browser.new_context(viewport={"width": size[0], "height": size[1]})
    page = context.new_page()
    noticed: list[str] = []

    def ask(request: Any) -> None:
        if not request.url.startswith(("file://", "data:")):
            noticed.append(f"request: {request.url}")

    page.on("request", ask)
    page.on("console", lambda message: noticed.append(f"console: {message.text}"))
    page.on("pageerror", lambda error: noticed.append(f"error: {error}"))
    page.on("requestfailed", lambda request: noticed.append(f"failed: {request.url}"))
    page.goto(path.as_uri())
    return page, noticed


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("name", PLOTS)
def test_a_page_opens_quietly_and_nothing_is_cut(
    browser: Any, pages: Path, name: str, size: str
) -> None:
    page, noticed = opened(browser, pages / f"{name}.html", SIZES[size])
    try:
        assert page.evaluate(LAYOUT) == []
        figures = page.evaluate(FIGURES)
        assert figures["wrong"] == [] and figures["drawn"] >= PLOTS[name]
        page.evaluate("() => document.querySelectorAll('details').forEach(d => d.open = true)")
        assert page.evaluate(LAYOUT) == []
        assert noticed == []
    finally:
        page.context.close()


@pytest.mark.parametrize("name", ["base", "chat", "far"])
def test_the_first_screen_holds_how_good_against_what_and_what_changed(
    browser: Any, pages: Path, name: str
) -> None:
    page, _ = opened(browser, pages / f"{name}.html", SIZES["wide"])
    try:
        assert page.evaluate("() => document.querySelectorAll('.first .card').length") == 3
        bottoms = page.evaluate(
            "() => [...document.querySelectorAll('#headline, .card')]"
            ".map(e => e.getBoundingClientRect().bottom)"
        )
        assert max(bottoms) <= SIZES["wide"][1]
        large = "() => parseFloat(getComputedStyle(document.querySelector('#headline')).fontSize)"
        assert page.evaluate(large) >= 40
    finally:
        page.context.close()


# Texts whose contrast to what lies under them is below 4.5 (WCAG 2.2, 1.4.3).
FAINT = """() => {
const light = c => { const [r, g, b] = c.match(/[\\d.]+/g).map(Number).map(v => v / 255)
  .map(v => v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
  return 0.2126 * r + 0.7152 * g + 0.0722 * b; };
const paper = e => { for (; e; e = e.parentElement) {
  const c = getComputedStyle(e).backgroundColor;
  if (c !== 'rgba(0, 0, 0, 0)') return c; } return 'rgb(255, 255, 255)'; };
const found = new Set();
for (const e of document.querySelectorAll('body *')) {
  if (e.closest('svg') || ![...e.childNodes].some(n => n.nodeType === 3 && n.data.trim())) continue;
  const [a, b] = [light(getComputedStyle(e).color), light(paper(e))].sort((x, y) => y - x);
  if ((a + 0.05) / (b + 0.05) < 4.5) found.add(e.className + ': ' + e.textContent.slice(0, 40));
}
return [...found]; }"""


@pytest.mark.parametrize("name", PLOTS)
def test_text_can_be_read_by_day_and_by_night(browser: Any, pages: Path, name: str) -> None:
    page, noticed = opened(browser, pages / f"{name}.html", SIZES["wide"])
    try:
        paper = set()
        for scheme in ("light", "dark"):
            page.emulate_media(color_scheme=scheme)
            assert page.evaluate(FAINT) == [], scheme
            paper.add(page.evaluate("() => getComputedStyle(document.body).backgroundColor"))
        assert len(paper) == 2 and noticed == []
    finally:
        page.context.close()


def test_numbers_open_without_script(browser: Any, pages: Path) -> None:
    """The tables under the plots are the browser's own, and links inside the page lead to sections."""
    context = browser.new_context(java_script_enabled=False)
    page = context.new_page()
    try:
        page.goto((pages / "base.html").as_uri())
        folded = page.locator("#training details").first
        assert not folded.locator("table").is_visible()
        folded.locator("summary").click()
        assert folded.locator("table").is_visible()
        page.locator('nav a[href="#lineage"]').click()
        assert page.url.endswith("#lineage")
    finally:
        context.close()
