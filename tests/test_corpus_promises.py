"""What ingest and clean promise together, on text of every kind that breaks such tools: a test for each
row I-* of the project's list of cases. The law in = out + rejects + duplicates is checked after each
use of `clean` (conftest.py)."""

import json
import os
import random
import re
import subprocess
import sys
import unicodedata
from collections import Counter
from dataclasses import replace
from pathlib import Path

import corpora
import pytest
from corpora import CLEAN, clean, make_raw, sentence, stored

from sifirdan import runs, text
from sifirdan.corpus import records, shards
from sifirdan.corpus.loader import IGNORE, Batches, Stream, load_batches
from sifirdan.corpus.shards import Shards
from sifirdan.errors import DataError
from sifirdan.tokenizer import Tokenizer
from stages import train_tokenizer

FILLER = corpora.texts(400, seed=99)  # so that every split has text
LINE_ENDS = ["\u2028", "\u2029", "\x85", "\r", "\r\n", "\n", "\x0b", "\x0c", "\x1c", "\x1d", "\x1e"]


def in_corpus(corpus: Path, source: str) -> list[str]:
    """The texts of one source in the order of their origins."""
    found = [d for split in stored(corpus).values() for d in split if d.source == source]
    return [d.text for d in sorted(found, key=lambda d: int(d.origin.rsplit(":", 1)[1]))]


# The first promise: a JSONL record ends at LF only; documents in = documents out + counted rejects.


def broken_up(rng: random.Random) -> str:
    """A text with odd line ends in it, never at its ends and never two of one kind in a row."""
    parts = [sentence(rng, 8) for _ in range(rng.randint(2, 4))]
    return "".join(part + end for part, end in zip(parts, rng.sample(LINE_ENDS, 4))) + "son."  # noqa: B905


def as_stored(raw: str) -> str:
    """What `clean` promises to make of line ends: LF, but U+2028 and U+2029 are text."""
    return re.sub("[\x1c-\x1e]", "", re.sub("\r\n|[\r\x0b\x0c\x85]", "\n", raw))


@pytest.mark.parametrize("seed", range(6))
def test_a_jsonl_record_ends_at_lf_only(tmp_path: Path, seed: int) -> None:
    rng = random.Random(seed)
    texts = [broken_up(rng) for _ in range(300)]
    end = rng.choice(["\n", "\r\n"])
    lines = [
        json.dumps({"text": t, "not": "\u2028"}, ensure_ascii=rng.random() < 0.5) for t in texts
    ]
    content = end.join(lines) + rng.choice(["", end])
    (tmp_path / "a.jsonl").write_bytes(rng.choice([b"", b"\xef\xbb\xbf"]) + content.encode())
    raw = corpora.ingest(tmp_path, sources={"a": corpora.files_source("a.jsonl")})
    assert list(corpora.raw_texts(raw, "a").values()) == texts
    clean(raw, tmp_path / "corpus")
    assert in_corpus(tmp_path / "corpus", "a") == list(map(as_stored, texts))


