"""The compiled scanner and the readers in Python make the same tables of the same text.

Of every published trace and of events with fields of any shape; tests/unit has what is quick.
"""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from fuelline.ingest.kineto import scan, split
from tests.unit.ingest.kineto.texts import REAL
from tests.unit.ingest.kineto.twice import both

pytestmark = pytest.mark.skipif(
    scan.find_compiled() is None, reason="the package was built without the compiled scanner"
)
TRACES = sorted(path for path in REAL.rglob("*") if path.is_file()) if REAL.exists() else []


@pytest.mark.parametrize("path", TRACES, ids=lambda path: str(path.relative_to(REAL)))
def test_every_published_trace_gives_the_same_tables(path: Path) -> None:
    found = both(path)
    assert found is not None
    assert found["host"]


SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**70), 2**70),
    st.integers(0, 2**54),
    st.floats(allow_nan=False, allow_infinity=False),
    st.decimals(0, 2**44, places=3).map(float),
    st.sampled_from(["", "7", "007", "0x1f", "1e3", "12.5", "X", "\u00e4", 'a"b', "-1", "Float"]),
)


VALUES = st.recursive(SCALARS, lambda inner: st.lists(inner, max_size=4), max_leaves=6)


ARGS = st.dictionaries(
    st.sampled_from(
        ["External id", "external id", "device", "stream", "correlation", "bytes", "grid", "block",
         "registers per thread", "shared memory", "est. achieved occupancy %", "graph id", "Seq",
         "Process Group Name", "In msg nelems", "dtype", "Input Dims", "Input type", "other"]
    ),
    VALUES,
    max_size=5,
)  # fmt: skip


TIMES = st.one_of(
    st.integers(0, 2**53),
    st.integers(-(10**6), 10**6),
    st.decimals(-(10**6), 10**6, places=3).map(float),
    st.decimals(0, 10**6, places=5).map(float),
    st.integers(10**15, 10**15 + 10**6).map(lambda whole: f"{whole}.{whole % 1000:03}"),
)


EVENTS = st.fixed_dictionaries(
    {"ph": st.sampled_from(["X", "X", "X", "X", "i", "B", "E", ""]), "ts": TIMES},
    optional={
        "cat": st.sampled_from(
            ["kernel", "gpu_memcpy", "cpu_op", "cuda_runtime", "Operator", "Kernel", "ac2g",
             "user_annotation", "python_function", "?", None, 3]
        ),
        "name": st.sampled_from(
            ["k", "aten::mm", "nccl:all_reduce", "ProfilerStep#4", "\u00e4\n", "", None, 5]
        ),
        "pid": SCALARS,
        "tid": SCALARS,
        "dur": st.one_of(TIMES, SCALARS),
        "args": st.one_of(ARGS, VALUES),
        "id": VALUES,
    },
)  # fmt: skip


def _write(event: dict[str, Any]) -> str:
    """As JSON; times that are text stand there as numbers, which a float could not hold."""
    start = event["ts"]
    text = json.dumps({**event, "ts": 0 if isinstance(start, str) else start}, ensure_ascii=False)
    return text.replace('"ts": 0', f'"ts": {start}', 1) if isinstance(start, str) else text


@settings(
    max_examples=250, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck)
)
@given(st.lists(EVENTS, min_size=1, max_size=12), st.sampled_from([100, 10**6]))
@example([{"ph": "X", "cat": "kernel", "ts": 0.0005, "dur": 0.0005, "args": {}}], 10**6)
@example([{"ph": "X", "cat": "cpu_op", "ts": 8796093022208.5, "tid": 1, "dur": -1.0005}], 10**6)
@example(
    [{"ph": "X", "ts": 5, "tid": 1}, {"ph": "X", "ts": "1000000000000005.1239", "tid": 1}], 100
)
def test_events_of_any_shape_give_the_same_rows(events: list[Any], piece_bytes: int) -> None:
    with pytest.MonkeyPatch.context() as patch, tempfile.TemporaryDirectory() as folder:
        patch.setattr(split, "PIECE_BYTES", piece_bytes)
        path = Path(folder) / "trace"
        text = ",\n".join(_write(event) for event in events)
        path.write_text(f'{{"schemaVersion": 1, "traceEvents": [{text}]}}')
        both(path)
