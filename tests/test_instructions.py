"""Instruction pairs: what is asked, what is left out, which words are held out of training."""

import json
from collections import Counter
from pathlib import Path

import pytest

from sifirdan.corpus import chat_sources, instructions
from sifirdan.corpus.dictionary_pairs import (
    capitalise,
    dictionary_candidates,
    is_blocked,
    reject_reason,
    uses_word,
)
from sifirdan.corpus.question_templates import (
    DICTIONARY_TEMPLATES,
    PROVINCE_TEMPLATES,
    genitive,
    locative,
)
from sifirdan.corpus.records import Document
from sifirdan.errors import DataError

CAPS = dict.fromkeys([*DICTIONARY_TEMPLATES, *PROVINCE_TEMPLATES], 50)


def entry(*headwords: str, definition: str = "", pos: str = "n", **meta: list[str]) -> Document:
    full = {"headwords": list(headwords), "pos": pos, "definition": definition}
    full |= {"examples": [], "antonyms": [], "english": []} | meta
    name = "/".join((*headwords, definition))
    return Document(name, f"{name}: {definition}", "kenet", "GPL-3.0", name, full)


def record(meta: dict, name: str = "x") -> Document:
    return Document(name, name, "source", "MIT", name, meta)


def candidates(*entries: Document, max_answer_chars: int = 160):
    drops: Counter[str] = Counter()
    found = dictionary_candidates(entries, max_answer_chars=max_answer_chars, drops=drops)
    return {(c.type, c.subject): c.answer for c in found}, drops


def test_every_type_of_pair_is_derived_from_a_dictionary_entry():
    found, _ = candidates(
        entry(
            "ılıca",
            "kaplıca",
            definition="ısınmış suyun çıktığı yer",
            examples=["Ilıcada bütün gün oturdular ."],
            antonyms=["buzul"],
            english=["hot spring", "spa"],
        ),
        entry("göze girmek", pos="v", definition="Güven ve sevgi kazanmak"),
        entry("damlaya damlaya göl olur", pos="i", definition="Az birikince çok olur"),
    )
    assert found == {
        ("definition", "ılıca"): "Isınmış suyun çıktığı yer.",
        ("definition", "kaplıca"): "Isınmış suyun çıktığı yer.",
        ("sentence", "ılıca"): "Ilıcada bütün gün oturdular.",
        ("synonym", "ılıca"): "“Ilıca” ile “kaplıca” eş anlamlıdır.",
        ("synonym", "kaplıca"): "“Kaplıca” ile “ılıca” eş anlamlıdır.",
        ("antonym", "ılıca"): "“Ilıca” sözcüğünün zıt anlamlısı “buzul” sözcüğüdür.",
        ("antonym", "kaplıca"): "“Kaplıca” sözcüğünün zıt anlamlısı “buzul” sözcüğüdür.",
        ("english", "ılıca"): "“Ilıca” İngilizcede “hot spring” demektir.",
        ("english", "kaplıca"): "“Kaplıca” İngilizcede “hot spring” demektir.",
        ("idiom", "göze girmek"): "Güven ve sevgi kazanmak.",
        ("proverb", "damlaya damlaya göl olur"): "Az birikince çok olur.",
    }


def test_a_word_with_two_senses_is_not_asked_for_its_meaning():
    found, _ = candidates(
        entry("yüz", definition="Başın ön bölümü", examples=["Yüzü güldü birden."]),
        entry("yüz", definition="Doksan dokuzdan sonraki sayı"),
    )
    assert list(found) == [("sentence", "yüz")]


def test_plain_compounds_are_no_idioms_and_spellings_no_synonyms():
    found, _ = candidates(
        entry("tecrit etmek", pos="v", definition="Bir kenara koymak"),
        entry("askerî", "askeri", definition="Askerle ilgili olan"),
    )
    assert {kind for kind, _ in found} == {"definition"}


