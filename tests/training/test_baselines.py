"""The losses of guessing, on counts whose entropies are known."""

import math

import numpy as np
import pytest

from bert.training import baselines


def test_even_frequencies_are_as_good_as_a_uniform_guess():
    losses = baselines.masked_lm_losses(np.full(8, 1000), np.full(8, 3))
    assert losses["uniform_loss"] == pytest.approx(math.log(8))
    assert losses["token_frequency_loss"] == pytest.approx(math.log(8))


def test_known_frequencies_give_their_cross_entropy():
    counts = np.array([3 * 10**6, 10**6])
    entropy = -(0.75 * math.log(0.75) + 0.25 * math.log(0.25))
    losses = baselines.masked_lm_losses(counts, np.array([3, 1]))
    assert losses["token_frequency_loss"] == pytest.approx(entropy, rel=1e-5)


def test_a_token_never_seen_in_training_has_a_finite_loss():
    losses = baselines.masked_lm_losses(np.array([10, 0]), np.array([0, 1]))
    assert losses["token_frequency_loss"] == pytest.approx(math.log(12))