FAULTS = [
    lambda line: line[: len(line) // 2],  # cut in the middle
    lambda line: line.replace(b"kal", b"kal\xff"),
    lambda line: line.replace(b"\xc4", b"", 1),  # half of a letter
    lambda line: line.replace(b'{"text": "', b'{"text": "a\rb'),  # JSON allows no bare control
    lambda line: line.replace(b'{"text": "', b'{"text": "a\x0cb'),
    lambda line: line + b"\x0c",
    lambda line: line + line,
    lambda line: b'{"text": 7}',
    lambda line: b'{"text": null}',
    lambda line: b'{"text": ["liste"]}',
    lambda line: b'{"metin": "baska ad"}',
    lambda line: b"[]",
    lambda line: b"null",
    lambda line: b"NaN",
    lambda line: b"",
    lambda line: b" \t\r",
    lambda line: b"\xc2\x85",
]


@pytest.mark.parametrize("seed", range(4))
def test_I_07_accepted_and_rejected_lines_are_the_lines_read(tmp_path: Path, seed: int) -> None:
    rng = random.Random(seed)
    texts = [f"kalem {sentence(rng)}" for _ in range(1000)]
    lines = [json.dumps({"text": t}, ensure_ascii=False).encode() for t in texts]
    spoilt = dict(zip(rng.sample(range(1000), len(FAULTS)), FAULTS, strict=True))
    for number, spoil in spoilt.items():
        assert b"\xc4" in lines[number]
        lines[number] = spoil(lines[number])
    (tmp_path / "a.jsonl").write_bytes(b"\n".join(lines) + b"\n")
    source = corpora.files_source("a.jsonl", on_error="quarantine")
    raw = corpora.ingest(tmp_path, sources={"a": source})
    good = [t for number, t in enumerate(texts) if number not in spoilt]
    assert list(corpora.raw_texts(raw, "a").values()) == good
    named = {line["origin"] for line in corpora.quarantine(raw)}
    assert named == {f"a.jsonl:{number + 1}" for number in spoilt}
    counts = runs.read_manifest(raw).counts["a"]
    assert counts["documents"] + counts["bad_records"] == len(lines)
    clean(raw, tmp_path / "corpus")
    assert in_corpus(tmp_path / "corpus", "a") == good
    with pytest.raises(DataError, match=rf"a: a.jsonl:{min(spoilt) + 1}: .+\n.*\n.*on_error"):
        corpora.ingest(tmp_path / "x", sources={"a": corpora.files_source(f"{tmp_path}/a.jsonl")})
    assert not (tmp_path / "x/raw").exists() and not list((tmp_path / "x").glob(".*.partial"))


# Turkish letters.

SHOUTED = "ÇOCUK ŞANLIURFA'DAN GELENLERİ ÖĞÜN OLARAK YİYOR"
ALPHABET = "abcçdefgğhıijklmnoöprsştuüvyz ABCÇDEFGĞHIİJKLMNOÖPRSŞTUÜVYZ âîû ÂÎÛ"


def test_I_02_turkish_text_comes_back_from_ingest_clean_and_tokenizer(tmp_path: Path) -> None:
    decomposed = unicodedata.normalize("NFD", SHOUTED)
    assert decomposed != SHOUTED
    texts = [
        SHOUTED, ALPHABET, "I\u0307zmi\u0307r de g\u0306 gibi \u011f de: da\u011f, dag\u0306.",
        f"{decomposed}, İstanbul'un ve ığdır'ın da", "İ\u0323 ve I\u0307\u0302 bir arada kalsın",
        "Kâğıt, hâlâ, rûh; 10 m² ½ № ﬁ ve “tırnak”…",
    ]  # fmt: skip
    raw = make_raw(tmp_path, {"a": texts, "dolgu": [*FILLER, *map(text.upper_tr, FILLER[:9])]})
    clean(raw, tmp_path / "corpus", replace(CLEAN, max_duplicate_share=1.0))
    kept = in_corpus(tmp_path / "corpus", "a")
    assert kept == [unicodedata.normalize("NFC", t) for t in texts]
    settings = train_tokenizer.Params("bpe", 700, 10**6, {}, seed=1)
    train_tokenizer.train_tokenizer(tmp_path / "corpus", tmp_path / "tokenizer", settings)
    tokenizer = Tokenizer.load(tmp_path / "tokenizer")
    for line in kept:
        assert tokenizer.decode(tokenizer.encode(line)) == line
    # No letter of the training text is left to byte pieces: what is counted is what is encoded.
    letters = set("".join(d.text for d in stored(tmp_path / "corpus")["train"])) & set("çğıöşüİ")
    assert letters >= set("çğıöşü")
    assert all(len(tokenizer.encode(f"a{letter}a")) <= 3 for letter in letters)


def test_I_03_the_key_of_duplicates_knows_turkish_case(tmp_path: Path) -> None:
    twins = [
        ("IĞDIR'DA KAYISI AĞACI", "ığdır'da kayısı ağacı"),
        ("Iğdır’ın ILIK SUYU vardı", "ığdır’ın ılık suyu VARDI"),
        ("İZMİR'İN DAĞLARINDA ÇİÇEKLER", "I\u0307ZMI\u0307R'I\u0307N DAĞLARINDA ÇI\u0307ÇEKLER"),
        ("İzmir'in dağlarında kekikler", "izmir'in dağlarında kekikler"),
        ("İ\u0323zmir de böyle yazılmış bir kez", "i\u0323zmir de böyle yazılmış bir kez"),
    ]
    others = ["Ilık bir suda yıkandı", "İlik bir suda yıkandı", "Kar yağdı bu yüce dağa",
              "Kâr yağdı bu yüce dağa", "Adana'nın LARI çok olur", "Adana'nın lari çok olur"]  # fmt: skip
    texts = [*(t for pair in twins for t in pair), *others]
    raw = make_raw(tmp_path, {"a": texts, "dolgu": FILLER})
    metrics = clean(raw, tmp_path / "corpus")
    account = metrics["sources"]["a"]
    assert account["duplicates"] == {"duplicate": len(twins)} and account["rejected"] == {}
    kept = in_corpus(tmp_path / "corpus", "a")
    for pair in twins:
        forms = {unicodedata.normalize("NFC", t) for t in pair}
        assert sum(kept.count(form) for form in forms) == 1, pair
    assert set(others) <= set(kept), "ı is not i, and â is not a"
    assert not any("i\u0307" in text.lower_tr(t) for t in kept)


def test_I_04_damaged_documents_are_counted_and_never_trained_on(tmp_path: Path) -> None:
    rng, texts = random.Random(4), corpora.texts(1000, seed=4)
    for number in (damaged := set(rng.sample(range(1000), 20))):
        for _ in range(rng.randint(1, 5)):
            at = rng.randrange(len(texts[number]))
            texts[number] = texts[number][:at] + "\ufffd" + texts[number][at + 1 :]
    raw = make_raw(tmp_path, {"a": texts})
    assert runs.read_manifest(raw).counts["a"]["with_replacement"] == 20
    metrics = clean(raw, tmp_path / "corpus")
    assert metrics["sources"]["a"]["rejected"] == {"replacement_characters": 20}
    kept = in_corpus(tmp_path / "corpus", "a")
    assert kept == [t for number, t in enumerate(texts) if number not in damaged]
    lenient = clean(raw, tmp_path / "lenient", replace(CLEAN, max_replacement_share=0.5))
    assert lenient["sources"]["a"]["rejected"] == {}


def test_I_05_one_text_in_four_encodings_is_one_text(tmp_path: Path) -> None:
    line = "Işığı söndürdü, ağaca çıktı; ŞİĞ ÖÜÇ, âlim."
    for name in ("windows-1254", "iso-8859-9", "utf-16", "utf-8-sig"):
        (tmp_path / f"{name}.txt").write_bytes(line.encode(name))
    corpora.write_jsonl(tmp_path / "dolgu.jsonl", FILLER)
    encodings = {"a": "windows-1254", "b": "iso-8859-9", "c": "utf-16", "d": "utf-8"}
    files = dict(zip(encodings, ("windows-1254", "iso-8859-9", "utf-16", "utf-8-sig"), strict=True))
    sources = {
        name: corpora.files_source(f"{files[name]}.txt", encoding=encoding)
        for name, encoding in encodings.items()
    }
    raw = corpora.ingest(tmp_path, sources=sources | {"e": corpora.files_source("dolgu.jsonl")})
    stated = runs.read_manifest(raw).params["sources"]
    assert {name: stated[name]["encoding"] for name in encodings} == encodings
    metrics = clean(raw, tmp_path / "corpus")
    assert [metrics["sources"][name]["duplicates"] for name in encodings] == [
        {}, {"duplicate": 1}, {"duplicate": 1}, {"duplicate": 1}
    ]  # fmt: skip
    assert corpora.all_texts(tmp_path / "corpus").count(line) == 1


def test_I_05_text_read_in_the_wrong_encoding_is_counted_and_mended(tmp_path: Path) -> None:
    rights = [
        f"Bu yılın {number}. günü şöyle geçti: yağmur yağdı, bahçeden çıktık ve ılık çay içtik."
        for number in range(20)
    ]
    wrong = [right.encode("windows-1254").decode("windows-1252") for right in rights]
    raw = make_raw(tmp_path, {"a": wrong, "dolgu": FILLER})
    assert runs.read_manifest(raw).counts["a"]["looks_misread"] == 20
    clean(raw, tmp_path / "corpus")
    assert in_corpus(tmp_path / "corpus", "a") == rights


# Damaged and large files, and many processes.


@pytest.mark.parametrize("seed", range(3))
def test_I_08_a_damaged_shard_is_named_and_hides_no_whole_one(tmp_path: Path, seed: int) -> None:
    rng = random.Random(seed)
    texts = corpora.texts(500, seed=seed)
    for number in range(5):
        part = texts[100 * number : 100 * number + 100]
        rows = [
            records.document(records.Record(str(n), t, {}), source="s", license="own")
            for n, t in enumerate(part)
        ]
        (tmp_path / "own").mkdir(exist_ok=True)
        records.write_parquet(tmp_path / f"own/p{number}.parquet", rows)
    bad = tmp_path / f"own/p{(number := rng.randrange(5))}.parquet"
    whole = bad.read_bytes()
    for length in (1, 4, 8, len(whole) // 2, len(whole) - 100, len(whole) - 1):
        bad.write_bytes(whole[:length])
        raw = corpora.ingest(tmp_path, own_on_error="quarantine")
        ((line),) = corpora.quarantine(raw)
        assert line["origin"] == bad.name and line["reason"]
        kept = [t for n, t in enumerate(texts) if n // 100 != number]
        assert list(corpora.raw_texts(raw).values()) == kept
    assert f"({bad.stat().st_size} bytes)" in line["reason"]
    clean(raw, tmp_path / "corpus")


def test_I_08_a_damaged_raw_folder_is_refused_by_name(tmp_path: Path) -> None:
    raw = make_raw(tmp_path, {"a": FILLER})
    part = raw / "a/part-00000.parquet"
    whole = part.read_bytes()
    for content in (whole[:-100], b"", whole[:99] + bytes([whole[99] ^ 1]) + whole[100:]):
        part.write_bytes(content)
        with pytest.raises(DataError, match=r"a/part-00000.parquet .*\n.*\n.*ingest"):
            clean(raw, tmp_path / "corpus")
        left = {path.name for path in tmp_path.iterdir()} - {".corpus.lock"}
        assert left == {"a.jsonl", "own", "raw", ".raw.lock"}


SLOW = pytest.mark.slow
LARGE = """
import resource, sys
from pathlib import Path
import corpora
def peak():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
before, folder = peak(), Path(sys.argv[1])
raw = corpora.ingest(folder, max_document_bytes=10**9)
metrics = corpora.clean(raw, folder / "corpus")
account = metrics["sources"]["own"]
print(sum(account["out"].values()), max(account["chars_out"].values()), peak() - before)
"""


# The limits: 260 MB whatever the text, and 20 times the largest document.
@pytest.mark.parametrize(
    ("large_mb", "count"),
    [
        pytest.param(4, 30, marks=SLOW),
        pytest.param(100, 100, marks=SLOW),
    ],
)  # fmt: skip
def test_I_09_one_large_document_among_many_is_cleaned_in_bounded_memory(
    tmp_path: Path, large_mb: int, count: int
) -> None:
    rng = random.Random(9)
    words = [f"{root}{ending}" for root in corpora.ROOTS for ending in corpora.ENDINGS]
    (tmp_path / "own").mkdir()
    with open(tmp_path / "own/a.jsonl", "w", encoding="utf-8") as file:
        for number in range(count + 1):
            file.write('{"text": "')
            for _ in range(large_mb if number == count // 2 else 1):
                file.write(" ".join(rng.choices(words, k=100_000)) + ". ")
            file.write('"}\n')
    small = corpora.texts(300)
    corpora.write_jsonl(tmp_path / "own/b.jsonl", small)
    done = subprocess.run(
        [sys.executable, "-c", LARGE, str(tmp_path)], cwd=corpora.PROJECT / "tests",
        env=os.environ | {"PYTHONPATH": str(corpora.PROJECT)}, capture_output=True,
        encoding="utf-8",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    documents, chars, peak = done.stdout.split()
    assert int(documents) == count + 1 + len(small)
    assert int(chars) > (large_mb + 0.5 * count) * 600_000
    assert float(peak) < 260 + 20 * large_mb, f"MB; the texts together have {count + large_mb} MB"


@pytest.fixture
def many_batches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A raw folder of numbered documents, with copies and bad ones among them, in many row groups."""
    texts = [f"{number} numaralı belge: {t}" for number, t in enumerate(FILLER)]
    mixed = [*texts, *map(text.upper_tr, texts[::9]), *(t + " Evet." for t in texts[5::50]), "kısa"]
    random.Random(10).shuffle(mixed)
    pages = [f"<p>{t}</p>" for t in corpora.texts(60, seed=10, num_words=70)]
    with monkeypatch.context() as patch:
        patch.setattr(records, "ROW_GROUP_CHARS", 3000)
        raw = make_raw(tmp_path, {"a": mixed, "b": pages}, b={"text_kind": "web"})
    assert records.num_row_groups(raw / "a/part-00000.parquet") > 10
    return raw


# Each process takes most of a second to start.
@pytest.mark.parametrize("workers", [2, pytest.param(3, marks=SLOW), pytest.param(7, marks=SLOW)])
def test_I_10_any_number_of_workers_gives_the_same_bytes_and_each_document_once(
    tmp_path: Path, many_batches: Path, workers: int
) -> None:
    folders = {}
    for number in (1, workers):
        corpus = tmp_path / str(number) / "corpus"
        clean(many_batches, corpus, num_workers=number)
        folders[number] = corpora.file_bytes(corpus, tmp_path / str(number) / "corpus_report")
    assert folders[1].keys() == folders[workers].keys()
    assert [name for name in folders[1] if folders[1][name] != folders[workers][name]] == []
    found = stored(tmp_path / "1/corpus")
    of_a = [d for split in found.values() for d in split if d.source == "a"]
    numbers = [int(d.text.split()[0]) for d in of_a]
    assert sorted(numbers) == list(range(len(FILLER)))
    assert len({d.id for split in found.values() for d in split}) == sum(map(len, found.values()))
    for split in found.values():
        order = [int(d.origin.split(":")[1]) for d in split if d.source == "a"]
        assert order == sorted(order), "the order of the source"


def test_I_11_long_documents_with_shared_footers_and_tables_all_stay(tmp_path: Path) -> None:
    rng = random.Random(11)
    footer = (
        "Bu yazının her hakkı saklıdır; izinsiz çoğaltılamaz ve başka yerde yayımlanamaz.\n" * 3
    )
    head = "| Yıl | Nüfus | Oran | Değişim | Toplam | Açıklama | Kaynak |"
    documents, tables = [], []
    for _ in range(200):
        rows = [
            f"| {year} | {rng.randint(1, 400)} | {rng.randint(1, 100)},{rng.randint(0, 9)} | 0 | 0 |"
            f" {rng.randint(0, 10**6)} | resmî sayım sonucu | {rng.randint(1, 10**6)} |"
            for year in range(1950, 1990)
        ]
        prose = "\n".join(" ".join(sentence(rng) for _ in range(3)) for _ in range(10))
        documents.append(f"{prose}\n{head}\n" + "\n".join(rows) + "\n" + footer)
        tables.append(rows)
    raw = make_raw(tmp_path, {"a": documents, "dolgu": FILLER})
    metrics = clean(raw, tmp_path / "corpus")
    account = metrics["sources"]["a"]
    assert account["duplicates"] == {} and account["rejected"] == {}
    assert sum(account["out"].values()) == 200
    for kept, rows in zip(in_corpus(tmp_path / "corpus", "a"), tables, strict=True):
        assert all(row in kept for row in rows), "rows that differ in a number are different"


def test_I_11_a_source_that_would_nearly_vanish_stops_the_stage(tmp_path: Path) -> None:
    texts = [f"{t} Sayfa {number}." for t in corpora.texts(3, num_words=80) for number in range(60)]
    raw = make_raw(tmp_path, {"a": texts, "dolgu": FILLER})
    with pytest.raises(DataError, match=r"a: 177 of 180 documents .*\n.*near_duplicate of a: "):
        clean(raw, tmp_path / "corpus")
    assert not (tmp_path / "corpus").exists() and not (tmp_path / "corpus_report").exists()
    metrics = clean(raw, tmp_path / "corpus", replace(CLEAN, max_duplicate_share=1.0))
    assert metrics["sources"]["a"]["duplicates"] == {"near_duplicate": 177}


def test_I_12_composed_twins_are_copies_and_look_alikes_are_not(tmp_path: Path) -> None:
    twins = [f"{word} sözü {number}. kez yazıldı" for number, word in
             enumerate(["İstanbul", "şişe", "âlim", "ağaç", "ÖĞÜN"])]  # fmt: skip
    others = ["kar sözü bir kez yazıldı", "kâr sözü bir kez yazıldı", "ilik sözü bir kez yazıldı",
              "ılık sözü bir kez yazıldı", "1,5 sözü bir kez yazıldı", "15 sözü bir kez yazıldı"]  # fmt: skip
    decomposed = [unicodedata.normalize("NFD", t) for t in twins]
    raw = make_raw(tmp_path, {"a": [*twins, *decomposed, *others], "dolgu": FILLER})
    metrics = clean(raw, tmp_path / "corpus")
    assert metrics["sources"]["a"]["duplicates"] == {"duplicate": len(twins)}
    assert set(in_corpus(tmp_path / "corpus", "a")) == {*twins, *others}


@pytest.mark.filterwarnings(
    "ignore:This DataLoader will create"
)  # more than this machine has cores
def test_I_13_each_document_comes_once_an_epoch_with_any_number_of_workers(tmp_path: Path) -> None:
    rows = [
        shards.Row([10 * n + i for i in range(1, 10)] + [0], f"d{n}", "a", 9) for n in range(10)
    ]
    batch = shards.batch_of_rows(rows, shards.shard_schema(200))
    shards.write_folder(tmp_path, [batch], vocab_size=200, max_shard_tokens=30)
    assert len(list(tmp_path.glob("*.arrow"))) < 7, "fewer shards than workers"
    windows = Stream(Shards(tmp_path), context_length=8, seed=3, sampling="epoch", eos_id=0)
    epoch, orders = windows.windows_per_epoch, []
    for workers in (0, 1, 4, 7):
        batches = Batches(windows, 1)
        found = load_batches(batches, 0, 2 * epoch, num_workers=workers, pin_memory=False)
        orders.append([batch["targets"].ravel().tolist() for batch in found])
    assert all(order == orders[0] for order in orders)
    for start in (0, epoch):
        targets = [t for batch in orders[0][start : start + epoch] for t in batch if t != IGNORE]
        assert Counter(targets) == Counter(token for row in rows for token in row.tokens)
    assert orders[0][:epoch] != orders[0][epoch:]


# What no text may hold.

CONTROLS = [chr(code) for code in (*range(0x20), *range(0x7F, 0xA0), 0xFEFF, 0xFFFE, 0xFFFF)]


def test_I_14_controls_are_stripped_and_halves_of_characters_rejected(
    tmp_path: Path, tokenizer: Tokenizer
) -> None:
    controls = [f"Sıra {n}: bura{c}da ve son{c}" for n, c in enumerate(CONTROLS)]
    halves = ["\ud83d", "\ude00", "\ude00\ud83d", "\udfff\ud800", "\ud83d \ude00"]
    lines = [json.dumps({"text": f"Yarım {n} karakter {h} burada"}) for n, h in enumerate(halves)]
    whole = "Bütün bir karakter: \U0001f600 ve \U0001f1f9\U0001f1f7"
    content = [json.dumps({"text": c}) for c in controls]
    content += [*lines, json.dumps({"text": whole}), json.dumps({"text": "\0" * 30})]
    (tmp_path / "a.jsonl").write_text("\n".join(content), encoding="ascii")
    (tmp_path / "b.json").write_text(f"[{','.join(lines)}]", encoding="ascii")
    (tmp_path / "own").mkdir()
    (tmp_path / "own/c.txt").write_bytes("Düz metinde de NUL \0 ve BEL \x07 var.".encode())
    corpora.write_jsonl(tmp_path / "d.jsonl", FILLER)
    sources = {p.stem: corpora.files_source(p.name) for p in tmp_path.glob("?.json*")}
    raw = corpora.ingest(tmp_path, sources=sources)
    for name, number in (("a", len(content)), ("b", len(lines)), ("own", 1)):
        read = corpora.raw_texts(raw, name).values()
        assert len(read) == number and not any(map(text.has_surrogates, read))
    metrics = clean(raw, tmp_path / "corpus", replace(CLEAN, max_duplicate_share=1.0))
    rejected = {name: metrics["sources"][name]["rejected"] for name in ("a", "b", "own")}
    assert rejected == {
        "a": {"replacement_characters": len(halves), "empty": 1},
        "b": {"replacement_characters": len(halves)},
        "own": {},
    }
    everything = corpora.all_texts(tmp_path / "corpus")
    assert whole in everything and "Düz metinde de NUL  ve BEL  var." in everything
    assert not set("".join(everything)) & set(CONTROLS) - {"\n", "\t"}
    kept = in_corpus(tmp_path / "corpus", "a")
    assert len(kept) == len(controls) + 1
    for line in everything:
        assert tokenizer.decode(tokenizer.encode(line)) == line


@pytest.mark.parametrize("seed", range(3))
def test_I_14_any_character_at_all_goes_through_or_is_counted(
    tmp_path: Path, tokenizer: Tokenizer, seed: int
) -> None:
    rng = random.Random(seed)
    ranges = [(0, 0x20), (0x20, 0x250), (0x250, 0xD800), (0xD800, 0xE000), (0xE000, 0x110000)]
    texts = []
    for number in range(300):
        odd = "".join(chr(rng.randrange(*rng.choice(ranges))) for _ in range(rng.randint(1, 30)))
        texts.append(f"Belge {number}: {sentence(rng, 4)} {odd}")
    content = "".join(json.dumps({"text": t, "s": t[-3:]}) + "\n" for t in texts)
    (tmp_path / "a.jsonl").write_text(content, encoding="ascii")
    corpora.write_jsonl(tmp_path / "b.jsonl", FILLER)
    sources = {name: corpora.files_source(f"{name}.jsonl") for name in "ab"}
    raw = corpora.ingest(tmp_path, sources=sources)
    assert runs.read_manifest(raw).counts["a"]["documents"] == len(texts)
    clean(raw, tmp_path / "corpus")
    kept = in_corpus(tmp_path / "corpus", "a")
    assert len(kept) > 20
    for line in kept:
        assert unicodedata.is_normalized("NFC", line) and line == line.strip()
        assert "\ufffd" not in line and not set(line) & set(CONTROLS) - {"\n", "\t"}
        assert tokenizer.decode(tokenizer.encode(line)) == line
