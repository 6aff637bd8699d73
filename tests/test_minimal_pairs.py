"""Turkish minimal pairs: enough of them, one place each, right by hand, and nothing to gain by counting."""

import json
import math
import re
import unicodedata
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
import yaml
from conftest import tiny_model
from torch import Tensor, nn

from sifirdan import cli
from sifirdan.evals.minimal_pairs import pairs as pairs_module
from sifirdan.evals.minimal_pairs.baselines import (
    accuracy,
    count,
    length_accuracy,
    unigram_accuracy,
    words_of,
)
from sifirdan.evals.minimal_pairs.drafts import last_vowel
from sifirdan.evals.minimal_pairs.pairs import PHENOMENA, Pair, all_pairs
from sifirdan.evals.minimal_pairs.publish import card_text, pairs_text, write_pairs
from sifirdan.evals.minimal_pairs.scoring import (
    PairResult,
    by_phenomenon,
    overall,
    score_pairs,
    standard_error,
)
from sifirdan.evals.suffix_words import VOICELESS, Stem, build
from sifirdan.export.hub_card import card_problems
from sifirdan.tokenizer import Tokenizer

INSIDE_A_WORD = (
    "vowel_harmony_two_way", "vowel_harmony_four_way", "consonant_softening", "consonant_hardening",
    "buffer_letters", "apostrophe_suffixes",
)  # fmt: skip
OF_INVENTED_STEMS = (
    "vowel_harmony_two_way", "vowel_harmony_four_way", "consonant_hardening", "buffer_letters",
    "possessive_agreement", "singular_after_numbers", "de_apart_or_together", "ki_apart_or_together",
    "word_order", "apostrophe_suffixes",
)  # fmt: skip

# Written by hand: the sentence with both fillings of its place, the right one first.
KNOWN = """
vowel_harmony_two_way: Taşınırken bütün [samcazlarımız|samcazlerimiz] kayboldu.
vowel_harmony_two_way: Eskiden o [tepelere|tepelara] çok giderdik.
vowel_harmony_two_way: Bunu [berberlerden|berberlardan] öğrendik.
vowel_harmony_four_way: Siz dün bütün gün [kerşemdiniz|kerşemdınız].
vowel_harmony_four_way: Babam sizin [perdenizi|perdenuzu] bana verdi.
vowel_harmony_four_way: Babam sizin [defterinizi|defterünüzü] bana verdi.
consonant_softening: Ayşe bize onun [okunu|oğunu] anlattı.
consonant_softening: Bu [çekici|çekiçi] hiç unutmadım.
consonant_softening: Çocuk uzun uzun [linçe|lince] baktı.
consonant_hardening: Çocuklar az önce [nüngüsten|nüngüsden] söz etti.
consonant_hardening: Şu [ofistekiler|ofisdekiler] çok eski.
consonant_hardening: Bizim sokakta eski [balıkçılar|balıkcılar] var.
buffer_letters: Herkese komşunun [vürgüsünden|vürgüünden] söz ettik.
buffer_letters: Herkese komşunun [kiliminden|kilimsinden] söz ettik.
buffer_letters: Sen [tökezleyince|tökezleince] herkes sustu.
case_government: Ben o [nineye|nineyi] inandım.
case_government: Ben o [futbolcudan|futbolcuya] hiç iğrenmedim.
case_government: Ben o yıl tuhaf bir [büyücüyü|büyücüden] eleştirdim.
subject_verb_agreement: O yarın bavulu [taşıyacak|taşıyacaksınız].
subject_verb_agreement: Ben bugün sandığı [itiyorum|itiyoruz].
subject_verb_agreement: Siz dün doktoru [çağırdınız|çağırdım].
possessive_agreement: Dün bizim [sepetimiz|sepetiniz] kayboldu.
possessive_agreement: Ayşe herkese benim [havlumdan|havlumuzdan] söz etti.
possessive_agreement: Herkes sizin [halınızı|halımı] çok beğendi.
singular_after_numbers: Rafta yüz [gosbum|gosbumlar] duruyor.
singular_after_numbers: Her [tava|tavalar] ayrı bir kutuda.
singular_after_numbers: Çarşıda bazı [televizyonlar|televizyon] gördük.
question_particle: Siz bugün masayı [kuruyor musunuz|kuruyorsunuz mu]?
question_particle: Siz dün tavukları [yemlediniz mi|yemledi miniz]?
question_particle: Sen yarın ekmeği [kesecek misin|keseceksin mi]?
de_apart_or_together: Anahtarımı [vuslunda|vuslun da] unuttum.
de_apart_or_together: Anahtarımı [paltoda|palto da] unuttum.
de_apart_or_together: Yarın [avukat da|avukatta] bizimle gelecek.
ki_apart_or_together: Ayşe dün öyle çok [kıpırdadı ki|kıpırdadıki] kimse inanamadı.
ki_apart_or_together: Benim köyüm uzak ama [babanınki|babanın ki] yakın.
ki_apart_or_together: Benim köyüm uzak ama [kuaförünki|kuaförün ki] yakın.
negation: Bu hafta hiç kimse ayakkabıyı [boyamadı|boyadı].
negation: Dün hiçbir çocuk şiiri [ezberlemedi|ezberledi].
negation: Mustafa peyniri çoktan [tarttı|tartmadı].
tense_adverb: Hasan dün sabah okula [gitti|gidecek].
tense_adverb: Ayşe geçen pazar gömleği [ütüledi|ütüleyecek].
tense_adverb: Ahmet yarın doktoru [çağıracak|çağırdı].
word_order: Buradaki [en küçük|küçük en] yüzük benim.
word_order: Biz bugün [markete kadar|kadar markete] yürüdük.
word_order: Herkes yeni [kilise hakkında|hakkında kilise] konuştu.
apostrophe_suffixes: Gelecek hafta [Antalya'ya|Antalya'ye] gideceğiz.
apostrophe_suffixes: Bütün gün [okulda|okul'da] çalıştık.
apostrophe_suffixes: Bütün gün [ovada|ova'da] çalıştık.
""".strip().split("\n")


