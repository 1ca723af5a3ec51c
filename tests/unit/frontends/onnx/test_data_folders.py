"""Whole models that the `onnx` package ships, with inputs and outputs: small and large ones.

A tenth of the small ones runs at each push, all of them and the large ones in the slow suite.
"""

import zlib
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.backend.test
import onnxruntime
import pytest
from onnx import numpy_helper

from tilework.base.errors import UnsupportedError
from tilework.onnx import OnnxRunner

SHARE = 10
DATA = Path(onnx.backend.test.__file__).parent / "data"
FOLDERS = ("simple", "pytorch-converted", "pytorch-operator")
LARGE = sorted(path.name for path in (DATA / "light").glob("*.onnx"))
# Models of operators that tilework does not have, which it says: on text, and of training.
REFUSED = {
    path.name: "Gradient" if "gradient" in path.name else "StringNormalizer"
    for path in (DATA / "simple").iterdir()
    if "gradient" in path.name or "strnorm" in path.name
}


def models() -> list[Any]:
    """The folders of models to run; nine of ten of the many are marked as slow."""
    rows = []
    for folder in FOLDERS:
        for path in sorted((DATA / folder).iterdir()):
            if path.name in REFUSED:
                continue
            is_slow = folder != "simple" and zlib.crc32(path.name.encode()) % SHARE != 0
            marks = [pytest.mark.slow] if is_slow else []
            rows.append(pytest.param(f"{folder}/{path.name}", marks=marks))
    return rows


def read(path: Path, info: Any) -> Any:
    """The values of one input or output."""
    text = path.read_bytes()
    if info.type.HasField("sequence_type"):
        sequence = onnx.SequenceProto()
        sequence.ParseFromString(text)
        return [numpy_helper.to_array(item) for item in sequence.tensor_values]
    tensor = onnx.TensorProto()
    tensor.ParseFromString(text)
    return numpy_helper.to_array(tensor)


def inputs_of(model: Any) -> list[Any]:
    """The inputs that are not weights."""
    weights = {one.name for one in model.graph.initializer}
    return [info for info in model.graph.input if info.name not in weights]


def check(found: Any, wanted: Any) -> None:
    """Compare one output."""
    if isinstance(wanted, list):
        assert len(found) == len(wanted)
        for one, other in zip(found, wanted, strict=True):
            check(one, other)
        return
    array = found.numpy()
    assert array.dtype == wanted.dtype
    assert array.shape == wanted.shape
    np.testing.assert_allclose(array, wanted, rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize("name", models())
def test_a_model_gives_what_its_folder_says(name: str) -> None:
    path = DATA / name / "model.onnx"
    model, runner = onnx.load(path), OnnxRunner(path)
    sets = sorted(path.parent.glob("test_data_set_*"))
    assert sets
    for folder in sets:
        given = {
            info.name: read(folder / f"input_{at}.pb", info)
            for at, info in enumerate(inputs_of(model))
        }
        found = list(runner(given).values())
        for at, info in enumerate(model.graph.output):
            check(found[at], read(folder / f"output_{at}.pb", info))


@pytest.mark.parametrize("name", sorted(REFUSED))
def test_a_model_on_text_or_of_training_is_refused_by_the_name_of_its_operator(name: str) -> None:
    with pytest.raises(UnsupportedError) as caught:
        OnnxRunner(DATA / "simple" / name / "model.onnx")
    assert REFUSED[name] in str(caught.value)


@pytest.mark.slow
@pytest.mark.parametrize("name", LARGE)
def test_a_large_model_gives_what_onnxruntime_gives(name: str) -> None:
    path = DATA / "light" / name
    given = {}
    for info in inputs_of(onnx.load(path)):
        shape = [size.dim_value or 1 for size in info.type.tensor_type.shape.dim]
        count = int(np.prod(shape))
        given[info.name] = (np.arange(count).reshape(shape) / count).astype(np.float32)
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    found = list(OnnxRunner(path)(given).values())
    for ours, theirs in zip(found, session.run(None, given), strict=True):
        array = ours.numpy()  # type: ignore[union-attr]
        assert array.shape == theirs.shape
        np.testing.assert_allclose(array, theirs, rtol=1e-3, atol=1e-5)
