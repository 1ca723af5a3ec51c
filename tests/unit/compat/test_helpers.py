"""Helpers that programs import from tinygrad give what tinygrad's own give."""

from __future__ import annotations

from typing import Any

import pytest
import tinygrad.dtype as their_dtype
import tinygrad.helpers as theirs

from tilework import Tensor, errors
from tilework.compat.tinygrad import dtype as our_dtype
from tilework.compat.tinygrad import flags, progress
from tilework.compat.tinygrad import helpers as ours

CALLS: list[tuple[str, tuple[Any, ...]]] = [
    ("prod", ((2, 3, 4),)), ("prod", ((),)), ("dedup", ([3, 1, 3, 2, 1],)),
    ("argfix", (1, 2)), ("argfix", ((1, 2),)), ("argfix", ()), ("argsort", ((3, 1, 2),)),
    ("argsort", ([3, 1, 2],)), ("all_same", ([1, 1],)), ("all_same", ([],)),
    ("all_int", ((1, 2.0),)), ("get_shape", ([[1, 2], [3, 4]],)), ("get_shape", ([],)),
    ("flatten", ([[1], [2, 3]],)), ("fully_flatten", ([1, [2, [3, "ab"]]],)),
    ("flat_to_grouped", ((1, 2, 3, 4),)), ("make_tuple", (3, 2)), ("make_tuple", ([1, 2], 2)),
    ("to_tuple", (3,)), ("to_tuple", ((3,),)), ("merge_dicts", ([{"a": 1}, {"b": 2}, {"a": 1}],)),
    ("get_child", ({"a": [1, {"b": 5}]}, "a.1.b")), ("strides_for_shape", ((2, 1, 3),)),
    ("strides_for_shape", ((),)), ("ceildiv", (7, 2)), ("ceildiv", (-7, 2)), ("round_up", (10, 8)),
    ("round_up", (16, 8)), ("round_down", (10, 8)), ("next_power2", (0,)), ("next_power2", (5,)),
    ("next_power2", (8,)), ("cdiv", (-7, 2)), ("cdiv", (7, -2)), ("cdiv", (1, 0)),
    ("cmod", (-7, 2)), ("lo32", (2**40 + 5,)), ("hi32", (2**40 + 5,)), ("data64", (2**40 + 5,)),
    ("data64_le", (2**40 + 5,)), ("getbits", (0b110100, 2, 4)), ("i2u", (8, -1)), ("i2u", (8, 5)),
    ("polyN", (2.0, [1.0, 2.0, 3.0])), ("colored", ("x", "red")), ("colored", ("x", "GREEN")),
    ("colored", ("x", None)), ("colored", ("x", "blue", True)), ("colorize_float", (0.5,)),
    ("colorize_float", (2.0,)), ("ansistrip", ("\x1b[31mred\x1b[0m",)),
    ("ansilen", ("\x1b[31mred\x1b[0m",)), ("ansipad", ("\x1b[31mred\x1b[0m", 5)),
    ("time_to_str", (12.0,)), ("time_to_str", (0.012,)), ("time_to_str", (2e-5,)),
    ("size_to_str", (5,)), ("size_to_str", (3 << 20,)), ("pluralize", ("kernel", 1)),
    ("pluralize", ("kernel", 2)), ("strip_parens", ("(a+b)",)), ("strip_parens", ("(a)+(b)",)),
    ("getenv", ("A_NAME_THAT_IS_NOT_SET", 3)),
]  # fmt: skip


@pytest.mark.parametrize(("name", "arguments"), CALLS)
def test_a_helper_gives_what_that_of_tinygrad_gives(name: str, arguments: Any) -> None:
    assert getattr(ours, name)(*arguments) == getattr(theirs, name)(*arguments)


def test_partition_splits_by_a_condition() -> None:
    assert ours.partition(range(5), lambda n: n > 2) == theirs.partition(range(5), lambda n: n > 2)


