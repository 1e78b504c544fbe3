"""Pictures: the files of a folder, a tar and a zip, and what a model sees of them."""

from __future__ import annotations

import io
import tarfile
import zipfile

import numpy as np
import pytest
from PIL import Image

from runtime.errors import DataError, MisfitError
from runtime.measure.accuracy import files as module
from runtime.measure.accuracy.files import Files
from runtime.measure.accuracy.pictures import Normalisation, PictureInput, cropped, decoded, resized
from runtime.model.schema import BuiltinOperator as Op
from tests.oracle import run_litert
from tests.runtime.models import Builder


def png(pixels):
    made = io.BytesIO()
    Image.fromarray(np.asarray(pixels, np.uint8)).save(made, "PNG")
    return made.getvalue()


NOISE = np.random.default_rng(0).integers(0, 256, (37, 53, 3), np.uint8)


def test_a_folder_a_tar_and_a_zip_have_the_same_files(tmp_path):
    folder = tmp_path / "pictures"
    (folder / "deep").mkdir(parents=True)
    for name in ("b.png", "deep/a.JPG", "notes.txt"):
        (folder / name).write_bytes(name.encode())
    with tarfile.open(tmp_path / "p.tar", "w") as tar, zipfile.ZipFile(tmp_path / "p.zip", "w") as made:
        tar.add(folder, ".")
        for name in ("b.png", "deep/a.JPG", "notes.txt"):
            made.write(folder / name, name)
    for path in (folder, tmp_path / "p.tar", tmp_path / "p.zip"):
        files = Files(path)
        assert list(files.pictures) == ["b.png", "deep/a.JPG"]
        assert [files.read(name) for name in files.names] == [name.encode() for name in files.names]


def zipped(path, compression=zipfile.ZIP_DEFLATED):
    with zipfile.ZipFile(path, "w", compression) as made:
        for name in ("b.png", "a.png"):
            made.writestr(name, name.encode() * 100)
    return path


def test_a_zip_may_be_packed_have_a_comment_and_something_in_front_and_need_64_bits(tmp_path, monkeypatch):
    path = zipped(tmp_path / "p.zip")
    with zipfile.ZipFile(path, "a") as made:
        made.comment = b"PK" * 40
    path.write_bytes(b"in front" + path.read_bytes())
    monkeypatch.setattr(zipfile, "ZIP64_LIMIT", 10)
    monkeypatch.setattr(zipfile, "ZIP_FILECOUNT_LIMIT", 1)
    for one in (path, zipped(tmp_path / "wide.zip"), zipped(tmp_path / "stored.zip", zipfile.ZIP_STORED)):
        files = Files(one)
        assert [files.read(name) for name in files.names] == [b"a.png" * 100, b"b.png" * 100]
    assert b"PK\6\6" in one.read_bytes()


def test_a_damaged_zip_is_an_error_with_its_name(tmp_path):
    path = zipped(tmp_path / "p.zip", zipfile.ZIP_STORED)
    whole = path.read_bytes()
    path.write_bytes(whole.replace(b"a.png" * 100, b"A.png" * 100))
    with pytest.raises(DataError, match=r"p\.zip: a\.png: cannot be read: its bytes are not those"):
        Files(path).read("a.png")
    path.write_bytes(whole.replace(b"PK\1\2", b"PK\1\3"))
    with pytest.raises(DataError, match=r"p\.zip: a damaged \.zip: its directory is damaged"):
        Files(path)
    bits = whole.index(b"PK\1\2") + 8
    path.write_bytes(whole[:bits] + b"\1" + whole[bits + 1 :])
    with pytest.raises(DataError, match=r"b\.png: cannot be read: it is encrypted"):
        Files(path).read("b.png")
    zipped(path, zipfile.ZIP_BZIP2)
    with pytest.raises(DataError, match=r"packed by method 12; stored and deflated members are read"):
        Files(path).read("b.png")


def test_a_compressed_tar_says_what_to_do(tmp_path):
    with tarfile.open(tmp_path / "p.tar.gz", "w:gz"):
        pass
    with pytest.raises(DataError, match="unpack what is compressed"):
        Files(tmp_path / "p.tar.gz")


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "x.png: no JPEG or PNG"),
        (b"GIF89a" + bytes(40), "x.png: no JPEG or PNG"),
        (png(NOISE)[:2000], "x.png: the picture is damaged"),
        (png(NOISE)[:30], "x.png: no JPEG or PNG, or a damaged one"),
    ],
    ids=["empty", "gif", "cut", "head"],
)
def test_what_is_no_whole_picture_is_an_error_with_the_files_name(content, said):
    with pytest.raises(DataError, match=said):
        decoded(content, "x.png")


