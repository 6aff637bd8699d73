"""Finding and opening files: globs, URLs, packed files, archives, and what an archive may not do."""

import bz2
import contextlib
import gzip
import io
import lzma
import os
import random
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path

import fsspec
import office
import pyarrow as pa
import pytest

from sifirdan.corpus import files
from sifirdan.corpus.files import File, Limits, NotRead, Place
from sifirdan.corpus.records import BadRecord
from sifirdan.errors import ConfigError, DataError

LIMITS = Limits(max_document_bytes=10**9, max_unpacked_bytes=10**9, max_members=1000)
TEXT = "Iğdır'da çay\n".encode() * 50


def zstd(content: bytes) -> bytes:
    packed = pa.BufferOutputStream()
    with pa.CompressedOutputStream(packed, "zstd") as stream:
        stream.write(content)
    return packed.getvalue().to_pybytes()


def walk(path: Path, limits: Limits = LIMITS) -> list[tuple[str, str, bytes] | BadRecord | NotRead]:
    """What a file holds: origin, name and content of each file in it, or what is wrong."""
    found: list[tuple[str, str, bytes] | BadRecord | NotRead] = []
    for file in files.walk(Place(path.name, path.name, str(path)), limits):
        if isinstance(file, File):
            found.append((file.origin, file.name, file.stream.read()))
        else:
            found.append(file)
    return found


def touch(folder: Path, *names: str) -> None:
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text("x")


# Finding.


def test_globs_find_each_file_once_in_name_order(tmp_path: Path) -> None:
    touch(tmp_path, "metin/şiir.txt", "metin/a b.txt", "metin/alt/ç.txt", "metin/a.pdf", "z.txt")
    found = files.find(["z.txt", "metin/**/*.txt", "./metin/*.txt"], tmp_path)
    assert [p.origin for p in found] == [
        "metin/a b.txt",
        "metin/alt/ç.txt",
        "metin/şiir.txt",
        "z.txt",
    ]
    assert all(Path(p.path).is_file() and p.name == Path(p.path).name for p in found)


def test_a_folder_stands_for_all_files_below_it(tmp_path: Path) -> None:
    touch(tmp_path, "metin/b.txt", "metin/alt/a.md", "metin/.gitignore", "metin/b.txt.dvc")
    assert [p.origin for p in files.find(["metin"], tmp_path)] == ["metin/alt/a.md", "metin/b.txt"]


def test_absolute_globs_name_files_from_their_fixed_part(tmp_path: Path) -> None:
    touch(tmp_path, "veri/2020/a.txt", "veri/2021/a.txt", "baska/2020/a.txt")
    found = files.find([f"{tmp_path}/veri/*/*.txt"], tmp_path / "proje")
    assert [p.origin for p in found] == ["2020/a.txt", "2021/a.txt"]
    assert [p.origin for p in files.find([f"{tmp_path}/veri"], tmp_path)] == [
        "2020/a.txt",
        "2021/a.txt",
    ]
    with pytest.raises(ConfigError, match="would both be called '2020/a.txt'"):
        files.find([f"{tmp_path}/veri/*/*.txt", f"{tmp_path}/baska/*/*.txt"], tmp_path)


def test_a_glob_that_names_nothing_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"metin/\*.txt: names no file"):
        files.find(["metin/*.txt"], tmp_path)


