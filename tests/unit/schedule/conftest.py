"""Lets the tests of this folder share `schedule_builders`, and run schedules."""

import sys
from pathlib import Path

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))
sys.path.insert(0, str(HERE.parents[1] / "property" / "schedule"))