@pytest.mark.parametrize(
    ("word", "answer", "reason"),
    [
        ("(zaman)", "Belli bir zaman.", "placeholder"),
        ("boş", "", "empty"),
        ("ayıp", "Orospu çocuğu demektir.", "blocked_word"),
        ("örgütçü", "Terörist bir örgütün üyesi.", "blocked_word"),
        ("sofra", "(Şaka yollu) yemeğe buyurun.", "not_plain"),
        ("dize", "Bir baş / bir ayak.", "not_plain"),
        ("iki", "Bir cümle bitti. Öbürü başladı.", "not_one_sentence"),
        ("açık", "Şöyle ki:", "no_final_mark"),
        ("uzun", "Çok ama çok uzun bir yanıt.", "too_long"),
        ("kısa", "Kısalmış.", "too_short"),
        ("kısaltma", "Ev vb. yerlerde.", None),
        ("götürmek", "Bir yere ulaştırmak.", None),
    ],
)
def test_reasons_to_leave_a_pair_out(word: str, answer: str, reason: str | None):
    assert reject_reason(word, answer, max_chars=40 if reason != "too_long" else 20) == reason


def test_blocked_words_are_whole_words_or_stems_in_any_case():
    assert is_blocked("PİÇ") and is_blocked("terörizm")
    assert not is_blocked("Boks maçı, sikke, göt­ürmek, seksen sıçrayış".replace("\xad", ""))


def test_an_answer_that_several_entries_share_is_left_out_and_counted():
    found, drops = candidates(
        entry("Şile", definition="İstanbul iline bağlı ilçelerden biri"),
        entry("Silivri", definition="İstanbul iline bağlı ilçelerden biri"),
        entry("ırmak", definition="Denize dökülen büyük akarsu"),
    )
    assert list(found) == [("definition", "ırmak")]
    assert drops["definition/shared_answer"] == 2


def test_capitals_follow_the_turkish_rule_behind_a_quote_too():
    assert capitalise("ışık iner.") == "Işık iner."
    assert capitalise("“iyi” demek.") == "“İyi” demek."


def test_a_sentence_uses_a_word_by_its_stem():
    assert uses_word("Kitabı okudum.", "kitap")
    assert uses_word("Eve gidiyor.", "gitmek")
    assert uses_word("IĞDIR'a vardık.", "Iğdır")
    assert not uses_word("Okula vardık.", "kitap")


def test_suffixes_follow_vowel_harmony():
    names = ["Ankara", "İzmir", "Muş", "Iğdır", "Kırklareli", "Tokat", "Hakkâri", "Gümüşhane"]
    assert [genitive(name) for name in names] == [
        "Ankara'nın", "İzmir'in", "Muş'un", "Iğdır'ın",
        "Kırklareli'nin", "Tokat'ın", "Hakkâri'nin", "Gümüşhane'nin",
    ]  # fmt: skip
    assert [locative(name) for name in names] == [
        "Ankara'da", "İzmir'de", "Muş'ta", "Iğdır'da",
        "Kırklareli'de", "Tokat'ta", "Hakkâri'de", "Gümüşhane'de",
    ]  # fmt: skip


def test_every_template_can_be_filled_and_none_is_given_twice():
    fills = {"x": "su", "X": "Su", "of": "Su'nun", "at": "Su'da"}
    for templates in (*DICTIONARY_TEMPLATES.values(), *PROVINCE_TEMPLATES.values()):
        asked = [template.format(**fills) for template in templates]
        assert len(set(asked)) == len(asked) and all("su" in a.lower() for a in asked)


def dictionary():
    """Sixty words and where they lie: the last twenty in val or test, five of them also in train."""
    entries = [
        entry(f"sözcük{i}", definition=f"Anlamı {i} olan sözcük", english=[f"word{i}"])
        for i in range(60)
    ]
    where = {e.id: "train" if i < 40 else "heldout" for i, e in enumerate(entries)}
    for i in range(40, 45):
        again = entry(f"sözcük{i}", definition=f"İkinci anlamı {i} olan sözcük")
        entries.append(again)
        where[again.id] = "train"
    return entries, where


def divide(known: int = 10, unseen: int = 8, seed: int = 1):
    entries, where = dictionary()
    drops: Counter[str] = Counter()
    found = dictionary_candidates(entries, max_answer_chars=160, drops=drops)
    sets = instructions.split_headwords(
        entries, found, where, caps=CAPS, known=known, unseen=unseen, seed=seed
    )
    return instructions.divide(found, entries, where, sets, drops), sets, where, drops