def of(phenomenon: str) -> list[Pair]:
    return [pair for pair in all_pairs() if pair.phenomenon == phenomenon]


def difference(pair: Pair) -> tuple[str, str]:
    """The two fillings without what they share at their ends: damlar, demler -> (am, em) … a, e."""
    good, bad = pair.good[pair.start : pair.good_end], pair.bad[pair.start : pair.bad_end]
    while good and bad and good[0] == bad[0]:
        good, bad = good[1:], bad[1:]
    while good and bad and good[-1] == bad[-1]:
        good, bad = good[:-1], bad[:-1]
    return good, bad


@pytest.mark.parametrize("phenomenon", PHENOMENA)
def test_each_phenomenon_has_enough_pairs_over_enough_stems(phenomenon: str) -> None:
    some = of(phenomenon)
    assert len(some) >= 100 and len({pair.stem for pair in some}) >= 60
    assert any(pair.nonce for pair in some) == (phenomenon in OF_INVENTED_STEMS)
    assert PHENOMENA[phenomenon].endswith("."), "its line says what it tests"


def test_there_are_at_least_twelve_phenomena_and_no_pair_twice() -> None:
    assert len(PHENOMENA) >= 12
    good, bad = ([getattr(pair, side) for pair in all_pairs()] for side in ("good", "bad"))
    assert len(set(bad)) == len(bad), "a right sentence may stand against two wrong ones"
    assert not set(good) & set(bad), "no sentence is right here and wrong there"
    assert len({pair.id for pair in all_pairs()}) == len(all_pairs())


def test_members_differ_at_the_one_tested_place() -> None:
    for pair in all_pairs():
        assert pair.good[: pair.start] == pair.bad[: pair.start], pair
        assert pair.good[pair.good_end :] == pair.bad[pair.bad_end :], pair
        assert pair.good != pair.bad and pair.start > 0, pair
        for text, end in ((pair.good, pair.good_end), (pair.bad, pair.bad_end)):
            place = text[pair.start : end]
            assert text[pair.start - 1] == " " and text[end] in " .?", "whole words"
            assert place == place.strip() and place.count(" ") <= 2, pair
        if pair.phenomenon in INSIDE_A_WORD:
            assert max(map(len, difference(pair))) <= 7 and " " not in "".join(difference(pair))