@pytest.mark.parametrize("side", [10_001, 14_000])
def test_a_picture_of_a_hundred_megapixels_is_refused_before_it_is_unpacked(side):
    made = io.BytesIO()
    Image.new("1", (side, side)).save(made, "PNG")
    with pytest.raises(DataError, match=r"big.png: .*[Aa]t most 64"):
        decoded(made.getvalue(), "big.png")


def test_sixteen_bits_of_grey_are_not_cut_to_eight():
    made = io.BytesIO()
    Image.fromarray(np.full((4, 4), 40_000, np.uint16)).save(made, "PNG")
    with pytest.raises(DataError, match=r"grey.png: 16 bits of grey a pixel"):
        decoded(made.getvalue(), "grey.png")


def test_an_open_size_is_asked_for_and_an_open_batch_is_one_picture():
    detail = {"name": "x", "shape": (1, 1, 1, 3), "dtype": np.float32, "quantization": (0.0, 0)}
    with pytest.raises(MisfitError, match=r"'x' has an open size, \[1, -1, -1, 3\]: give it a shape"):
        PictureInput.of([{**detail, "shape_signature": (-1, -1, -1, 3)}])
    given = PictureInput.of([{**detail, "shape": (1, 8, 9, 3), "shape_signature": (-1, -1, -1, 3)}])
    assert (given.height, given.width) == (8, 9)


def test_a_file_that_unpacks_to_too_much_is_refused(tmp_path, monkeypatch):
    (tmp_path / "a.png").write_bytes(bytes(101))
    monkeypatch.setattr(module, "MOST_BYTES", 100)
    with pytest.raises(DataError, match=r"a\.png: 101 bytes; at most 100"):
        Files(tmp_path).read("a.png")


@pytest.mark.parametrize("target", [(16, 16), (37, 53), (64, 100), (1, 1)])
def test_the_size_is_changed_as_by_litert(target):
    b = Builder()
    x = b.input(np.float32, (1, *NOISE.shape))
    y = b.tensor(np.float32, (1, *target, 3))
    b.operator(Op.RESIZE_BILINEAR, [x, b.constant(np.array(target, np.int32))], [y],
               {"align_corners": False, "half_pixel_centers": False})  # fmt: skip
    (expected,) = run_litert(b.write([y]), [NOISE[None].astype(np.float32)])
    np.testing.assert_allclose(resized(NOISE, *target), expected[0], atol=1e-3)


def test_the_centre_is_a_square_of_the_shorter_side():
    assert cropped(NOISE, 0.875).shape == (32, 32, 3)
    np.testing.assert_array_equal(cropped(NOISE, 0.875), NOISE[3:35, 11:43])


def port(dtype, shape=(1, 8, 8, 3), scale=0.0, zero_point=0):
    detail = {"name": "x", "shape": shape, "dtype": dtype, "quantization": (scale, zero_point)}
    return PictureInput.of([detail])


def test_pixels_are_normalised_as_litert_does_by_default_and_as_stated():
    grey = np.full((8, 8, 3), 200, np.uint8)
    assert port(np.float32).value(grey, Normalisation()).flat[0] == pytest.approx((200 - 127.5) / 127.5)
    assert port(np.uint8).value(grey, Normalisation()).flat[0] == 200
    assert port(np.int8).value(grey, Normalisation()).flat[0] == 72
    stated = Normalisation((100.0, 50.0, 0.0), (10.0, 10.0, 1.0), is_stated=True)
    np.testing.assert_allclose(port(np.float32).value(grey, stated)[0, 0, 0], [10, 15, 200])
    assert port(np.int8, scale=0.5, zero_point=-100).value(grey, stated)[0, 0, 0].tolist() == [-80, -70, 127]
    first = port(np.float32, (1, 3, 8, 8)).value(grey, stated)
    np.testing.assert_allclose(first[0, :, 0, 0], [10, 15, 200])


@pytest.mark.parametrize(
    ("dtype", "shape"), [(np.float32, (1, 640)), (np.int32, (1, 8, 8, 3)), (np.uint8, (2, 8, 8, 3))]
)
def test_a_model_that_takes_no_picture_is_refused(dtype, shape):
    with pytest.raises(DataError, match="a picture needs one input"):
        port(dtype, shape)