def test_no_headword_is_in_two_sets_and_unseen_ones_have_no_entry_in_training():
    divided, sets, where, _ = divide()
    words = {name: {c.subject for c in pool} for name, pool in divided.items()}
    assert not words["train"] & words["known"]
    assert not words["train"] & words["unseen"]
    assert not words["known"] & words["unseen"]
    assert words["known"] == sets.known and words["unseen"] == sets.unseen
    assert len(sets.known) == 2 and len(sets.unseen) == 2  # two of the seven types have pairs
    assert all(where[c.record] == "train" for c in divided["train"] + divided["known"])
    assert all(where[c.record] == "heldout" for c in divided["unseen"])
    assert not {f"sözcük{i}" for i in range(40, 45)} & sets.unseen


def test_pairs_of_reserved_records_are_counted_not_trained_on():
    divided, sets, _, drops = divide(known=0, unseen=0)
    assert not sets.known and not sets.unseen
    # 40 to 44 have two senses, so no pair asks for them
    assert len(divided["train"]) == 2 * 40
    assert drops["definition/not_pretrained_on"] == 15


def test_a_record_of_a_held_out_word_teaches_nothing_under_another_word():
    whole = entry("deniz", "derya", definition="Büyük tuzlu su", english=["sea"])
    opposite = entry("kara", definition="Denizle örtülü olmayan yer", antonyms=["deniz"])
    other = entry("orman", definition="Ağaçlarla örtülü geniş alan")
    entries = [whole, opposite, other]
    drops: Counter[str] = Counter()
    found = dictionary_candidates(entries, max_answer_chars=160, drops=drops)
    sets = instructions.HeadwordSets(frozenset({"deniz"}), frozenset())
    where = {e.id: "train" for e in entries}
    divided = instructions.divide(found, entries, where, sets, drops)
    assert {c.subject for c in divided["known"]} == {"deniz"}
    assert {c.subject for c in divided["train"]} == {"orman"}
    assert drops["definition/record_of_heldout_word"] == 2


def test_records_absent_from_the_corpus_are_neither_trained_on_nor_unseen():
    entries = [entry("ada", definition="Suyla çevrili kara")]
    drops: Counter[str] = Counter()
    found = dictionary_candidates(entries, max_answer_chars=160, drops=drops)
    where = {entries[0].id: "absent"}
    sets = instructions.split_headwords(entries, found, where, caps=CAPS, known=5, unseen=5, seed=1)
    assert sets == instructions.HeadwordSets(frozenset(), frozenset())
    assert not any(instructions.divide(found, entries, where, sets, drops).values())
    assert drops["definition/not_pretrained_on"] == 1


def ask(pool, *, cap: int = 50, seed: int = 1, uses: dict[str, int] | None = None):
    drops: Counter[str] = Counter()
    asked = instructions.ask_for_training(
        pool,
        uses or {},
        caps=dict.fromkeys(CAPS, cap),
        heldout_templates=2,
        min_uses=5,
        seed=seed,
        drops=drops,
    )
    return asked, drops


def test_training_never_shows_a_held_out_wording_and_evaluation_does():
    divided, *_ = divide(known=20)
    trained, _ = ask(divided["train"], cap=300)
    least_heldout = {kind: len(templates) - 2 for kind, templates in DICTIONARY_TEMPLATES.items()}
    assert all(not e.template_heldout and e.template < least_heldout[e.type] for e in trained)
    assert {e.template for e in trained if e.type == "definition"} == set(
        range(least_heldout["definition"])
    )
    evaluated = instructions.ask_for_evaluation(divided["train"], heldout_templates=2, seed=1)
    assert {e.template_heldout for e in evaluated} == {True, False}
    for example in evaluated:
        assert example.template_heldout == (example.template >= least_heldout[example.type])


def test_caps_hold_and_every_word_is_asked_before_any_is_asked_again():
    divided, *_ = divide(known=0, unseen=0)
    few, drops = ask(divided["train"], cap=10)
    assert Counter(e.type for e in few) == {"definition": 10, "english": 10}
    assert drops["definition/over_cap"] == 30
    many, _ = ask(divided["train"], cap=100)
    asked = Counter(e.messages[1]["content"] for e in many if e.type == "definition")
    assert len(asked) == 40 and set(asked.values()) == {2, 3}
    assert len({e.id for e in many}) == len(many)


