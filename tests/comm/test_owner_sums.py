"""What sums at owners of ranges cost at most."""

import pytest

from repro.comm import owner_sums


def test_the_bound_is_six_and_a_quarter_k_words() -> None:
    k = 10**7
    assert owner_sums.bound(64, 10**9, k, "pairs").bytes == pytest.approx(6.25 * 4 * k, rel=0.01)
