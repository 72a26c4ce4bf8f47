"""What a plug-in is made of: names that stay, for rules and importers of other packages.

A package announces a rule as an entry point of the group `fuelline.rules`, an importer as one of
`fuelline.importers`; docs/plugins.md shows both, examples/plugin is a whole package.
"""

from fuelline.diagnose.rule import LISTED_SHARE, Rule, fact, found
from fuelline.ingest.importer import Imported, Importer, PartWriter
from fuelline.schema.diagnosis.facts import Facts
from fuelline.schema.diagnosis.findings import Evidence, Finding, Remedy
from fuelline.schema.errors import InputError
from fuelline.schema.readings import Missing, Reading, value_of
from fuelline.schema.run.trace import (
    ChipFacts,
    CopyDirection,
    DeviceKind,
    HostKind,
    Quality,
    RankFacts,
    SourceFacts,
)

__all__ = [
    "LISTED_SHARE",
    "ChipFacts",
    "CopyDirection",
    "DeviceKind",
    "Evidence",
    "Facts",
    "Finding",
    "HostKind",
    "Imported",
    "Importer",
    "InputError",
    "Missing",
    "PartWriter",
    "Quality",
    "RankFacts",
    "Reading",
    "Remedy",
    "Rule",
    "SourceFacts",
    "fact",
    "found",
    "value_of",
]
