"""Into TensorBoard: figures as scalars, the report as text, in events beside the job's own.

No TensorFlow and no torch is loaded: TensorBoard's own writer needs neither.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from tensorboard.compat.proto.event_pb2 import Event
from tensorboard.compat.proto.summary_pb2 import Summary
from tensorboard.compat.proto.tensor_pb2 import TensorProto
from tensorboard.compat.proto.tensor_shape_pb2 import TensorShapeProto
from tensorboard.compat.proto.types_pb2 import DT_FLOAT, DT_STRING
from tensorboard.plugins.scalar.metadata import create_summary_metadata as scalar_metadata
from tensorboard.plugins.text.metadata import create_summary_metadata as text_metadata
from tensorboard.summary.writer.event_file_writer import EventFileWriter

from fuelline.schema.errors import RefusedError

if TYPE_CHECKING:
    from fuelline.pipeline.handed import HandedRun

FOLDER = "fuelline"
"""Below the folder of logs: a run of its own, so that the job's curves stay as they are."""


def attach(handed: HandedRun, where: str) -> str:
    """Below the folder `where`."""
    folder = Path(where) / FOLDER
    steps = handed.diagnosis.steps.count
    values = [
        Summary.Value(
            tag=name,
            metadata=scalar_metadata(display_name="", description=""),
            tensor=TensorProto(dtype=DT_FLOAT, float_val=[value], tensor_shape=TensorShapeProto()),
        )
        for name, value in handed.figures().items()
    ]
    report = Summary.Value(
        tag="fuelline/report",
        metadata=text_metadata(display_name="", description=""),
        tensor=TensorProto(
            dtype=DT_STRING,
            string_val=[handed.markdown.encode()],
            tensor_shape=TensorShapeProto(dim=[TensorShapeProto.Dim(size=1)]),
        ),
    )
    try:
        writer = EventFileWriter(str(folder))
        writer.add_event(Event(step=steps, summary=Summary(value=[*values, report])))
        writer.close()
        page = folder / handed.page.name
        page.write_bytes(handed.page.read_bytes())
    except OSError as error:
        raise RefusedError(
            f"{folder} cannot be written to ({error.strerror}). Nothing was attached. "
            "Name the folder that TensorBoard reads (--logdir)."
        ) from None
    return f"{folder}, as run {FOLDER!r}; the page is beside it"


def find(began_s: float) -> str | None:
    """The only folder of events below this one that was written to since the job began."""
    found: set[str] = set()
    for parent, folders, names in os.walk("."):
        folders[:] = [name for name in folders if not name.startswith(".") and name != FOLDER]
        events = (Path(parent, name) for name in names if name.startswith("events.out.tfevents"))
        if any(path.stat().st_mtime >= began_s for path in events):
            found.add(parent)
        if parent.count(os.sep) >= _DEEPEST:
            folders.clear()
    return found.pop() if len(found) == 1 else None


_DEEPEST = 4
"""Folders: a job may stand in a home with millions of files."""
