"""Fixtures shared by all tests."""

import pathlib

import pytest

SHARED_DATA = pathlib.Path(__file__).resolve().parents[2] / "shared" / "data"


@pytest.fixture(scope="session")
def shared_data():
    """Folder of large reference data kept outside the project; tests that need it are skipped without it."""
    if not SHARED_DATA.is_dir():
        pytest.skip("needs the reference data in ../shared/data, which is not part of the project")
    return SHARED_DATA
