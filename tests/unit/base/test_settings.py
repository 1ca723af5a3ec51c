import subprocess
import sys
import threading
from dataclasses import FrozenInstanceError, fields
from pathlib import Path

import pytest

from tilework.base import settings, trace
from tilework.base.cores import available_cores
from tilework.base.errors import SettingsError, TileworkWarning
from tilework.base.settings import Affects, Settings


def test_defaults_are_right_by_default() -> None:
    default = Settings()
    assert (default.fp_mode, default.allow_tf32, default.check_index) == ("strict", False, True)


def test_settings_are_immutable() -> None:
    with pytest.raises(FrozenInstanceError):
        Settings().dev = "NULL"  # type: ignore[misc]


def test_override_lasts_as_long_as_its_block() -> None:
    with settings.override(captures=3):
        assert settings.current().captures == 3
    assert settings.current().captures == 8


def test_override_nests() -> None:
    with settings.override(captures=3), settings.override(log_level=1):
        assert (settings.current().captures, settings.current().log_level) == (3, 1)


def test_override_ends_when_the_block_raises() -> None:
    with pytest.raises(KeyError), settings.override(captures=3):
        raise KeyError
    assert settings.current().captures == 8


def test_override_does_not_reach_other_threads() -> None:
    seen: list[int] = []
    with settings.override(captures=3):
        thread = threading.Thread(target=lambda: seen.append(settings.current().captures))
        thread.start()
        thread.join()
    assert seen == [8]


def test_carry_takes_an_override_to_another_thread() -> None:
    seen: list[int] = []
    with settings.override(captures=3):
        job = settings.carry(lambda: seen.append(settings.current().captures))
    thread = threading.Thread(target=job)
    thread.start()
    thread.join()
    assert seen == [3]


def test_an_unknown_name_is_refused_with_the_nearest() -> None:
    with (
        pytest.raises(SettingsError, match=r"(?s)got: capture\n.*try: `captures`"),
        settings.override(capture=3),
    ):
        pass


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("captures", 0, "at least 1"),
        ("captures", "many", "an integer"),
        ("captures", True, "an integer"),
        ("captures", 1.5, "an integer"),
        ("log_level", 5, "at most 4"),
        ("num_threads", "-1", "at least 0"),
        ("fp_mode", "loose", "strict, contract or fast"),
        ("verify", None, "off, stage or pass"),
        ("allow_tf32", "perhaps", "1 or 0"),
        ("allow_tf32", 2, "1 or 0"),
        ("memory_limit", "2 parsecs", "2 GiB"),
        ("dev", "", "text"),
        ("cache_dir", 7, "a folder"),
        ("cache_dir", "a\0b", "a folder"),
    ],
)
def test_a_bad_value_is_refused(name: str, value: object, words: str) -> None:
    with pytest.raises(SettingsError, match=words), settings.override(**{name: value}):
        pass


def test_the_message_names_the_setting_and_where_the_value_came_from() -> None:
    with pytest.raises(SettingsError) as caught:
        settings.load({"TILEWORK_CAPTURES": "x", "HOME": "/h"})
    assert str(caught.value).splitlines()[:2] == [
        "settings: `captures` cannot take this value",
        "  got: 'x' from the variable TILEWORK_CAPTURES",
    ]


@pytest.mark.parametrize(
    ("text", "value"),
    [("1", True), ("true", True), ("ON", True), ("0", False), ("no", False), ("", False)],
)
def test_truth_is_read_in_the_usual_spellings(text: str, value: bool) -> None:
    assert settings.load({"TILEWORK_DETERMINISTIC": text}).deterministic is value


def test_sizes_are_read_with_units() -> None:
    assert settings.load({"TILEWORK_MEMORY_LIMIT": "2GiB"}).memory_limit == 2 << 30


def test_dev_is_short_for_tilework_dev() -> None:
    assert settings.load({"DEV": "NULL"}).dev == "NULL"


def test_tilework_dev_wins_over_dev() -> None:
    assert settings.load({"DEV": "NULL", "TILEWORK_DEV": "PYTHON"}).dev == "PYTHON"


def test_an_empty_dev_is_no_choice() -> None:
    assert settings.load({"DEV": ""}).dev == "CPU"


