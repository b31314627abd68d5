"""Settings are refused by the name of their variable, before anything is done with them."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scripts.cloud import prices, tpu_types
from scripts.cloud.errors import UsageError
from scripts.cloud.settings import Settings, is_remote, label


def settings(verb="pretrain", **variables):
    return Settings.from_environment({"USER": "me", **variables}, verb)


def test_what_is_not_given_has_the_usual_value():
    plain = settings(TPU_NAME="my-tpu", BUCKET="gs://my-bucket/", RUN="pretrain")
    assert (plain.tpu_type.name, plain.image) == ("v3-8", "tpu-vm-tf-2.15.1-se")
    assert plain.bucket == "gs://my-bucket" and plain.out == "gs://my-bucket/pretrain/out"
    assert not plain.on_demand and not plain.yes and plain.max_cost is None


@pytest.mark.parametrize(
    "variables",
    [
        {"TPU_NAME": "My TPU"},
        {"TPU_NAME": "a\nb"},
        {"CONTROL_VM": "$(touch hit)"},
        {"CONTROL_VM": "vm", "TPU_NAME": "my-tpu"},
        {"ZONE": "us-central1"},
        {"PROJECT": "my project"},
        {"BUCKET": "my-bucket"},
        {"BUCKET": "gs://my-bucket/folder"},
        {"RUN": "../other"},
        {"RUN": "a b"},
        {"SERVICE_ACCOUNT": "me"},
        {"MAX_HOURS": "two"},
        {"MAX_COST": "-1"},
        {"HANG_MINUTES": "0"},
        {"YES": "yes"},
        {"DELETE_DATA": "true"},
    ],
)
def test_a_value_that_cannot_be_used_is_refused_by_name(variables):
    with pytest.raises(UsageError) as error:
        settings(**variables)
    name, value = next(iter(variables.items()))
    assert name in str(error.value) and (repr(value) in str(error.value) or value in str(error.value))


@given(st.text())
def test_any_text_can_become_a_label(text):
    assert re.fullmatch(r"[a-z0-9_-]{0,63}", label(text))


def test_fine_tuning_is_called_after_its_task():
    assert settings("finetune", TASK="MRPC", RUN="pretrain").run == "mrpc"
    assert settings("status", TASK="MRPC").run == "mrpc"
    assert settings("finetune", TASK="MRPC", RUN="mine").run == "mine"
    assert settings("pretrain", TASK="MRPC").run == "pretrain"


def test_remote_is_a_name_of_a_machine():
    assert is_remote({"TPU_NAME": "my-tpu"}) and is_remote({"CONTROL_VM": "vm", "TPU_NAME": "grpc://10.0.0.2:8470"})
    for here in ({}, {"TPU_NAME": ""}, {"TPU_NAME": "local"}, {"TPU_NAME": "grpc://10.0.0.2:8470"}):
        assert not is_remote(here)


@pytest.mark.parametrize(
    ("name", "cores", "hosts", "image"),
    [
        ("v2-8", 8, 1, "tpu-vm-tf-2.15.1-se"),
        ("v3-32", 32, 4, "tpu-vm-tf-2.15.1-pod-se"),
        ("v4-8", 4, 1, "tpu-vm-tf-2.15.1-se"),
        ("v4-16", 8, 2, "tpu-vm-tf-2.15.1-pod-se"),
    ],
)
def test_a_type_says_how_many_cores_it_has(name, cores, hosts, image):
    kind = tpu_types.parse(name)
    assert (kind.cores, kind.hosts, kind.image) == (cores, hosts, image)


@pytest.mark.parametrize("name", ["v5litepod-8", "v5p-8", "v6e-8", "tpu7x-8", "v3-7", "v3", "gpu"])
def test_types_that_cannot_run_the_program_are_refused(name):
    with pytest.raises(UsageError, match="PJRT" if name[1] in "56" or "7x" in name else "v3-8"):
        settings(TPU_TYPE=name)


@pytest.mark.parametrize(
    ("image", "why"),
    [
        ("tpu-vm-tf-2.15.0-pjrt", "StreamExecutor"),
        ("tpu-vm-tf-2.17.1-se", "2.15"),
        ("tpu-ubuntu2204-base", "no TensorFlow"),
        ("tpu-vm-tf-2.15.1-pod-se", "one virtual machine"),
    ],
)
def test_images_that_cannot_run_the_program_are_refused(image, why):
    with pytest.raises(UsageError, match=why):
        settings(IMAGE=image)
    assert settings(IMAGE="tpu-vm-tf-2.15.0-se").image == "tpu-vm-tf-2.15.0-se"


def test_prices_go_by_chips_and_can_be_overridden():
    assert prices.per_hour(settings(TPU_TYPE="v3-8", ON_DEMAND="1")) == 8.0
    assert prices.per_hour(settings(TPU_TYPE="v3-8")) == pytest.approx(2.4)
    assert prices.per_hour(settings(TPU_TYPE="v2-32", ON_DEMAND="1")) == 24.0
    assert prices.per_hour(settings(PRICE_PER_HOUR="0.5")) == 0.5
