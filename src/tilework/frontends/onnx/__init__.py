"""ONNX models: read, checked and traced into tensors.

`load.py` turns a file into the frozen records of `graph.py`; `registry.py` holds one rule per
operator and version (the families lie in `ops/`); `evaluate.py` applies the rules to a graph, with
shapes and other small values kept on the host; `runner.py` keeps one capture per input signature.
"""