@pytest.mark.parametrize("first", ["bool", "int8", "uint8", "int32", "uint64", "half", "bfloat16"])
@pytest.mark.parametrize("second", ["uint8", "int16", "int64", "float32", "double", "fp8e5m2"])
def test_dtypes_are_promoted_as_there(first: str, second: str) -> None:
    def name(space: Any, found: Any) -> str:
        return next(
            key for key in ("bool", "int8", "uint8", "int16", "int32", "int64", "uint64", "float16",
                            "bfloat16", "float32", "float64", "fp8e5m2")
            if getattr(space, key) is found
        )  # fmt: skip

    want = their_dtype.least_upper_dtype(
        getattr(their_dtype.dtypes, first), getattr(their_dtype.dtypes, second)
    )
    got = our_dtype.least_upper_dtype(our_dtype.to_dtype(first), our_dtype.to_dtype(second))
    if {first, second} == {"uint64", "int16"} or {first, second} == {"uint64", "int64"}:
        assert got.is_float  # there the float is eight bits wide, which holds no such integers
        return
    assert name(our_dtype.dtypes, got) == name(their_dtype.dtypes, want)


def test_questions_about_dtypes_have_the_answers_of_tinygrad() -> None:
    for name in ("bool", "int8", "uint32", "half", "bfloat16", "float64", "fp8e4m3"):
        own, other = getattr(our_dtype.dtypes, name), getattr(their_dtype.dtypes, name)
        for question in ("is_float", "is_int", "is_unsigned", "is_bool"):
            answer = getattr(our_dtype.dtypes, question)(own)
            assert answer == getattr(their_dtype.dtypes, question)(other)
        if own.is_float:
            assert our_dtype.dtypes.finfo(own) == their_dtype.dtypes.finfo(other)
        assert (own.min, own.max, own.bitsize) == (other.min, other.max, other.bitsize)
        assert our_dtype.dtypes.max(own) == other.max
        assert our_dtype.dtypes.min(own) == other.min


# --- flags -----------------------------------------------------------------------------------


def test_each_flag_of_tinygrad_is_there_with_its_default() -> None:
    known = {
        name: item for name, item in vars(theirs).items() if isinstance(item, theirs.ContextVar)
    }
    missing = [name for name in known if not hasattr(ours, name)]
    assert missing == []


def test_context_changes_flags_for_a_block_and_nests() -> None:
    debug = flags.FLAGS["DEBUG"]
    before = debug.value
    with flags.Context(DEBUG=5):
        assert debug >= 5
        with flags.Context(DEBUG=7, BEAM=1):
            assert debug == 7
        assert debug.value == 5
    assert debug.value == before


def test_the_flag_training_is_that_of_tensors() -> None:
    assert not flags.FLAGS["TRAINING"]
    with flags.Context(TRAINING=1):
        assert Tensor.training is True
    with Tensor.train():
        assert flags.FLAGS["TRAINING"].value == 1
    assert Tensor.training is False


def test_a_flag_that_is_not_known_is_refused_by_name() -> None:
    with pytest.raises(errors.UserError, match="no such flag") as caught, flags.Context(DEBUGG=1):
        pass
    assert caught.value.got == "DEBUGG"


def test_another_default_dtype_is_refused_and_not_ignored() -> None:
    with (
        pytest.raises(errors.UnsupportedError, match="DEFAULT_FLOAT"),
        flags.Context(DEFAULT_FLOAT="float16"),
    ):
        pass


def test_a_variable_of_the_environment_has_the_type_of_the_default(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("A_PROGRAM_READS_THIS", "12")
    assert flags.getenv("A_PROGRAM_READS_THIS") == 12
    assert flags.getenv("A_PROGRAM_READS_THIS", "") == "12"
    assert flags.getenv("A_PROGRAM_READS_THIS", 0.5) == 12.0


# --- terminal --------------------------------------------------------------------------------


def test_timing_writes_its_prefix_and_what_on_exit_makes(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with progress.Timing("took ", lambda ns: f" of {ns >= 0}"):
        pass
    text = capsys.readouterr().out
    assert text.startswith("took ")
    assert text.endswith(" ms of True\n")


def test_a_progress_bar_gives_all_items_and_ends_its_line(
    capsys: pytest.CaptureFixture[str],
) -> None:
    bar = progress.trange(3, desc="step", unit_scale=True)
    assert list(bar) == [0, 1, 2]
    text = capsys.readouterr().err
    assert text.startswith("\rstep:   0%|")
    assert text.endswith("\n")
    assert "100%|" in text


def test_a_progress_bar_that_is_disabled_writes_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    for _ in progress.tqdm([1, 2], disable=True):
        pass
    assert capsys.readouterr().err == ""
