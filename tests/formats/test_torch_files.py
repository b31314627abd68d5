"""Files that PyTorch 2.13 wrote, read without it; and what is refused."""

import pathlib

import numpy as np
import pytest

from bert.errors import InputError
from bert.formats import torch_files

GOLDEN = pathlib.Path(__file__).parent / "golden"
# What was saved: a matrix and a part of it that share memory, all dtypes, a parameter, a scalar, nothing.
TENSORS = {
    "transposed": [[0, 2, 4], [1, 3, 5]],
    "part": [[2, 3], [4, 5]],
    "half": [0.5],
    "bfloat": [1.5],
    "integers": [0, 1, 2],
    "parameter": [2],
    "scalar": 3.5,
    "empty": np.zeros((0, 3)),
}


def read(path):
    with open(path, "rb") as f:
        return torch_files.read(str(path), f)


@pytest.mark.parametrize("name", ["tensors.bin", "tensors_before_1.6.bin"])
def test_both_containers(name):
    found = read(GOLDEN / name)
    assert found.keys() == TENSORS.keys()
    for key, value in TENSORS.items():
        np.testing.assert_array_equal(found[key].astype(np.float32), np.asarray(value, np.float32), err_msg=key)
        assert found[key].shape == np.shape(value)


def test_nothing_in_a_file_is_run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InputError, match=r"calls_a_function\.bin: it has a posix\.system in it: only a dictionary of"):
        read(GOLDEN / "calls_a_function.bin")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("name", ["tensors.bin", "tensors_before_1.6.bin"])
def test_damaged_files_are_told(tmp_path, name):
    content = (GOLDEN / name).read_bytes()
    rng = np.random.default_rng(0)
    refused = 0
    for i in range(100):
        damaged = bytearray(content)
        if i % 2:
            damaged = damaged[: rng.integers(len(content))]
        else:
            damaged[rng.integers(len(content) // 2)] ^= 1 << int(rng.integers(8))
        (tmp_path / "x.bin").write_bytes(damaged)
        try:
            read(tmp_path / "x.bin")
        except InputError as e:
            refused += 1
            assert "x.bin" in str(e)
    assert refused > 50
