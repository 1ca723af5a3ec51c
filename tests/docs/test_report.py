"""The table of all rows: medians of undisturbed rounds, and its place on the page."""

from benchmarks import report

RUNS = [
    {"peer": "tilework", "workload": "gemm_256", "threads": 2, "median": 2e-4, "disturbed": 0.0},
    {"peer": "tilework", "workload": "gemm_256", "threads": 2, "median": 9e-4, "disturbed": 0.9},
    {"peer": "ort", "workload": "gemm_256", "threads": 2, "median": 3e-4, "disturbed": 0.9},
    {"peer": "numpy", "workload": "gemm_256", "threads": 2, "median": 1e-4, "disturbed": 0.0},
    {"peer": "numpy", "workload": "gemm_256", "threads": 2, "failed": "it did"},
]
LIMITS = {"2": {"fma": 200.0, "triad": 30.0, "read": 40.0}}


def results(**changed: object) -> dict[str, object]:
    runs = [{"ok": run["peer"] != "numpy", **run, **changed} for run in RUNS]
    return {"runs": runs, "limits": LIMITS}


def test_rounds_that_others_disturbed_and_wrong_results_do_not_count() -> None:
    row = report.render(results()).splitlines()[-1]
    assert row == "| gemm_256 | 0.2 | 0.3~, ort | 1.50 | 0.0336 GFLOP | 0.168 | 84% |"


def test_a_row_without_a_peer_is_left_out() -> None:
    assert len(report.render(results(peer="tilework")).splitlines()) == 2


def test_the_table_stands_between_its_marks_on_the_page() -> None:
    page = report.put(report.PAGE.read_text(), "| a table |")
    assert page.count("| a table |") == 1
    assert report.put(page, "| a table |") == page
