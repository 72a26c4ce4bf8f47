"""A recording gets copied; what looks like a secret does not go with it."""

import pytest

from fuelline.record.launch import hide_secrets


@pytest.mark.parametrize(
    ("command", "shown"),
    [
        ("train.py --api-key x --epochs 2", "train.py --api-key *** --epochs 2"),
        ("train.py --token=y --lr=1", "train.py --token=*** --lr=1"),
        ("train.py --WANDB_API_KEY=abc", "train.py --WANDB_API_KEY=***"),
        ("train.py -password p", "train.py -password ***"),
        ("train.py --secret a --token b", "train.py --secret *** --token ***"),
        ("train.py --tokenizer-path", "train.py --tokenizer-path"),
        ("train.py --keyed", "train.py --keyed"),
        ("train.py monkey", "train.py monkey"),
        ("env HF_TOKEN=abc python train.py", "env HF_TOKEN=*** python train.py"),
        ("env AWS_SECRET_ACCESS_KEY=abc x", "env AWS_SECRET_ACCESS_KEY=*** x"),
        ("train.py s3://user:pw@host/x", "train.py s3://***@host/x"),
    ],
)
def test_values_of_secret_options_are_hidden(command: str, shown: str) -> None:
    assert " ".join(hide_secrets(command.split())) == shown


def test_a_secret_that_looks_like_an_option_is_hidden_too() -> None:
    assert hide_secrets(["--token", "--x", "rest"]) == ["--token", "***", "rest"]
