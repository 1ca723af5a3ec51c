"""Modules of the standard library that are imported late."""

import subprocess
import sys


def test_a_late_module_is_imported_at_its_first_use() -> None:
    text = (
        "import sys; from tilework.base.late import late_module\n"
        "late = late_module('colorsys'); before = 'colorsys' in sys.modules\n"
        "late.rgb_to_hls; print(before, 'colorsys' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", text], capture_output=True, check=True)
    assert done.stdout.split() == [b"False", b"True"]


def test_a_name_that_the_module_lacks_is_an_attribute_error() -> None:
    from tilework.base.late import late_module

    assert not hasattr(late_module("colorsys"), "no_such_colour")
