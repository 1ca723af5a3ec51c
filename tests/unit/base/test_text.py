import pytest

from tilework.base import text


def test_nothing_near_is_none() -> None:
    assert text.nearest("zzz", ["cache_dir"]) is None


@pytest.mark.parametrize(
    ("size", "words"),
    [(0, "0 B"), (1023, "1023 B"), (1024, "1 KiB"), (3 << 30, "3 GiB"), (5 << 40, "5 TiB")],
)
def test_sizes_read_in_binary_units(size: int, words: str) -> None:
    assert text.format_bytes(size) == words
    assert text.parse_bytes(words) == size


@pytest.mark.parametrize(
    ("words", "size"),
    [("1_000", 1000), ("1.5k", 1500), ("2GB", 2 * 10**9), ("-1", None), ("", None)],
)
def test_sizes_are_parsed(words: str, size: int | None) -> None:
    assert text.parse_bytes(words) == size


@pytest.mark.parametrize(
    ("seconds", "words"), [(0.0, "0 ns"), (0.0005, "500 us"), (0.99999, "1 s"), (90, "90 s")]
)
def test_durations(seconds: float, words: str) -> None:
    assert text.format_seconds(seconds) == words


def test_plural_and_lists() -> None:
    assert (text.plural(1, "kernel"), text.plural(0, "kernel")) == ("1 kernel", "0 kernels")
    assert [text.join_names(n) for n in ([], ["a"], ["a", "b", "c"])] == ["", "a", "a, b or c"]