def test_I_06_turkish_globs_work_under_every_locale(tmp_path: Path) -> None:
    touch(tmp_path, "ığdır/şiir çağ.txt", "ığdır/başka.md")
    script = (
        "import sys; from pathlib import Path; from sifirdan.corpus import files;"
        "found = files.find(['\\u0131*/\\u015f*.txt'], Path(sys.argv[1]));"
        "print(ascii([(p.origin, open(p.path).read()) for p in found]))"
    )
    for settings in ({"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}, {}):
        done = subprocess.run(
            [sys.executable, "-c", script, str(tmp_path)],
            env=os.environ | settings, capture_output=True, encoding="utf-8", check=True,
        )  # fmt: skip
        assert done.stdout == ascii([("ığdır/şiir çağ.txt", "x")]) + "\n"


def test_urls_of_fsspec_are_listed_and_read() -> None:
    store = fsspec.filesystem("memory")
    store.pipe(
        {"/kova/b.txt": b"iki", "/kova/alt/a.txt.gz": gzip.compress(b"bir"), "/kova/c.md": b"x"}
    )
    found = files.find(["memory://kova/**/*.txt*", "memory://kova/b.txt"], Path())
    assert [p.origin for p in found] == ["memory:///kova/alt/a.txt.gz", "memory:///kova/b.txt"]
    contents = [
        f.stream.read() for p in found for f in files.walk(p, LIMITS) if isinstance(f, File)
    ]
    assert contents == [b"bir", b"iki"]
    with pytest.raises(DataError, match="names no file"):
        files.find(["memory://kova/*.pdf"], Path())


def test_a_kind_of_url_that_nothing_reads_is_refused() -> None:
    with pytest.raises(ConfigError, match="cannot be read here") as error:
        files.find(["bilinmez://kova/a.txt"], Path())
    assert "pip install" in str(error.value)


# Unpacking.


@pytest.mark.parametrize(
    ("ending", "pack"),
    [("gz", gzip.compress), ("bz2", bz2.compress), ("xz", lzma.compress), ("zst", zstd)],
)
def test_packed_files_are_unpacked(tmp_path: Path, ending: str, pack: object) -> None:
    packed = pack(TEXT)  # type: ignore[operator]
    path = tmp_path / f"Şiir.TXT.{ending}"
    path.write_bytes(packed)
    assert walk(path) == [(path.name, "Şiir.TXT", TEXT)]
    path.write_bytes(packed + packed)
    assert walk(path) == [(path.name, "Şiir.TXT", TEXT + TEXT)]
    small = Limits(10**9, len(TEXT) - 1, 1000)
    path.write_bytes(packed)
    with pytest.raises(files.LimitReached, match=f"more than {len(TEXT) - 1} bytes"):
        walk(path, small)


@pytest.mark.parametrize(
    ("ending", "pack"),
    [("gz", gzip.compress), ("bz2", bz2.compress), ("xz", lzma.compress), ("zst", zstd)],
)
def test_a_cut_packed_file_gives_no_text_silently(
    tmp_path: Path, ending: str, pack: object
) -> None:
    path = tmp_path / f"a.txt.{ending}"
    path.write_bytes(pack(os.urandom(100_000))[:-1000])  # type: ignore[operator]
    walking = files.walk(Place("a", path.name, str(path)), LIMITS)
    file = next(walking)
    assert isinstance(file, File)
    with pytest.raises(files.DAMAGED):
        file.stream.read()


@pytest.mark.parametrize("ending", ["zip", "tar", "tar.gz", "tgz", "tar.bz2", "tar.xz", "tar.zst"])
def test_members_of_archives_are_files(tmp_path: Path, ending: str) -> None:
    members = {"b/Çay.txt": TEXT, "a.txt.gz": gzip.compress(b"a"), "boş klasör/x.md": b"x"}
    path = tmp_path / f"Arşiv.{ending}"
    if ending == "zip":
        path.write_bytes(office.zip_bytes(members))
    elif ending == "tar.zst":
        path.write_bytes(zstd(office.tar_bytes(members, "w")))
    else:
        mode = {"tar": "", "tgz": "gz"}.get(ending, ending.removeprefix("tar."))
        path.write_bytes(office.tar_bytes(members, f"w:{mode}"))
    contents = {"b/Çay.txt": TEXT, "a.txt": b"a", "boş klasör/x.md": b"x"}
    found = walk(path)
    assert {name: content for _, name, content in found} == contents  # type: ignore[misc]
    assert {origin for origin, _, _ in found} == {f"{path.name}!{m}" for m in members}  # type: ignore[misc]


@pytest.mark.parametrize(
    "name", ["../a.txt", "/etc/a.txt", "b/../../a.txt", "..\\a.txt", "C:\\a.txt"]
)
@pytest.mark.parametrize("pack", [office.zip_bytes, office.tar_bytes])
def test_names_that_lead_out_of_an_archive_are_refused(
    tmp_path: Path, name: str, pack: object
) -> None:
    path = tmp_path / ("a.zip" if pack is office.zip_bytes else "a.tar.gz")
    path.write_bytes(pack({name: b"x", "iyi.txt": b"iyi"}))  # type: ignore[operator]
    bad, good = walk(path)
    if isinstance(good, BadRecord):
        bad, good = good, bad
    assert isinstance(bad, BadRecord) and bad.reason == "its name leads out of the archive"
    assert good == (f"{path.name}!iyi.txt", "iyi.txt", b"iyi")


def test_links_and_archives_inside_are_named(tmp_path: Path) -> None:
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w") as archive:
        link = tarfile.TarInfo("bağ.txt")
        link.type, link.linkname = tarfile.SYMTYPE, "/etc/passwd"
        archive.addfile(link)
        for name in ("iç.tar.gz", "iç.zip", ".gizli.txt", "~$a.docx"):
            archive.addfile(tarfile.TarInfo(name))
    (tmp_path / "a.tar").write_bytes(file.getvalue())
    found = walk(tmp_path / "a.tar")
    reasons = [item.reason for item in found if isinstance(item, NotRead)]
    inside = "an archive inside an archive is not opened"
    expected = ["a link or a device", inside, inside, "a hidden file"]
    assert reasons == [*expected, "the lock file of an office program"]


def test_an_encrypted_member_is_named(tmp_path: Path) -> None:
    content = bytearray(office.zip_bytes({"a.txt": b"gizli"}))
    content[6] |= 1  # the flag in the member's own header and in the directory
    content[content.index(b"PK\x01\x02") + 8] |= 1
    (tmp_path / "a.zip").write_bytes(bytes(content))
    assert walk(tmp_path / "a.zip") == [BadRecord("a.zip!a.txt", "is encrypted")]


@pytest.mark.parametrize("pack", [office.zip_bytes, office.tar_bytes])
def test_the_number_of_members_is_bounded(tmp_path: Path, pack: object) -> None:
    path = tmp_path / ("a.zip" if pack is office.zip_bytes else "a.tar.gz")
    path.write_bytes(pack({f"{n:02d}.txt": b"x" for n in range(12)}))  # type: ignore[operator]
    found = walk(path, Limits(10**9, 10**9, 10))
    assert found[-1] == BadRecord(path.name, "has more than 10 members (ingest.max_members)")
    assert len(walk(path, Limits(10**9, 10**9, 12))) == 12


def test_a_bomb_is_not_unpacked_to_its_end(tmp_path: Path) -> None:
    zeros = bytes(50_000_000)
    path = tmp_path / "a.zip"
    path.write_bytes(office.zip_bytes({f"{n}.txt": zeros for n in range(3)}))
    limits = Limits(10**9, 60_000_000, 1000)
    seen = 0
    with pytest.raises(files.LimitReached, match="unpacks to more than 60000000 bytes"):
        for file in files.walk(Place("a", path.name, str(path)), limits):
            assert isinstance(file, File)
            while block := file.stream.read(1 << 20):
                seen += len(block)
    assert seen < 62_000_000


@pytest.mark.parametrize("size", [1, 100, 511, 5_000, 20_000])
@pytest.mark.parametrize("mode", ["w", "w:gz"])
def test_a_cut_tar_is_never_taken_for_a_whole_one(tmp_path: Path, size: int, mode: str) -> None:
    members = {f"{n}.txt": os.urandom(3_000) for n in range(6)}
    whole = office.tar_bytes(members, mode)
    path = tmp_path / ("a.tar" if mode == "w" else "a.tar.gz")
    path.write_bytes(whole[:-size] if mode == "w:gz" else whole[: 6 * 3584 + 512 - size])
    found: list[object] = []
    for file in files.walk(Place("a", path.name, str(path)), LIMITS):
        try:
            found.append(file.stream.read() if isinstance(file, File) else file)
        except files.DAMAGED as error:
            found.append(BadRecord("a", files.describe(error)))
    assert any(isinstance(item, BadRecord) for item in found)
    path.write_bytes(whole)
    assert [item[2] for item in walk(path)] == list(members.values())  # type: ignore[index]


FOUR = {f"{n}.txt": f"metin {n}".encode() for n in range(4)}  # a header and a block each
PACKERS: dict[str, Callable[[bytes], bytes]] = {
    "tar": bytes, "tar.gz": gzip.compress, "tar.zst": zstd,
}  # fmt: skip


@pytest.mark.parametrize("ending", PACKERS)
@pytest.mark.parametrize("number", [0, 1, 2, 3])
@pytest.mark.parametrize("at", [0, 120, 150, 257])
def test_a_damaged_header_is_not_the_end_of_a_tar(
    tmp_path: Path, ending: str, number: int, at: int
) -> None:
    content = bytearray(office.tar_bytes(FOUR, "w"))
    content[number * 1024 + at] ^= 0xFF
    path = tmp_path / f"a.{ending}"
    path.write_bytes(PACKERS[ending](bytes(content)))
    *good, bad = walk(path)
    assert [item[2] for item in good] == list(FOUR.values())[:number]  # type: ignore[index]
    assert isinstance(bad, BadRecord) and bad.origin == path.name
    assert f"the header of a member at byte {number * 1024} is wrong" in bad.reason


@pytest.mark.parametrize("ending", PACKERS)
def test_what_follows_the_end_of_a_tar_is_named(tmp_path: Path, ending: str) -> None:
    whole = office.tar_bytes(FOUR, "w")
    wiped = whole[:1024] + bytes(512) + whole[1536:]  # a header of zeros looks like the end
    path = tmp_path / f"a.{ending}"
    for content, number in ((whole + whole, 4), (wiped, 1), (whole + b"x", 4)):
        path.write_bytes(PACKERS[ending](content))
        *good, bad = walk(path)
        assert [item[2] for item in good] == list(FOUR.values())[:number]  # type: ignore[index]
        assert isinstance(bad, BadRecord)
        assert bad.reason.startswith(f"goes on after its end mark at byte {number * 1024}")
    zeros = {"0.txt": bytes(5000), "1.txt": b""}
    path.write_bytes(PACKERS[ending](office.tar_bytes(zeros, "w") + bytes(3_000_000)))
    assert [item[2] for item in walk(path)] == list(zeros.values())  # type: ignore[index]


def test_a_zip_with_a_damaged_name_is_named(tmp_path: Path) -> None:
    whole = office.zip_bytes({"ş.txt": b"metin", "b.txt": b"iki"})
    wrong = whole.replace("ş".encode(), b"\xff\xfe")
    in_directory = whole.index(b"PK\x01\x02")
    for content in (wrong, whole[:in_directory] + wrong[in_directory:]):
        (tmp_path / "a.zip").write_bytes(content)
        (found,) = walk(tmp_path / "a.zip")
        assert isinstance(found, BadRecord) and "is damaged: the directory" in found.reason
    (tmp_path / "a.zip").write_bytes(wrong[:in_directory] + whole[in_directory:])
    good, bad = walk(tmp_path / "a.zip")
    assert good == ("a.zip!b.txt", "b.txt", b"iki")
    assert isinstance(bad, BadRecord) and bad.origin == "a.zip!ş.txt"
    assert "is damaged: the header" in bad.reason


def long_names(tar_format: int) -> bytes:
    """A tar whose names and times need headers of their own."""
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w", format=tar_format) as archive:
        for name in ("a.txt", "ş" * 60 + ".txt", "c.txt"):
            member = tarfile.TarInfo(name)
            member.size, member.mtime = 5, 1.5
            archive.addfile(member, io.BytesIO(b"metin"))
    return file.getvalue()


@pytest.mark.parametrize(
    ("ending", "whole"),
    [
        ("zip", office.zip_bytes({"ş.txt": TEXT, "b.jsonl": TEXT, "c.csv": b"iki"})),
        ("tar", long_names(tarfile.PAX_FORMAT)),
        ("tar", long_names(tarfile.GNU_FORMAT)),
    ],
)
def test_no_damage_of_an_archive_loses_members_silently(
    tmp_path: Path, ending: str, whole: bytes
) -> None:
    noise = random.Random(1)
    path = tmp_path / f"a.{ending}"
    for _ in range(1500):
        content = bytearray(whole)
        for _ in range(noise.choice((1, 2, 5))):
            content[noise.randrange(len(content))] = noise.choice((0, 255, noise.randrange(256)))
        path.write_bytes(content)
        count = 0
        for file in files.walk(Place("a", path.name, str(path)), LIMITS):
            count += 1
            with contextlib.suppress(*files.DAMAGED):
                if isinstance(file, File):
                    file.stream.read()
        assert count >= 3 or isinstance(file, BadRecord), bytes(content)


@pytest.mark.parametrize(
    "name", ["a.zip", "a.tar", "a.tar.gz", "a.txt.gz", "a.txt.zst", "a.txt.xz"]
)
def test_what_is_no_archive_is_named(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    path.write_bytes(b"ben bir arsiv degilim, duz bir yaziyim" * 30)
    try:
        (found,) = walk(path)
    except files.DAMAGED as error:  # shows only when it is read
        found = BadRecord(name, files.describe(error))
    assert isinstance(found, BadRecord) and "is damaged: " in found.reason
    path.write_bytes(b"")
    assert walk(path) == [BadRecord(name, "the file is empty")]


def test_files_that_cannot_be_opened_are_named(tmp_path: Path) -> None:
    assert walk(tmp_path / "yok.txt") == [
        BadRecord("yok.txt", "cannot be opened: No such file or directory")
    ]


def test_links_and_pipes_are_named_and_not_opened(tmp_path: Path) -> None:
    own, other = tmp_path / "own", tmp_path / "other"
    touch(tmp_path, "own/a.txt", "other/b.txt")
    (own / "c.txt").symlink_to(other / "b.txt")
    (own / "boşa.txt").symlink_to(tmp_path / "yok.txt")
    (own / "kendi.zip").symlink_to(own / "kendi.zip")
    (own / "klasör").symlink_to(other)
    os.mkfifo(own / "boru.txt")

    def names(places: list[Place]) -> tuple[set[str], dict[str, str]]:
        found = [item for place in places for item in files.walk(place, LIMITS)]
        return {item.origin for item in found if isinstance(item, File)}, {
            item.origin: item.reason for item in found if isinstance(item, NotRead)
        }

    read, named = names(files.find_below(own))
    assert read == {"a.txt", "c.txt"}
    assert named == {
        "boşa.txt": "a link that leads nowhere", "kendi.zip": "a link that leads nowhere",
        "klasör": "a link to a folder", "boru.txt": "a pipe, a socket or a device",
    }  # fmt: skip
    assert names(files.find([str(own)], tmp_path)) == (read, named)
    read, named = names(files.find([f"{own}/**"], tmp_path))  # a ** follows links to folders
    assert read == {"a.txt", "c.txt", "klasör/b.txt"}
    assert named.keys() == {"boşa.txt", "kendi.zip", "boru.txt"}
    assert walk(own) == [BadRecord("own", "cannot be opened: Is a directory")]


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_a_file_without_read_permission_is_named(tmp_path: Path) -> None:
    (tmp_path / "a.txt").touch(mode=0)
    assert walk(tmp_path / "a.txt") == [BadRecord("a.txt", "cannot be opened: Permission denied")]


def test_zip_members_come_in_name_order(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as archive:
        for name in ("ç.txt", "b.txt", "a/z.txt"):
            archive.writestr(name, "x")
    assert [item[1] for item in walk(tmp_path / "a.zip")] == ["a/z.txt", "b.txt", "ç.txt"]  # type: ignore[index]
