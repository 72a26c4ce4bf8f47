"""Feeds and ceilings as they are shown: every number that was asked for, and nothing made up."""

import msgspec
import pytest

from fuelline.report.diagnosis.feeding import write_feed, write_probe
from fuelline.report.document import Document
from fuelline.report.renderers.markdown import render_markdown
from fuelline.schema.diagnosis.ceilings import Ceiling, Probe
from fuelline.schema.diagnosis.feeding import FedChip, Feed, SeenLoader
from fuelline.schema.readings import Missing, Reading
from tests.golden.freeze import make_diagnoses

STARVED = make_diagnoses()["starved"]
LOADER = SeenLoader(
    dataset="Photos", sampler="Random", batch_size=64, workers=1, random=True, grad=True
)
FULL_SPEED = Feed(
    samples_per_s=Reading(value=1234.0, unit="count/s", low=1200.0, high=1300.0),
    utilisation=Missing(reason="no accelerator was emulated"),
    batch_seconds=Reading(value=0.05, unit="s"),
    batches=200,
    samples=12_800,
    seconds=10.0,
    epochs=0,
    first_batch_seconds=2.0,
    number=1,
    seen=[LOADER],
    verdict=STARVED.verdict,
    findings=STARVED.findings,
)


def words(document: Document) -> str:
    """The text without Markdown's escapes."""
    return render_markdown(document).replace("\\", "")


def shown(feed: Feed) -> str:
    return words(write_feed(feed))


def with_(**changes: object) -> str:
    return shown(msgspec.structs.replace(FULL_SPEED, **changes))


def test_at_full_speed_the_rate_is_shown_with_its_interval_and_what_it_would_feed() -> None:
    text = shown(FULL_SPEED)
    assert "Photos, batch 64, 1 worker: 1,234 (1,200 to 1,300) samples/s" in text
    assert "200 batches, 12,800 samples" in text
    assert "50.0 ms or more per batch" in text
    assert STARVED.verdict.sentence in text
    assert STARVED.findings[0].remedies[0].setting in text
    assert "--workload" in text


def test_what_is_not_known_is_not_shown_as_a_number() -> None:
    unknown = Missing(reason="too few batches were taken")
    text = with_(samples_per_s=unknown, batch_seconds=unknown)
    assert "unknown (too few batches were taken)" in text
    assert "or more per batch" not in text
    assert "too few batches for an interval" in with_(
        samples_per_s=Reading(value=1234.0, unit="count/s")
    )


@pytest.mark.parametrize(("busy", "is_fed"), [(0.95, True), (0.62, False)])
def test_an_emulated_accelerator_is_judged_by_the_mark(busy: float, is_fed: bool) -> None:
    text = with_(
        utilisation=Reading(value=busy, unit="frac"), is_fed=is_fed, step_seconds=0.045, epochs=3
    )
    assert "An accelerator that takes 45.0 ms per step" in text
    assert ("passes" in text, "fails" in text) == (is_fed, not is_fed)
    assert f"{busy:.0%}".replace("%", " %") in text.replace(".0 %", " %")
    assert "3 whole epochs" in text
    assert "samples/s" in with_(
        utilisation=Reading(value=busy, unit="frac"), asked_samples_per_s=900.0
    )


def test_chips_are_fed_or_would_starve() -> None:
    chips = [
        FedChip(chip="A100", needs_samples_per_s=500.0, count=2, basis="its step"),
        FedChip(chip="H100", needs_samples_per_s=2468.0, count=0, basis="its step"),
    ]
    text = with_(workload="resnet50", chips=chips)
    assert "A100 takes 500 samples/s (its step): enough for 2 of them" in text
    assert (
        "H100 takes 2,468 samples/s (its step): not enough, it would be busy 50 % of the time"
        in text
    )


def test_of_several_loaders_and_processes_it_is_said_which_were_driven() -> None:
    other = SeenLoader(
        dataset="Words", sampler="Own", batch_size=None, workers=4, random=False, grad=False
    )
    text = with_(seen=[LOADER, other], number=2, processes=2, problem="the disk is full")
    assert "Words, its own batches, 4 workers: 1,234" in text
    assert "2. Words, its own batches, 4 workers  <- this one" in text
    assert "2 processes in parallel" in text
    assert "It ended early: the disk is full" in text


def test_ceilings_are_shown_in_their_units_by_group() -> None:
    readings = {
        "storage": ("reading in order", Reading(value=2e9, unit="bytes/s", low=1.9e9, high=2.1e9)),
        "metadata": ("opening a file", Reading(value=0.002, unit="s")),
        "decode": ("JPEGs", Reading(value=850.0, unit="count/s")),
        "cores": ("cores at once", Reading(value=2.0, unit="count")),
        "network": ("to a host", Missing(reason="no host was named")),
    }
    same, near = (
        Ceiling(
            group="decode",
            name=what,
            what=what,
            signal=readings["decode"][1],
            mean_difference=most / 3,
            most_difference=most,
        )
        for what, most in (("another decoder", 0.0), ("a third one", 3.0))
    )
    probe = Probe(
        host="here",
        path="/data",
        mount="/",
        fstype="ext4",
        seconds=12.0,
        ceilings=[
            *(
                Ceiling(group=g, name=g, what=what, signal=signal)
                for g, (what, signal) in readings.items()
            ),
            same,
            near,
        ],
    )
    text = words(write_probe(probe))
    assert "here: /data on / (ext4)" in text
    assert "reading in order: 2 GB/s (1.9 GB/s to 2.1 GB/s)" in text
    assert "opening a file: 2 ms" in text
    assert "JPEGs: 850/s" in text
    assert "cores at once: 2" in text
    assert "to a host: not measured, no host was named" in text
    assert "another decoder: 850/s; the same pixels" in text
    assert "a third one: 850/s; pixels differ by 1 of 255 on average, 3 at most" in text
    assert text.rstrip().endswith("Next: fuelline feed SCRIPT")
    assert text.index("Storage") < text.index("Cores") < text.index("Decoding")