def test_words_in_use_are_asked_first():
    divided, *_ = divide(known=0, unseen=0)
    uses = {f"sözcük{i}": 9 if i % 4 == 0 else 1 for i in range(40)}
    asked, _ = ask(divided["train"], cap=10, uses=uses)
    wanted = {f"Anlamı {i} olan sözcük." for i in range(0, 40, 4)}
    assert {e.messages[1]["content"] for e in asked if e.type == "definition"} == wanted


def test_the_seed_alone_decides():
    divided, *_ = divide()
    assert ask(divided["train"])[0] == ask(divided["train"])[0]
    assert ask(divided["train"])[0] != ask(divided["train"], seed=2)[0]
    assert divide(seed=1)[1] == divide(seed=1)[1] != divide(seed=2)[1]


def test_uses_are_counted_whatever_the_case():
    texts = ["IŞIK ışık'ta, Işık; ışıklar", "İyi iyi"]
    assert instructions.count_uses(texts, ["ışık", "İyi", "yok"]) == {"ışık": 3, "İyi": 2, "yok": 0}


PROVINCES = [
    {"province": "Muş", "plate": 49, "region": "Doğu Anadolu", "districts": ["Bulanık", "Merkez"]},
    {
        "province": "Adana",
        "plate": 1,
        "region": "Akdeniz",
        "districts": ["Kozan", "Merkez", "Feke"],
    },
]


def test_provinces_are_asked_about_and_ambiguous_districts_are_not():
    found = chat_sources.province_candidates(record(meta) for meta in PROVINCES)
    assert {(c.type, c.subject): c.answer for c in found} == {
        ("plate", "Muş"): "Muş'un plaka kodu 49.",
        ("plate", "Adana"): "Adana'nın plaka kodu 01.",
        ("plate_owner", "49"): "49, Muş'un plaka kodudur.",
        ("plate_owner", "01"): "01, Adana'nın plaka kodudur.",
        ("region", "Muş"): "Muş, Doğu Anadolu Bölgesi'ndedir.",
        ("region", "Adana"): "Adana, Akdeniz Bölgesi'ndedir.",
        ("districts", "Muş"): "Muş'un ilçeleri: Bulanık ve Merkez.",
        ("districts", "Adana"): "Adana'nın ilçeleri: Kozan, Merkez ve Feke.",
        ("district", "Bulanık"): "Bulanık, Muş'un bir ilçesidir.",
        ("district", "Kozan"): "Kozan, Adana'nın bir ilçesidir.",
        ("district", "Feke"): "Feke, Adana'nın bir ilçesidir.",
    }
    asked = chat_sources.ask_about_provinces(found, CAPS, seed=1, drops=Counter())
    assert Counter(e.type for e in asked)["plate"] == 2 * len(PROVINCE_TEMPLATES["plate"])


def test_short_talk_keeps_first_exchanges_and_alternatives_apart():
    drops: Counter[str] = Counter()
    talk = [
        {"turns": ["Selam", "selam", "Nasıl gidiyor?"], "alternatives": False},
        {"turns": ["Numaran ne?", "Numaram yok", "Bende numara olmaz."], "alternatives": True},
        {"turns": ["Ne yersin?", "Elektrik yerim."], "alternatives": True},
        {"turns": ["Orada mısın?", ""], "alternatives": False},
        {"turns": ["Küfret", "Siktir git."], "alternatives": False},
        {"turns": ["Selam", "Selam."], "alternatives": False},
        {"turns": ["Yine mi?", "Yine."], "alternatives": False},
    ]
    found = chat_sources.short_talk([record(meta) for meta in talk], 3, drops)
    assert [tuple(m["content"] for m in e.messages) for e in found] == [
        ("Selam", "Selam."),
        ("Numaran ne?", "Numaram yok."),
        ("Numaran ne?", "Bende numara olmaz."),
    ]
    assert drops == {
        "talk/foreign_talk": 1,
        "talk/empty": 1,
        "talk/blocked_word": 1,
        "talk/duplicate": 1,
        "talk/over_cap": 1,
    }


