"""The first pass of cleaning: one document by itself, and what people are shown of it."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import corpora
import pytest

from sifirdan.cleaning.by_reader import TextKind
from sifirdan.corpus import judge, records
from sifirdan.corpus.judge import Batch, JudgeParams
from sifirdan.corpus.records import Document, Record, document

CLEAN = corpora.CLEAN.judging
PROSE = (
    "Bir gün köyün yaşlı öğretmeni çocukları bahçede topladı ve onlara eski bir hikâye anlattı."
    " Hikâyede bir balıkçı, denizin ortasında kaybolan teknesini ararken yeni bir ada bulur."
    " Adada yaşayan insanlar onu güler yüzle karşılar, ona ekmek ve peynir verirler."
    " Balıkçı da bu iyiliği unutmaz; ertesi yıl dönüp gelir ve adaya bir okul yapılması için"
    " bütün kazancını bırakır. Çocuklar hikâyeyi çok sevdiler, en küçükleri bile sonuna kadar"
    " sessizce dinledi ve akşam eve dönünce annesine anlattı."
)


def judged(
    folder: Path, texts: list[str], params: JudgeParams = CLEAN, kind: TextKind = "curated"
) -> tuple[judge.Judged, list[Document], list[dict[str, Any]]]:
    """What the pass found, the documents it kept, and its rows."""
    documents = [
        document(Record(f"#{n}", text, {"n": n}), source="a", license="own")
        for n, text in enumerate(texts)
    ]
    records.write_parquet(folder / "raw.parquet", documents)
    batch = Batch(
        number=0, part=folder / "raw.parquet", row_group=0, source="a", rank=0, reader="own_text",
        text_kind=kind, for_chat_only=False, scratch=folder, params=params,
    )  # fmt: skip
    found = judge.judge_batch(batch)
    kept = list(records.read_parquet(batch.file("kept")))
    return found, kept, judge.read_rows(batch).to_pylist()


def test_web_text_is_judged_harder_than_curated_text(tmp_path: Path) -> None:
    texts = [PROSE, "Kısa ama güzel bir söz, değil mi?", "The quick brown fox jumps over it. " * 9]
    assert [row["reason"] for row in judged(tmp_path, texts)[2]] == [None, None, None]
    rows = judged(tmp_path, texts, kind="web")[2]
    assert [row["reason"] for row in rows] == [None, "too_few_words", "other_language"]


def test_a_rejected_example_says_what_the_rule_saw(tmp_path: Path) -> None:
    found, *_ = judged(tmp_path, ["Kısa ama güzel bir söz, değil mi?"], kind="web")
    (example,) = found.samples.of("too_few_words", "rejected")
    assert example.note == "7, kept: at least 50"


def test_kept_documents_near_a_limit_are_shown_beside_the_rejected(tmp_path: Path) -> None:
    texts = [f"On sekiz harfli {n:03}." for n in range(200)]  # 20 characters: just enough
    found, kept, _ = judged(tmp_path, texts)
    near = found.samples.of("too_short", "kept")
    assert len(kept) == 200 and len(near) == CLEAN.samples
    assert near[0].note == "20 characters, kept: at least 20"
    texts = [f"{' '.join(PROSE.split()[:52])} sonra {n}." for n in range(60)]
    found, kept, _ = judged(tmp_path, texts, kind="web")
    assert kept and found.samples.of("too_few_words", "kept")[0].note == "54, kept: at least 50"


def test_examples_never_show_personal_data(tmp_path: Path) -> None:
    keep = replace(CLEAN.personal, email="keep", phone="keep")
    texts = ["Adı: ali@ornek.com, 0532 123 45 67 \ufffd\ufffd\ufffd"]
    found, *_ = judged(tmp_path, texts, replace(CLEAN, personal=keep))
    (example,) = found.samples.of("replacement_characters", "rejected")
    assert "[E-POSTA]" in example.text and "[TELEFON]" in example.text
    drop = replace(CLEAN.personal, email="drop")
    found, *_ = judged(
        tmp_path, ["Bana ali@ornek.com adresinden yaz."], replace(CLEAN, personal=drop)
    )
    (example,) = found.samples.of("personal_email", "rejected")
    assert "ali@" not in example.text


@pytest.mark.parametrize(
    "key, text, kind",
    [
        ("mojibake", "Bu Ã§ocuk gÃ¼zel bir ÅŸarkÄ± söylüyor, dinleyin.", "curated"),
        ("controls", "Bu çocuk güzel\x07 bir şarkı söylüyor, dinleyin.", "curated"),
        ("invisible", "Bu çocuk gü\u200bzel bir şarkı söylüyor, dinleyin.", "curated"),
        ("spaces", "Bu çocuk güzel\u00a0bir şarkı söylüyor, dinleyin.", "curated"),
        ("entities", f"{PROSE} &ccedil;ocuk.", "web"),
        ("html", f"<html><body><p>{PROSE}</p><p>{PROSE[::-1]}</p></body></html>", "web"),
    ],
)
def test_every_repair_can_be_turned_off(
    tmp_path: Path, key: str, text: str, kind: TextKind
) -> None:
    quality = replace(
        CLEAN.quality, min_words=None, max_duplicate_line_share=None, max_top_n_gram_share={},
        max_duplicate_n_gram_share={}, min_final_mark_line_share=None,
    )  # fmt: skip
    params = replace(CLEAN, quality=quality)
    _, (mended,), _ = judged(tmp_path, [text], params, kind)
    off = replace(params, repairs=replace(CLEAN.repairs, **{key: False}))
    _, (left,), _ = judged(tmp_path, [text], off, kind)
    assert mended.text != text.strip() == left.text


def test_language_can_be_turned_off(tmp_path: Path) -> None:
    english = "The teacher told the children an old story in the garden. " * 12
    quality = replace(CLEAN.quality, min_stop_words=None, max_top_n_gram_share={})
    quality = replace(quality, max_duplicate_n_gram_share={}, max_duplicate_line_share=None)
    off = replace(CLEAN, quality=quality, language=replace(CLEAN.language, allowed=None))
    found, kept, _ = judged(tmp_path, [english], off, "web")
    assert len(kept) == 1 and not found.languages


def test_the_prints_are_those_of_the_kept_documents(tmp_path: Path) -> None:
    texts = ["Kısa", PROSE, f"{PROSE}\nev (isim): İçinde oturulan yapı, konut, hane."]
    found, kept, _ = judged(tmp_path, texts)
    prints = judge.Prints(found.batch)
    assert len(prints.keys) == len(prints.priorities) == len(prints.sentences) == len(kept) == 2
    assert prints.sentences.sizes().tolist() == prints.definitions.sizes().tolist() == [1, 2]
    assert prints.sentences[1][1] == 0 != prints.definitions[1][1]
    assert prints.sentences[1][0] == prints.sentences[0][0] != 0
