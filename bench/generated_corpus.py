"""Plausible Turkish text of any size from a seed: for measuring speed and memory, never for training.

    python -m bench.generated_corpus FOLDER [--mb 100] [--seed 1]

Words are real roots with suffixes by vowel harmony, drawn by Zipf's law; sentences end in a verb and
texts have paragraphs, numbers, and what a crawl brings: exact and near copies, shared footers, menu
lines, e-mail addresses and phone numbers, text typed without Turkish letters. Writes
part-00000.jsonl … with lines {"id", "text"}; the same size and seed give the same bytes.
"""

import argparse
import itertools
import json
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from sifirdan.text import upper_tr

PART_BYTES = 64_000_000
CHUNK_WORDS = 400_000  # drawn at once
EXACT_COPIES, NEAR_COPIES = 0.03, 0.05  # shares of the documents
WITH_FOOTER, WITH_MENU, WITH_CONTACT, ASCII_TYPED = 0.10, 0.05, 0.02, 0.02


def _listed(words: str) -> list[str]:
    return words.split()


FUNCTION_WORDS = _listed(
    """ve bir bu da de için çok ile o daha olarak gibi en ne kadar sonra her ama ya ki
var ise mi değil göre diye yok iki hem şey kendi önce bütün böyle ilk artık büyük olan ben sen biz
onun bunun tüm bazı hiç şu karşı üzerine rağmen ancak fakat çünkü eğer hatta belki yalnız bile üç
yeni zaman içinde arasında üzerinde tarafından dolayı başka şimdi yine"""
)
NOUNS = _listed(
    """ev su yol göz el baş gün yıl söz iş çocuk kadın adam insan şehir köy deniz dağ ağaç çiçek
kuş at köpek kedi balık ekmek süt çay kahve masa kapı pencere oda bahçe sokak okul öğretmen öğrenci
kitap defter kalem gazete haber ses müzik resim renk kış yaz bahar gece sabah akşam hava yağmur kar
rüzgâr güneş ay yıldız toprak taş demir altın para pazar dükkân müşteri ürün fiyat banka devlet ülke
millet hükümet meclis yasa hak görev asker savaş barış tarih dil bilim sanat kültür toplum aile anne
baba kardeş arkadaş komşu doktor hasta ilaç hastane sağlık kalp akıl düşünce duygu sevgi korku umut
yaşam ölüm doğa orman ırmak göl ada köprü araba tren uçak gemi liman yolculuk harita sınır kuzey
güney doğu batı merkez bölge alan yer taraf ucu orta üst alt iç dış ön arka konu sorun çözüm yöntem
sonuç neden örnek bilgi veri sayı oran ölçü değer anlam"""
)
ADJECTIVES = _listed(
    """güzel iyi kötü büyük küçük uzun kısa yeni eski genç yaşlı sıcak soğuk açık kapalı
hızlı yavaş kolay zor temiz kirli beyaz siyah kırmızı mavi yeşil sarı derin yüksek alçak geniş dar
ağır hafif zengin yoksul mutlu üzgün doğru yanlış önemli gerekli farklı aynı ortak özel genel kesin
belirli tam eksik sağlam ince kalın sert yumuşak tatlı acı keskin parlak karanlık sessiz"""
)
VERBS = _listed(
    """gel git al ver yap et ol gör bak bil iste sev bul koy tut at aç kapa oku yaz çiz söyle
konuş dinle anla düşün sor çalış başla bitir dur kalk otur yürü koş geç dön çık gir in bin taşı
götür getir sat kazan kaybet kullan üret kur yık büyü küçül art azal değiş geliş öğren öğret göster
sakla ara bekle iyileş hazırla tanı unut hatırla sağla koru belirt açıkla incele karşılaş"""
)
FOOTERS = [
    f"Bu sayfadaki yazıların her hakkı saklıdır. {name} yayın kurulunun yazılı izni olmadan alıntı"
    " yapılamaz, çoğaltılamaz ve başka bir yerde yayımlanamaz. Görüş ve önerileriniz için iletişim"
    " sayfamızı kullanabilirsiniz."
    for name in ("Çınar", "Yelken", "Pınar", "Anadolu", "Marmara", "Toros", "Ege", "Fırat")
]
MENU = "Ana sayfa | Haberler | Yazılar | Fotoğraflar | Hakkımızda | İletişim"