def test_an_unknown_variable_warns_with_the_nearest_name() -> None:
    with pytest.warns(TileworkWarning, match="did you mean TILEWORK_FP_MODE"):
        settings.load({"TILEWORK_FP_MOD": "fast"})


def test_a_variable_wins_over_the_file(tmp_path: Path) -> None:
    (tmp_path / "tilework.toml").write_text("captures = 3\nlog_level = 2\n")
    found = settings.load({"TILEWORK_CAPTURES": "4"}, tmp_path)
    assert (found.captures, found.log_level) == (4, 2)


def test_groups_of_the_file_are_flattened(tmp_path: Path) -> None:
    (tmp_path / "tilework.toml").write_text('[codegen]\nfp_mode = "fast"\n')
    assert settings.load({}, tmp_path).fp_mode == "fast"


@pytest.mark.parametrize("text", ["captures = ", "capture = 3", "captures = 0", "\xff"])
def test_a_bad_file_is_refused(text: str, tmp_path: Path) -> None:
    (tmp_path / "tilework.toml").write_text(text, encoding="latin-1")
    with pytest.raises(SettingsError):
        settings.load({}, tmp_path)


def test_the_cache_lies_below_xdg_cache_home() -> None:
    assert settings.load({"XDG_CACHE_HOME": "/x"}).cache_dir == Path("/x/tilework")


def test_an_empty_cache_dir_turns_the_cache_off() -> None:
    assert settings.load({"TILEWORK_CACHE_DIR": ""}).cache_dir is None


def test_without_a_home_there_is_no_cache_and_one_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_home() -> Path:
        raise RuntimeError

    monkeypatch.setattr(Path, "home", no_home)
    assert settings.load({}).cache_dir is None
    assert [event.source for event in trace.recent_warnings()] == ["settings"]


def test_key_holds_exactly_what_affects_the_cache() -> None:
    names = [name for name, _ in Settings().key(Affects.CODE)]
    assert names == ["fp_mode", "allow_tf32", "keep_subnormals", "deterministic"]


@pytest.mark.parametrize("name", ["log_level", "verify", "show_internal_frames", "dev"])
def test_a_debug_switch_is_in_no_key(name: str) -> None:
    everything = Affects.CODE | Affects.SCHEDULE | Affects.RUNTIME
    assert name not in dict(Settings().key(everything))


def test_GEN_04_a_changed_setting_that_affects_code_changes_the_key() -> None:
    with settings.override(fp_mode="fast") as fast:
        assert fast.key(Affects.CODE) != Settings().key(Affects.CODE)


def test_plain_data_round_trips() -> None:
    chosen = Settings(cache_dir=Path("/x"), captures=2, fp_mode="fast")
    assert settings.from_plain(chosen.to_plain()) == chosen


def test_each_setting_is_documented() -> None:
    assert [row.name for row in fields(Settings) if not row.metadata["doc"]] == []


def test_the_reference_has_a_row_for_each_setting() -> None:
    assert len(settings.describe().splitlines()) == 2 + len(fields(Settings))


def test_a_given_count_is_taken_as_it_is() -> None:
    chosen = Settings(num_threads=3, compile_workers=2)
    assert (chosen.thread_count(), chosen.worker_count()) == (3, 2)


def test_the_environment_is_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    settings.install(None)
    monkeypatch.setenv("TILEWORK_CAPTURES", "5")
    first = settings.current()
    monkeypatch.setenv("TILEWORK_CAPTURES", "6")
    assert (settings.current() is first, first.captures) == (True, 5)


def test_a_home_that_does_not_exist_is_named() -> None:
    with pytest.raises(SettingsError, match="a home that exists"):
        settings.load({"TILEWORK_CACHE_DIR": "~no-such-user-here/x"})


def test_thread_count_zero_means_the_cores_of_the_affinity_mask() -> None:
    assert Settings().thread_count() == available_cores()


def test_importing_reads_nothing_and_O_changes_nothing() -> None:
    script = (
        "from tilework.base import settings\n"
        "assert False, 'asserts are off'\n"
        "try: settings.current()\n"
        "except settings.SettingsError as error: print(error.message)\n"
    )
    done = subprocess.run(
        [sys.executable, "-O", "-c", script],
        env={"TILEWORK_CAPTURES": "none"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == "settings: `captures` cannot take this value\n"