def test_given_questions_are_taken_as_they_are():
    meta = {"question": "Çapraz bulaşma nedir?", "answer": "Bir etkenin yayılmasıdır"}
    (found,) = chat_sources.given_questions([record(meta)], 5, Counter())
    assert [m["content"] for m in found.messages] == [
        "Çapraz bulaşma nedir?",
        "Bir etkenin yayılmasıdır.",
    ]


def test_handwritten_turns_are_small_valid_and_their_evaluation_is_reworded():
    file = Path(chat_sources.__file__).with_name("handwritten_chat.jsonl")
    assert file.stat().st_size <= 50_000
    train, heldout = (chat_sources.handwritten(split) for split in ("train", "heldout"))
    assert 0.13 <= len(heldout) / (len(train) + len(heldout)) <= 0.17
    topics = {e.type for e in train}
    assert topics == {e.type for e in heldout} and len(topics) == 9
    asked = {e.messages[0]["content"] for e in train}
    assert not asked & {e.messages[0]["content"] for e in heldout}
    assert any(len(e.messages) == 4 for e in train)
    for example in train + heldout:
        roles = [m["role"] for m in example.messages]
        assert roles == ["user", "assistant"] * (len(roles) // 2)
        for message in example.messages:
            assert message["content"] == message["content"].strip()
            if message["role"] == "assistant":
                assert message["content"][-1] in ".!?" and not is_blocked(message["content"])
    ids = [json.loads(line)["id"] for line in file.read_text(encoding="utf-8").splitlines()]
    assert len(set(ids)) == len(ids)


def test_copies_of_handwritten_turns_have_ids_of_their_own():
    copies = chat_sources.handwritten("train", copies=3)
    assert len({e.id for e in copies}) == len(copies)
    assert len(copies) == 3 * len(chat_sources.handwritten("train"))


def own(folder: Path, *lines: str | bytes) -> Path:
    raw = [line if isinstance(line, bytes) else line.encode() for line in lines]
    (folder / "mine.jsonl").write_bytes(b"\n".join(raw))
    return folder


GOOD = '{"messages": [{"role": "user", "content": "Selam"}, {"role": "assistant", "content": "Merhaba"}]}'


def test_own_messages_are_read_in_name_order_and_composed(tmp_path: Path):
    decomposed = GOOD.replace("Selam", "Gu\u0308nayd\u0131n\u2028!")
    own(tmp_path, "\ufeff" + GOOD, "", decomposed, "")
    (tmp_path / "a.jsonl").write_text(GOOD.replace("Selam", "Önce"), encoding="utf-8")
    (tmp_path / "notes.txt").write_text("not read", encoding="utf-8")
    found = chat_sources.own_messages(tmp_path)
    asked = [e.messages[0]["content"] for e in found]
    assert asked == ["Önce", "Selam", "Günaydın\u2028!"]
    assert {e.source for e in found} == {"own"}
    assert chat_sources.own_messages(tmp_path / "missing") == []


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        ('{"messages": [', "line 2: not valid JSON"),
        ("[]", 'line 2: has no key "messages"'),
        ('{"text": "x"}', 'line 2: has no key "messages"'),
        ('{"messages": []}', "line 2: there are no messages"),
        ('{"messages": [{"role": "bot", "content": "x"}]}', "line 2: message 1 has the role 'bot'"),
        ('{"messages": [{"role": "user", "content": " "}]}', "line 2: message 1 has no content"),
        ('{"messages": [{"role": "user", "content": "x"}]}', "line 2: has no assistant message"),
        (GOOD.replace("Merhaba", "\\u0007"), "line 2: message 2 has no content"),
        (GOOD.replace("Merhaba", "\\ud83d"), "line 2: holds a lone surrogate"),
        (b'{"messages": "\xff"}', "line 2: byte 14 is not UTF-8"),
    ],
)
def test_a_bad_row_of_own_messages_names_file_line_and_reason(
    tmp_path: Path, bad: str | bytes, message: str
):
    own(tmp_path, GOOD, bad)
    with pytest.raises(DataError) as error:
        chat_sources.own_messages(tmp_path)
    assert "mine.jsonl" in str(error.value) and message in str(error.value)