Tables = tuple[np.ndarray, np.ndarray, np.ndarray]  # words, capitalised words, share of each


def documents(num_bytes: int, seed: int) -> Iterator[str]:
    """Texts of together at least `num_bytes` of UTF-8, each of 20 to 20,000 words."""
    rng = np.random.default_rng(seed)
    tables = _vocabulary(rng)
    earlier: list[str] = []
    size = 0
    while size < num_bytes:
        for text in _fresh(rng, tables):
            kind = rng.random()
            if earlier and kind < EXACT_COPIES:
                text = earlier[int(rng.integers(len(earlier)))]
            elif earlier and kind < EXACT_COPIES + NEAR_COPIES:
                text = _altered(earlier[int(rng.integers(len(earlier)))], rng)
            else:
                text = _dressed(text, rng)
                if len(earlier) < 5000:
                    earlier.append(text)
                else:
                    earlier[int(rng.integers(5000))] = text
            yield text
            size += len(text.encode())
            if size >= num_bytes:
                return


def write(folder: Path, num_bytes: int, seed: int) -> int:
    """Write the texts as JSON lines; returns how many."""
    folder.mkdir(parents=True, exist_ok=True)
    texts = enumerate(documents(num_bytes, seed))
    for part in itertools.count():
        written = 0
        with open(folder / f"part-{part:05d}.jsonl", "w", encoding="utf-8", newline="\n") as file:
            for number, text in texts:
                line = json.dumps({"id": f"{number:08d}", "text": text}, ensure_ascii=False) + "\n"
                file.write(line)
                written += len(text.encode())
                if written >= PART_BYTES:
                    break
            else:
                return number + 1
    raise AssertionError


