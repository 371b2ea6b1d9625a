"""Entropy, real and simulated: as many bytes as asked for, and not the same ones twice."""

import pytest

from tidelog.base.ports import Entropy
from tidelog.world.real.entropy import RealEntropy
from tidelog.world.sim.entropy import SimEntropy


@pytest.mark.parametrize("entropy", [RealEntropy(), SimEntropy(3)], ids=["real", "sim"])
def test_random_bytes_are_as_many_as_asked_for_and_differ(entropy: Entropy) -> None:
    assert [len(entropy.random_bytes(count)) for count in (0, 1, 16)] == [0, 1, 16]
    assert entropy.random_bytes(16) != entropy.random_bytes(16)


def test_simulated_entropy_repeats_with_its_seed() -> None:
    assert SimEntropy(3).random_bytes(16) == SimEntropy(3).random_bytes(16)
    assert SimEntropy(3).random_bytes(16) != SimEntropy(4).random_bytes(16)
