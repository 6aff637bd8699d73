"""Finding and opening files: globs, URLs, packed files, archives, and what an archive may not do."""

import bz2
import gzip
import io
import lzma
import os
import subprocess
import sys
import tarfile
import zipfile
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


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_a_file_without_read_permission_is_named(tmp_path: Path) -> None:
    (tmp_path / "a.txt").touch(mode=0)
    assert walk(tmp_path / "a.txt") == [BadRecord("a.txt", "cannot be opened: Permission denied")]


def test_zip_members_come_in_name_order(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as archive:
        for name in ("ç.txt", "b.txt", "a/z.txt"):
            archive.writestr(name, "x")
    assert [item[1] for item in walk(tmp_path / "a.zip")] == ["a/z.txt", "b.txt", "ç.txt"]  # type: ignore[index]
