"""Decontamination: shared n-grams are those of brute force; proved again on finished folders."""

from pathlib import Path

import numpy as np
import pytest

from sifirdan.corpus import contamination, records
from sifirdan.corpus.contamination import (
    ContaminationParams,
    EvaluationText,
    decontaminated,
    overlap,
    require_no_overlap,
    without_passages,
)
from sifirdan.corpus.records import PartWriter, Record, document
from sifirdan.corpus.shingles import words_of
from sifirdan.errors import ConfigError, DataError

PARAMS = ContaminationParams(words=5, short_words=3, memory_mb=16)


def table_of(
    folder: Path, texts: list[str], params: ContaminationParams = PARAMS
) -> EvaluationText:
    table = EvaluationText(folder, params)
    for start in range(0, len(texts), 7):
        table.add(texts[start : start + 7])
    table.finish()
    return table


def brute_force(train: str, evaluation: list[str], params: ContaminationParams = PARAMS) -> int:
    """Shared n-grams of one text: long ones of long evaluation texts, short ones of short."""

    def grams(words: list[str], length: int) -> list[tuple[str, ...]]:
        if 0 < len(words) < length:
            return [("whole", *words)]
        return [tuple(words[i : i + length]) for i in range(len(words) - length + 1)]

    banned_long, banned_short = set(), set()
    for text in evaluation:
        words = words_of(text)
        if len(words) >= params.words:
            banned_long.update(grams(words, params.words))
        else:
            banned_short.update(grams(words, params.short_words))
    words = words_of(train)
    long = sum(gram in banned_long for gram in grams(words, params.words))
    return long + sum(gram in banned_short for gram in grams(words, params.short_words))


def random_texts(count: int, seed: int) -> list[str]:
    rng = np.random.default_rng(seed)
    words = ["kar", "kâr", "ılık", "ilik", "Dağ,", "göl.", "1,5", "?"]
    return [" ".join(rng.choice(words, rng.integers(0, 14)).tolist()) for _ in range(count)]


def test_shared_ngrams_are_those_of_brute_force(tmp_path: Path) -> None:
    evaluation, train = random_texts(60, 1), random_texts(500, 2)
    found = table_of(tmp_path, evaluation).overlaps(train).tolist()
    assert found == [brute_force(text, evaluation) for text in train]
    assert 0 < np.count_nonzero(found) < len(found)


def test_a_full_bit_table_changes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    evaluation, train = random_texts(60, 1), random_texts(300, 2)
    whole = table_of(tmp_path / "a", evaluation).overlaps(train).tolist()
    monkeypatch.setattr(contamination, "BITS_A_HASH", 0)
    monkeypatch.setattr(contamination, "buckets_for", lambda *_: 8)
    assert table_of(tmp_path / "b", evaluation).overlaps(train).tolist() == whole


def test_a_finished_folder_can_be_opened_again(tmp_path: Path) -> None:
    table_of(tmp_path, ["bir iki üç dört beş altı"])
    again = EvaluationText(tmp_path, PARAMS)
    assert again.overlap("sıfır bir iki üç dört beş yedi") == 1
    assert again.overlap("sıfır bir iki üç dört yedi beş") == 0


def test_nothing_is_shared_with_no_evaluation_text(tmp_path: Path) -> None:
    assert table_of(tmp_path, []).overlaps(["bir iki üç dört beş", ""]).tolist() == [0, 0]


def test_a_short_evaluation_text_counts_only_as_it_is(tmp_path: Path) -> None:
    table = table_of(tmp_path, ["Merhaba dünya", "üç sözcük var"])
    assert table.overlap("Merhaba, dünya!") == 1
    assert table.overlap("Merhaba dünya nasılsın") == 0
    assert table.overlap("Burada üç sözcük var işte.") == 1


def test_I_12_look_alikes_share_nothing(tmp_path: Path) -> None:
    table = table_of(tmp_path, ["ılık kar yağdı dağa bugün"])
    assert table.overlap("ILIK kar yağdı dağa bugün.") == 1
    assert table.overlap("ılık kâr yağdı dağa bugün") == 0
    assert table.overlap("ilik kar yağdı dağa bugün") == 0


