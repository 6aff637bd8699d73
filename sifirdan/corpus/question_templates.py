"""How questions are worded: the templates of each type of instruction, and the suffixes they need.

Of a dictionary type the last few templates are held out from training and serve evaluation only.
In a template `{x}` is the word asked about, `{X}` the same with a capital, `{of}` and `{at}` a
name with its genitive or locative suffix. Curly, plain and no quotes, careless lower case: people
write all of these. Not for choosing what is asked; instructions.py does that.
"""

from sifirdan.text import lower_tr

DICTIONARY_TEMPLATES: dict[str, tuple[str, ...]] = {
    "definition": (
        "“{x}” ne demek?",
        "{x} ne demek",
        "“{x}” ne anlama gelir?",
        '"{x}" ne demek?',
        "{x} ne demektir?",
        "“{x}” sözcüğünün anlamı nedir?",
        '"{x}" kelimesi ne anlama geliyor?',
        "“{x}” sözcüğünü açıklar mısın?",
        "{x} kelimesinin anlamını söyle.",
        "{x} kelimesinin anlamı ne",
        "“{x}” nedir?",
        "{x} nedir",
        "“{x}” sözcüğünü tanımlar mısın?",
        "Bana “{x}” sözcüğünün anlamını anlat.",
        "“{x}” derken ne kastedilir?",
        "“{x}” sözcüğü hangi anlamda kullanılır?",
        "{x} sözcüğünün ne anlama geldiğini merak ediyorum.",
        "“{x}” ne demek, bilmiyorum.",
        "{x} kelimesini açıkla",
        '"{x}" ne demek, söyler misin?',
        "“{x}” denince akla ne gelir?",
        '"{x}" sözcüğünün tanımını yaz.',
        "“{x}” kelimesinin anlamını öğrenmek istiyorum.",
        '"{x}" deyince ne anlamalıyım?',
    ),
    "idiom": (
        "“{x}” deyimi ne anlama gelir?",
        "{x} ne demek",
        '"{x}" deyiminin anlamı nedir?',
        "“{x}” ne anlama gelir?",
        "“{x}” deyimini açıklar mısın?",
        "{x} deyimi ne demek",
        '"{x}" ne demek?',
        "“{x}” deyimiyle ne anlatılır?",
        "Biri “{x}” derse ne demek ister?",
    ),
    "proverb": (
        "“{X}” sözü ne anlama gelir?",
        "{x} ne demek",
        '"{X}" sözünün anlamı nedir?',
        "“{X}” ne demek?",
        "“{X}” sözünü açıklar mısın?",
        '"{x}" sözü neyi anlatır?',
        "{x} sözü ne anlama geliyor",
        "“{X}” derken ne anlatmak isterler?",
        "“{X}” sözü hangi anlamda kullanılır?",
    ),
    "sentence": (
        "“{x}” sözcüğünü bir cümlede kullan.",
        "{x} kelimesini cümle içinde kullan",
        '"{x}" sözcüğünü bir cümlede kullanır mısın?',
        "“{x}” ile bir cümle kurar mısın?",
        "İçinde “{x}” geçen bir cümle yaz.",
        "{x} ile bir cümle kur",
        '"{x}" sözcüğüne örnek bir cümle ver.',
        "“{x}” için bir örnek cümle söyler misin?",
        "“{x}” bir cümlede nasıl kullanılır?",
        "{x} kelimesiyle bana bir cümle yaz.",
    ),
    "synonym": (
        "“{x}” ile eş anlamlı sözcükler nelerdir?",
        "“{x}” sözcüğünün eş anlamlısı nedir?",
        "{x} eş anlamlısı",
        '"{x}" kelimesinin eş anlamlısı ne?',
        "“{x}” sözcüğünün eş anlamlılarını söyle.",
        "{x} kelimesinin eş anlamlısı nedir",
        '"{x}" ile aynı anlama gelen bir sözcük söyler misin?',
        "“{x}” yerine hangi sözcük kullanılabilir?",
        "“{x}” başka nasıl söylenir?",
        "{x} kelimesinin eş anlamlılarını biliyor musun?",
    ),
    "antonym": (
        "“{x}” sözcüğünün zıt anlamlısı nedir?",
        "{x} zıt anlamlısı",
        '"{x}" kelimesinin zıt anlamlısı ne?',
        "“{x}” sözcüğünün karşıt anlamlısını söyle.",
        "{x} kelimesinin zıt anlamlısı nedir",
        "“{x}” ile zıt anlamlı sözcük hangisidir?",
        '"{x}" sözcüğünün karşıtı nedir?',
        "“{x}” sözcüğünün tersi nedir?",
        "{x} ile karşıt anlamlı bir sözcük söyler misin?",
    ),
    "english": (
        "“{x}” İngilizcede nasıl denir?",
        "{x} ingilizcesi ne",
        '"{x}" sözcüğünün İngilizcesi nedir?',
        "“{x}” kelimesinin İngilizce karşılığı nedir?",
        "{x} kelimesinin İngilizcesini söyle.",
        '"{x}" İngilizcede ne demek?',
        "“{x}” sözcüğünü İngilizceye çevirir misin?",
        "“{x}” için İngilizcede hangi sözcük kullanılır?",
        "{x} İngilizce nasıl söylenir?",
    ),
}