def _fresh(rng: np.random.Generator, tables: Tables) -> list[str]:
    words, capitalised, share = tables
    drawn = np.searchsorted(share, rng.random(CHUNK_WORDS), side="right")
    lengths = np.clip(rng.lognormal(5.5, 1.0, CHUNK_WORDS // 100), 20, 20_000).astype(np.int64)
    ends = np.cumsum(lengths)
    ends = ends[ends <= CHUNK_WORDS]
    last = np.cumsum(rng.integers(5, 22, CHUNK_WORDS // 5))  # words of sentences
    last = np.union1d(last[last < CHUNK_WORDS], ends - 1)
    first = np.concatenate([[0], last[:-1] + 1])
    pieces = np.empty(2 * CHUNK_WORDS, object)
    pieces[0::2] = words[drawn]
    pieces[2 * first] = capitalised[drawn[first]]
    pieces[1::2] = " "
    pieces[2 * np.flatnonzero(rng.random(CHUNK_WORDS) < 0.06) + 1] = ", "
    verbs = words[-_NUM_VERBS:]
    pieces[2 * last] = verbs[np.minimum(rng.zipf(1.3, len(last)) - 1, _NUM_VERBS - 1)]
    pieces[2 * last + 1] = ". "
    pieces[2 * last[rng.random(len(last)) < 0.15] + 1] = ".\n\n"
    numbers = np.flatnonzero(rng.random(CHUNK_WORDS) < 0.01)
    pieces[2 * numbers] = rng.integers(1, 3000, len(numbers)).astype("U4").astype(object)
    listed = pieces.tolist()
    starts = np.concatenate([[0], ends[:-1]])
    return [
        "".join(listed[2 * a : 2 * b]).strip()
        for a, b in zip(starts.tolist(), ends.tolist(), strict=True)
    ]


def _dressed(text: str, rng: np.random.Generator) -> str:
    """With what a page has around and inside its text."""
    chance = rng.random(4)
    if chance[0] < ASCII_TYPED:
        text = text.translate(str.maketrans("çğıöşüâÇĞİÖŞÜ", "cgiosuaCGIOSU"))
    if chance[1] < WITH_CONTACT:
        number = rng.integers(1000000, 9999999)
        text += f"\nBilgi için: bilgi{number % 997}@ornek.com.tr, 0532 {number // 10000} {number % 10000:04d}"
    if chance[2] < WITH_MENU:
        text = f"{MENU}\n\n{text}"
    if chance[3] < WITH_FOOTER:
        text = f"{text}\n\n{FOOTERS[int(rng.integers(len(FOOTERS)))]}"
    return text


def _altered(text: str, rng: np.random.Generator) -> str:
    """A near copy: about one word in 150 is another one."""
    words = text.split(" ")
    for place in rng.integers(0, len(words), max(1, len(words) // 150)).tolist():
        words[place] = FUNCTION_WORDS[place % len(FUNCTION_WORDS)]
    return " ".join(words)


# Words

_BACK, _ROUND = set("aıouâ"), set("oöuü")
_VOWELS = _BACK | set("eiöüî")
_HARD = set("fstkçşhp")
_NOUN_ENDINGS = (
    "", "lAr", "(y)I", "(y)A", "DA", "DAn", "(n)In", "(s)I", "lArI", "(s)InA", "(s)IndA", "lArInI",
    "(s)IndAn", "lArdA", "lArA", "lArIn", "(y)lA", "(I)mIz", "(I)mIzI", "lArImIz", "lIk", "lI", "sIz",
    "CI", "CIlAr", "lIklA", "sIzlIk", "DAki", "lArdAn", "CIlIk",
)  # fmt: skip
_VERB_ENDINGS = (
    "DI", "DIlAr", "(I)yor", "(I)yordu", "(y)AcAk", "mIş", "mIştI", "mAdI", "mAz", "mAlI", "DIk", "DIm",
    "(I)yorlAr", "(y)AcAktIr", "mIştIr", "mAyAcAk", "(y)AbIlIr", "mAktAdIr",
)  # fmt: skip
_NUM_VERBS = len(VERBS) * len(_VERB_ENDINGS)


def inflected(root: str, ending: str) -> str:
    """A root with an ending by vowel harmony: A is a or e, I is ı, i, u or ü, D is d or t, C is c or
    ç, a letter in brackets stands only where it parts two vowels or two consonants."""
    word = root
    place = 0
    while place < len(ending):
        letter = ending[place]
        optional = letter == "("
        if optional:
            letter, place = ending[place + 1], place + 2
        place += 1
        after_vowel = word[-1] in _VOWELS
        if optional and (letter == "I") == after_vowel:
            continue
        vowels = [c for c in word if c in _VOWELS] or ["e"]
        back, rounded = vowels[-1] in _BACK, vowels[-1] in _ROUND
        if letter == "A":
            letter = "a" if back else "e"
        elif letter == "I":
            letter = ("u" if rounded else "ı") if back else ("ü" if rounded else "i")
        elif letter in "DC":
            hard = word[-1] in _HARD
            letter = {"D": "dt", "C": "cç"}[letter][hard]
        if letter in _VOWELS and word[-1] == "k" and len(vowels) > 1:
            word = word[:-1] + "ğ"
        word += letter
    return word


def _vocabulary(rng: np.random.Generator) -> Tables:
    nouns = [inflected(root, ending) for ending in _NOUN_ENDINGS for root in NOUNS]
    adjectives = [
        inflected(root, ending) for ending in ("", "CA", "lIk", "DIr") for root in ADJECTIVES
    ]
    longer = [
        inflected(inflected(root, first), second)
        for root in NOUNS
        for first in ("lI", "sIz", "CI", "lIk")
        for second in _NOUN_ENDINGS[1:19]
    ]
    verbs = [inflected(root, ending) for ending in _VERB_ENDINGS for root in VERBS]
    content = rng.permutation(np.array([*nouns, *adjectives, *longer], object))
    content_share = 0.72 / (np.arange(len(content)) + 20.0)
    function_share = 1.0 / (np.arange(len(FUNCTION_WORDS)) + 2.0)
    share = np.concatenate(
        [
            0.27 * function_share / function_share.sum(),
            0.73 * content_share / content_share.sum(),
            np.zeros(len(verbs)),
        ]
    )
    words = np.array([*FUNCTION_WORDS, *content, *verbs], object)
    capitalised = np.array([upper_tr(word[0]) + word[1:] for word in words], object)
    share = np.cumsum(share)
    return words, capitalised, share / share[-1]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--mb", type=float, default=100)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    start = time.perf_counter()
    count = write(arguments.folder, int(arguments.mb * 1e6), arguments.seed)
    seconds = time.perf_counter() - start
    print(
        f"{count} documents, {arguments.mb:.0f} MB in {seconds:.1f} s: {arguments.mb / seconds:.0f} MB/s"
    )


if __name__ == "__main__":
    main()