def test_gpt3_length_is_thirteen_words(tmp_path: Path) -> None:
    params = ContaminationParams(words=13, short_words=8, memory_mb=16)
    words = [f"söz{n}" for n in range(40)]
    table = table_of(tmp_path, [" ".join(words)], params)
    assert table.overlap(" ".join(words[10:22])) == 0
    assert table.overlap(" ".join(words[10:23])) == 1
    assert table.overlap("x " + " ".join(words[10:25]) + " y") == 3


def test_shared_passages_are_taken_out_by_the_sentence(tmp_path: Path) -> None:
    table = table_of(tmp_path, ["kara tren gece yarısı buradan geçti"])
    text = "İlk söz — bu. Dün kara tren gece yarısı buradan geçti… Sonra sustuk.\nSon satır!"
    (shared,) = table.shared([text])
    cut = without_passages(text, shared)
    assert cut == "İlk söz — bu.\nSonra sustuk.\nSon satır!"
    assert table.overlap(cut) == 0


def test_what_is_left_after_cutting_shares_nothing(tmp_path: Path) -> None:
    evaluation = random_texts(40, 3)
    table = table_of(tmp_path, evaluation)
    kinds = set()
    for text in random_texts(300, 4):
        cut = decontaminated(text, table, 0.5)
        assert brute_force(cut, evaluation) == 0
        assert cut == text or len(words_of(cut)) < len(words_of(text))
        assert not cut or len(cut) >= len(text) / 2
        kinds.add("whole" if cut == text else "part" if cut else "none")
    assert kinds == {"whole", "part", "none"}


def test_words_stand_where_they_are_said_to(tmp_path: Path) -> None:
    for text in ["? ! a", "", "“Dağ” — göl… 1,5 ; kâr", "? !", *random_texts(200, 9)]:
        found = [words_of(text[start:end])[0] for start, end in contamination._word_spans(text)]
        assert found == words_of(text)


def folder_of(path: Path, texts: list[str]) -> Path:
    with PartWriter(path) as writer:
        for n, line in enumerate(texts):
            writer.add(document(Record(f"#{n}", line, {}), source="own", license="own"))
    return path


def test_the_proof_over_finished_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(contamination, "BATCH_CHARS", 100)
    evaluation, train = random_texts(30, 5), random_texts(200, 6)
    folders = {
        "val": folder_of(tmp_path / "val", evaluation),
        "ood": folder_of(tmp_path / "ood", []),
    }
    trained = folder_of(tmp_path / "train", train)
    found = overlap(trained, list(folders.values()), PARAMS)
    truth = [brute_force(text, evaluation) for text in train]
    assert found.documents == 200
    assert found.shared_documents == np.count_nonzero(truth)
    assert found.shared_ngrams == sum(truth)
    ids = [d.id for d in records.read_folder(trained)]
    assert found.first == [ids[n] for n in np.flatnonzero(truth)[:5].tolist()]
    assert not overlap(trained, [folders["ood"]], PARAMS).shared_documents
    with pytest.raises(
        DataError, match=rf"the evaluation set 'val': {found.first[0]}.*\n.*5 words"
    ):
        require_no_overlap(trained, folders, PARAMS)
    clean = [text for text, shared in zip(train, truth, strict=True) if not shared]
    require_no_overlap(folder_of(tmp_path / "clean", clean), folders, PARAMS)


@pytest.mark.parametrize(
    ("key", "value"), [("words", 1), ("short_words", 0), ("short_words", 6), ("memory_mb", 1)]
)
def test_values_that_cannot_work_are_refused(key: str, value: int) -> None:
    values = {**PARAMS.__dict__, key: value}
    with pytest.raises(ConfigError, match=rf"clean\.contamination\.{key} is "):
        ContaminationParams(**values).check("clean.contamination")
