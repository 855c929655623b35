"""Arrays of one element that convert to numbers."""

from __future__ import annotations

import pickle

import numpy as np
import pytest

from lab.task.tf1.one_element import one_element


@pytest.mark.parametrize("shape", [(1,), (1, 1), (1, 1, 1)])
def test_an_array_of_one_element_is_a_number(shape: tuple[int, ...]) -> None:
    value = one_element(np.full(shape, 2.5, np.float32))
    assert f"{float(value)} {int(value)}" == "2.5 2"
    assert "%.1f %d" % (value, value) == "2.5 2"  # noqa: UP031  (the programs' own form)
    assert (value.shape, value.dtype) == (shape, np.float32)
    assert "%.1f" % (value + value) == "5.0"
    assert pickle.loads(pickle.dumps(value)).item() == 2.5  # noqa: S301


def test_no_other_array_changes() -> None:
    for value in (np.zeros(2), np.float32(1), np.zeros(()), np.array([b"x"], object), 5, [1.0]):
        assert one_element(value) is value
    with pytest.raises((TypeError, ValueError)):
        float(one_element(np.zeros(2)))
