"""Loops of equal steps do not depend on what a user has set for captures."""

import numpy as np

from tilework import Tensor
from tilework.base import settings


def test_a_setting_for_captures_refuses_no_shape() -> None:
    with settings.override(captures=1):
        for count in (1, 2, 1, 3):
            a = np.random.default_rng(count).standard_normal((count, 6, 6)).astype(np.float32)
            q, r = (each.numpy() for each in Tensor(a).qr())
            np.testing.assert_allclose(q @ r, a, atol=1e-5)


def test_a_class_of_a_users_gets_its_own_results_and_others_theirs() -> None:
    class Named(Tensor):
        __slots__ = ()

    a = np.random.default_rng(0).standard_normal((7, 7)).astype(np.float32)
    for kind in (Named, Tensor, Named):
        assert type(kind(a).solve(kind(a))) is kind