PROVINCE_TEMPLATES: dict[str, tuple[str, ...]] = {
    "plate": (
        "{of} plaka kodu kaç?",
        "{x} kaç plaka",
        "{x} ilinin plaka numarası kaçtır?",
        "{of} plakası kaç?",
        "“{x}” ilinin plaka kodunu söyler misin?",
        "{x} plakası kaç",
    ),
    "plate_owner": (
        "{x} plaka hangi ilin?",
        "{x} hangi şehrin plakası",
        "Plaka kodu {x} olan il hangisidir?",
        "{x} plakalı bir araba hangi ildendir?",
        "{x} plaka kodu hangi ile aittir?",
    ),
    "region": (
        "{x} hangi bölgededir?",
        "{x} hangi bölgede",
        "{x} ili hangi bölgemizde yer alır?",
        "{x} Türkiye'nin hangi bölgesindedir?",
        "{of} bulunduğu bölge hangisidir?",
    ),
    "districts": (
        "{of} ilçeleri nelerdir?",
        "{x} ilçeleri",
        "{x} ilinin ilçelerini say.",
        "{at} hangi ilçeler var?",
        "{of} ilçelerini sıralar mısın?",
    ),
    "district": (
        "{x} hangi ilin ilçesidir?",
        "{x} hangi ilde",
        "{x} ilçesi hangi ildedir?",
        "{x} hangi ile bağlı?",
        "“{x}” ilçesi hangi ile bağlıdır?",
    ),
}

_HARMONY = {
    **dict.fromkeys("aâı", ("a", "ı")),
    **dict.fromkeys("eiî", ("e", "i")),
    **dict.fromkeys("ouû", ("a", "u")),
    **dict.fromkeys("öü", ("e", "ü")),
}


def genitive(name: str) -> str:
    """'Ankara' -> "Ankara'nın", 'Muş' -> "Muş'un"."""
    buffer = "n" if lower_tr(name[-1]) in _HARMONY else ""
    return f"{name}'{buffer}{_last_vowel(name)[1]}n"


def locative(name: str) -> str:
    """'Ankara' -> "Ankara'da", 'Tokat' -> "Tokat'ta"."""
    consonant = "t" if lower_tr(name[-1]) in "fstkçşhp" else "d"
    return f"{name}'{consonant}{_last_vowel(name)[0]}"


def _last_vowel(name: str) -> tuple[str, str]:
    """The open and the close vowel that a suffix takes after this name."""
    return next((_HARMONY[c] for c in reversed(lower_tr(name)) if c in _HARMONY), ("e", "i"))