def test_members_are_whole_sentences_in_turkish_letters() -> None:
    for pair in all_pairs():
        for text in (pair.good, pair.bad):
            assert unicodedata.normalize("NFC", text) == text
            assert re.fullmatch("[A-ZÇĞİÖŞÜa-zçğıöşüâ' …]+[.?]", text) and "  " not in text, text
            assert not re.search("[qwxQWX]", text) and len(text.split()) >= 3, text


@pytest.mark.parametrize("line", KNOWN, ids=lambda line: line.split(" [")[1].split("|")[0])
def test_the_rules_give_the_answers_written_by_hand(line: str) -> None:
    phenomenon, sentence = line.split(": ", 1)
    before, good, bad, after = re.split(r"[\[|\]]", sentence)
    assert (before + good + after, before + bad + after) in {
        (pair.good, pair.bad) for pair in of(phenomenon)
    }


def test_right_forms_follow_their_stem_and_wrong_ones_do_not() -> None:
    for pair in of("vowel_harmony_two_way") + of("consonant_hardening"):
        good, bad = (
            text[pair.start + len(pair.stem) : end]
            for text, end in ((pair.good, pair.good_end), (pair.bad, pair.bad_end))
        )
        vowels = set("eiöü" if last_vowel(pair.stem) in "eiöü" else "aıou")
        hard = pair.stem[-1] in VOICELESS
        if pair.phenomenon == "consonant_hardening":
            assert (good[0] in "tç") == hard and (bad[0] in "tç") != hard, pair
        elif not pair.stem.endswith("k"):  # gömleğ-
            assert set(good) & set("aeıioöuü") <= vowels < set(bad) | vowels, pair


@pytest.mark.parametrize("phenomenon", PHENOMENA)
def test_every_writing_is_right_as_often_as_it_is_wrong(phenomenon: str) -> None:
    some = [pair for pair in of(phenomenon) if pair.rule != "place"]
    if phenomenon == "word_order":
        for pair in some:
            assert sorted(pair.good.split()) == sorted(pair.bad.split())
        return
    counts = Counter(difference(pair) for pair in some)
    if phenomenon == "vowel_harmony_four_way":  # in a chain of suffixes all vowels change alike
        counts = Counter((good[0], bad[0]) for good, bad in counts.elements())
    for (good, bad), number in counts.items():
        opposite = counts[bad, good]
        assert number == opposite, (good, bad, number, opposite)


def test_characters_and_length_say_nothing(texts: list[str]) -> None:
    for counted in (texts, [pair.good for pair in all_pairs()], ["abc"]):
        for found in unigram_accuracy(all_pairs(), count(counted, str), str).values():
            assert abs(found - 0.5) <= 0.05
    for found in length_accuracy(all_pairs()).values():
        assert abs(found - 0.5) <= 0.05


def test_words_and_tokens_say_little(texts: list[str], tokenizer: Tokenizer) -> None:
    words = unigram_accuracy(all_pairs(), count(texts, words_of), words_of)
    tokens = unigram_accuracy(all_pairs(), count(texts, tokenizer.encode), tokenizer.encode)
    fewer = length_accuracy(all_pairs(), lambda text: len(tokenizer.encode(text)))
    for name in PHENOMENA:
        limit = 0.25 if name in INSIDE_A_WORD else 0.15
        for found in (words, tokens, fewer):
            assert abs(found[name] - 0.5) <= limit, (name, found[name])
    crossed = set(PHENOMENA) - {*INSIDE_A_WORD, "question_particle", "ki_apart_or_together"}
    assert all(found[name] == 0.5 for name in crossed for found in (words, tokens, fewer))


