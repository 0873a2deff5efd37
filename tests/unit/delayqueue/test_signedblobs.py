from __future__ import annotations

import hmac
import zlib

import pytest

from duepoint import errors
from duepoint.delayqueue import errors as queue_errors
from duepoint.delayqueue.definitions import signedblobs

KEY = b"k" * 32
CONTENT = b'{"webhook":{"url":"https://hooks.example.com/"}}'


def test_equal_contents_have_equal_digests_only_in_one_namespace():
    sealed = signedblobs.SignedBlobs(KEY)
    assert sealed.digest("a", CONTENT) == signedblobs.SignedBlobs(KEY).digest("a", CONTENT)
    assert sealed.digest("a", CONTENT) != sealed.digest("b", CONTENT)
    assert len(sealed.digest("a", CONTENT)) == 24


@pytest.mark.parametrize("length", [16, 32, 63, 64, 65, 200])
def test_a_mac_is_the_hmac_of_the_standard_library(length):
    key = bytes(range(length))
    expected = hmac.digest(key, b"shop\n" + CONTENT, "sha256")
    assert signedblobs.SignedBlobs(key).mac("shop", CONTENT) == expected


def test_namespace_and_content_cannot_be_shifted_into_each_other():
    sealed = signedblobs.SignedBlobs(KEY)
    # a namespace never holds a line feed, so the first one ends it
    assert sealed.digest("ab", b"c") != sealed.digest("a", b"bc")


@pytest.mark.parametrize(
    "value",
    [
        b"",
        b"\x01",
        signedblobs.SignedBlobs(b"x" * 32).pack(CONTENT),
        signedblobs.SignedBlobs(KEY).pack(b"another content"),
        signedblobs.SignedBlobs(KEY).pack(CONTENT)[:-3],
        signedblobs.SignedBlobs(KEY).pack(CONTENT)[:5] + b"not deflated",
        b"\x02" + signedblobs.SignedBlobs(KEY).pack(CONTENT)[1:],
    ],
    ids=["empty", "format only", "other key", "other content", "cut", "garbage", "other format"],
)
def test_anything_else_is_refused(value):
    sealed = signedblobs.SignedBlobs(KEY)
    with pytest.raises(queue_errors.BlobForged):
        sealed.unpack("default", sealed.digest("default", CONTENT), value)


def test_a_bomb_is_not_inflated():
    sealed = signedblobs.SignedBlobs(KEY)
    bomb = sealed.pack(b"")[:5] + zlib.compress(bytes(signedblobs.CONTENT_LIMIT + 1), 9)
    with pytest.raises(queue_errors.BlobForged):
        sealed.unpack("default", "digest", bomb)


def test_a_short_key_is_a_wrong_setting():
    with pytest.raises(errors.InvalidSetting):
        signedblobs.SignedBlobs(b"short")
