"""Tensors in forked children."""

from __future__ import annotations

import os
import signal
import threading

import numpy as np
import pytest

from tilework import Tensor


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_a_child_computes_though_another_thread_was_computing() -> None:
    is_over = threading.Event()

    def compute() -> None:
        while not is_over.is_set():
            (Tensor(np.ones(300, np.float32)) * 2).sum().item()

    thread = threading.Thread(target=compute)
    thread.start()
    try:
        for size in range(50, 54):
            pid = os.fork()
            if pid == 0:
                signal.alarm(60)
                x = Tensor(np.ones((size, 40), np.float32))
                os._exit(0 if (x @ x.T).sum().item() == size * size * 40 else 1)
            assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    finally:
        is_over.set()
        thread.join()