def test_an_unseen_word_counts_as_one_seen_once_and_a_tie_counts_half() -> None:
    def pair(good: str, bad: str) -> Pair:
        return Pair("x", "x", "", good, bad, "", False, 0, len(good), len(bad))

    counts = Counter({"ev": 5, "evler": 1})
    assert unigram_accuracy([pair("evler", "evlar")], counts, words_of) == {"x": 0.5}
    assert unigram_accuracy([pair("ev", "av")], counts, words_of) == {"x": 1.0}
    assert unigram_accuracy([pair("av", "ev")], counts, words_of) == {"x": 0.0}
    assert words_of("Ankara'da 3 ev, o.") == ["Ankara'da", "3", "ev", "o"]


def test_the_set_is_the_same_each_time() -> None:
    before = all_pairs()
    pairs_module.all_pairs.cache_clear()
    assert all_pairs() == before and all_pairs() is not before


class Fixed(nn.Module):
    """Every token's logits are the same wherever it stands: token 0 best, then 1, then 2 …"""

    def __init__(self) -> None:
        super().__init__()
        self.lm_head = nn.Linear(1, 4, bias=False)

    def forward(self, ids: Tensor) -> Tensor:
        return -torch.arange(4.0).expand(*ids.shape, 4)


class Verdicts:
    """Encodes a text as one token: how much a model shall like it, 0 most."""

    eos_id = 3

    def __init__(self, verdicts: dict[str, int]) -> None:
        self.verdicts = verdicts

    def encode_many(self, texts: Sequence[str]) -> list[list[int]]:
        return [[self.verdicts[text]] for text in texts]


def test_a_model_gets_exactly_the_accuracy_of_its_preferences() -> None:
    some = of("tense_adverb")
    right, ties = 30, 20
    verdicts: dict[str, int] = {}
    for number, pair in enumerate(some):
        verdicts[pair.good] = 0 if number < right else 1
        verdicts[pair.bad] = 1 if number < right + ties else 0
    # crossed pairs share their verbs, not their sentences, so that no verdict is overwritten
    assert len(verdicts) == 2 * len(some)
    results = score_pairs(Fixed(), Verdicts(verdicts), some)  # type: ignore[arg-type]
    found = by_phenomenon(results)["tense_adverb"]
    assert found["accuracy"] == (right + ties / 2) / len(some) and found["pairs"] == len(some)
    assert "nonce_accuracy" not in found
    assert accuracy(some, lambda text: -verdicts[text]) == {"tense_adverb": found["accuracy"]}
    assert results[0].bad_nats - results[0].good_nats == pytest.approx(1.0)


def test_members_are_scored_whole_and_from_the_end_mark(tokenizer: Tokenizer) -> None:
    model = tiny_model(tokenizer.vocab_size).eval()
    some = all_pairs()[::250]
    for result in score_pairs(model, tokenizer, some):
        for text, found in (
            (result.pair.good, result.good_nats),
            (result.pair.bad, result.bad_nats),
        ):
            ids = tokenizer.encode(text)
            with torch.no_grad():
                logits = model(torch.tensor([[tokenizer.eos_id, *ids]]))[0, :-1]
            expected = F.cross_entropy(logits, torch.tensor(ids), reduction="sum")
            assert found == pytest.approx(float(expected), abs=1e-3)


def test_the_standard_error_is_that_of_clusters() -> None:
    # mean 0.75; sums of deviations: a -0.5, b 0.25, c 0.25; 3/2 of 0.375 is 0.75²; 0.75 / 4
    assert standard_error([1, 0, 1, 1], ["a", "a", "b", "c"]) == pytest.approx(0.1875)
    points = [1.0, 0.0, 0.5, 1.0, 1.0]
    usual = math.sqrt(sum((p - 0.7) ** 2 for p in points) / 4 / 5)
    assert standard_error(points, ["a", "b", "c", "d", "e"]) == pytest.approx(usual)
    assert standard_error([1, 0, 1, 0], ["a", "a", "b", "b"]) == 0, "the same verb both times"
    assert math.isnan(standard_error([1, 0], ["a", "a"]))


