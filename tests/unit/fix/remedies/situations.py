"""Facts of runs for the tests of remedies: a quiet one, and what is changed in it."""

from typing import Any

from fuelline.schema.diagnosis.facts import (
    Facts,
    InputFacts,
    PlaceFacts,
    StorageFacts,
    TransferFacts,
)
from fuelline.schema.diagnosis.findings import BudgetPart, StepStats, Window
from fuelline.schema.readings import Reading
from fuelline.schema.run.recording import LoaderFacts

PLACE = PlaceFacts(
    path="/data/a.bin", mount="/data", fstype="ext4", device="/dev/sda1", syscall="read", share=1.0
)
LOADER = LoaderFacts(num_workers=2, prefetch_factor=2, pin_memory=False, persistent_workers=False)


def facts(**changes: Any) -> Facts:
    """A run with two workers and nothing to mend."""
    quiet: dict[str, Any] = {
        "window": Window(seconds=10.0, before_seconds=0.0, after_seconds=0.0),
        "steps": StepStats(count=100),
        "budget": [BudgetPart(part="forward", seconds=10.0, share=1.0)],
        "loader": LOADER,
    }
    return Facts(**(quiet | changes))


def reading(value: float) -> Reading:
    return Reading(value=value, unit="")


def blocked_in_reads(piece_bytes: float, device: str = "/dev/sda1") -> Facts:
    place = PlaceFacts(
        **{name: getattr(PLACE, name) for name in PLACE.__struct_fields__} | {"device": device}
    )
    return facts(
        input=InputFacts(exposed_share=reading(0.5), read_share=reading(0.6), place=place),
        storage=StorageFacts(bytes_per_call=reading(piece_bytes)),
    )


def copies(pageable: float = 0.0, blocking: float = 0.0, share: float = 0.2) -> Facts:
    return facts(
        budget=[
            BudgetPart(part="forward", seconds=10.0 * (1 - share), share=1 - share),
            BudgetPart(part="transfer", seconds=10.0 * share, share=share),
        ],
        transfer=TransferFacts(pageable_share=reading(pageable), blocking_share=reading(blocking)),
    )