def test_phenomena_are_summarised_apart_and_count_the_same() -> None:
    def result(phenomenon: str, stem: str, nonce: bool, good: float) -> PairResult:
        return PairResult(Pair("", phenomenon, "", "a", "b", stem, nonce, 0, 1, 1), good, 1.0)

    results = [
        result("p", "a", False, 0.0), result("p", "b", True, 2.0),
        result("q", "a", False, 0.0), result("q", "b", False, 0.0), result("q", "c", False, 1.0),
    ]  # fmt: skip
    found = by_phenomenon(results)
    assert found["p"] == {
        "accuracy": 0.5, "standard_error": pytest.approx(0.5), "pairs": 2, "nonce_accuracy": 0.0,
    }  # fmt: skip
    assert found["q"]["accuracy"] == pytest.approx(2.5 / 3)
    whole = overall(found)
    assert whole["accuracy"] == pytest.approx((0.5 + 2.5 / 3) / 2)
    assert whole["standard_error"] == pytest.approx(
        math.hypot(0.5, found["q"]["standard_error"]) / 2
    )


def test_the_folder_is_a_data_set_with_a_card(tmp_path: Path) -> None:
    write_pairs(tmp_path)
    lines = (tmp_path / "pairs.jsonl").read_text(encoding="utf-8").splitlines()
    assert [Pair(**json.loads(line)) for line in lines] == list(all_pairs())
    card = (tmp_path / "README.md").read_text(encoding="utf-8")
    assert card_problems(card) == []
    header = yaml.safe_load(card.split("---\n")[1])
    assert header["license"] == "apache-2.0" and header["language"] == ["tr"]
    assert header["configs"][0]["data_files"][0]["path"] == "pairs.jsonl"
    for name in PHENOMENA:
        assert card.count(f"| {name} |") == 2, "its counts and its baselines"
    for field in asdict(all_pairs()[0]):
        assert f"`{field}`" in card
    assert f"{len(all_pairs()):,} pairs" in card
    before = (pairs_text(), card)
    pairs_module.all_pairs.cache_clear()
    assert (pairs_text(), card_text({})) == before


def test_the_card_shows_baselines_that_were_measured() -> None:
    card = card_text({"tokens": dict.fromkeys(PHENOMENA, 0.625)})
    assert "| characters | length | tokens |" in card
    assert "| negation | 50.0 | 50.0 | 62.5 |" in card


def test_the_command_writes_the_pairs_or_shows_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def run(*words: str) -> None:
        monkeypatch.setattr("sys.argv", ["sifirdan", *words])
        with pytest.raises(SystemExit) as ended:
            cli.main()
        assert not ended.value.code

    run("pairs")
    shown = capsys.readouterr().out
    for name in PHENOMENA:
        assert f"{name}: {len(of(name))} pairs" in shown and of(name)[0].good in shown
    assert shown.count("\n") == 3 * len(PHENOMENA)
    run("pairs", str(tmp_path / "new"))
    assert (tmp_path / "new/pairs.jsonl").read_text(encoding="utf-8") == pairs_text()


@pytest.mark.parametrize(
    ("stem", "chain", "text"),
    [
        (Stem("gel", "verb"), "mA Iyor (y)Im", "gelmiyorum"),
        (Stem("oku", "verb"), "mA Iyor", "okumuyor"),
        (Stem("bekle", "verb"), "mA Iyor sIn", "beklemiyorsun"),
        (Stem("git", "verb", softens=True), "(y)AcAK (y)Im", "gideceğim"),
        (Stem("Zonguldak", "noun"), "DA", "Zonguldakta"),
    ],
)
def test_longer_chains_are_spelt_right(stem: Stem, chain: str, text: str) -> None:
    assert build(stem, chain.split()).text == text


def test_the_page_names_every_phenomenon_and_keeps_its_marked_place() -> None:
    page = (Path(__file__).parents[1] / "docs/MINIMAL_PAIRS.md").read_text(encoding="utf-8")
    for name in PHENOMENA:
        assert f"`{name}`" in page
    assert page.count("<!-- results:begin -->") == page.count("<!-- results:end -->") == 1
