"""`plan check` answers what it can, says why it cannot, and never falls over a cell."""

import math
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from fuelline.plan.check import read_rows, score_rows
from fuelline.plan.check.answer import answer_row, group_of
from fuelline.plan.check.rows import BadRow, Row, parse_number
from fuelline.plan.physics.constants import shipped_constants
from fuelline.schema.errors import InputError
from fuelline.schema.plan.estimates import Estimate, Unanswered
from tests.unit.plan.rows import DECODE, HEAD, change, write_table

PUBLISHED = Path(__file__).parents[3] / "bench" / "published.csv"


def only_row(path: Path, line: str) -> Row:
    (row,) = read_rows(write_table(path / "t.csv", line))
    assert isinstance(row, Row)
    return row


def answer(path: Path, line: str) -> Estimate:
    found = answer_row(only_row(path, line), shipped_constants())
    assert isinstance(found, Estimate), found
    found.check()
    return found


def test_a_batch_of_one_is_limited_by_bandwidth_and_close_to_what_was_measured(
    tmp_path: Path,
) -> None:
    found = answer(tmp_path, DECODE)
    assert found.limit == "memory bandwidth"
    assert found.low < 104 < found.high
    assert sum(term.seconds for term in found.terms) == pytest.approx(1 / found.value, rel=0.01)


def test_published_rows_are_answered_within_the_bars() -> None:
    score = score_rows(read_rows(PUBLISHED), shipped_constants())
    assert score.answered_frac >= 0.95
    assert score.coverage_frac is not None
    assert 0.7 <= score.coverage_frac <= 0.9
    mape = {group.group: group.clean_mape_frac for group in score.groups}
    for group, bar in (
        ("static", 0.12),
        ("TPOT under load", 0.2),
        ("TTFT under load", 0.35),
        ("training, dense", 0.08),
    ):
        found = mape[group]
        assert found is not None
        assert found <= bar


def test_what_does_not_fit_otherwise_was_recomputed(tmp_path: Path) -> None:
    line = change(
        DECODE,
        kind="train",
        model="Llama-2-70B",
        n_gpus="64",
        tp="8",
        dp="8",
        batch_or_concurrency="128",
        input_len="4096",
        output_len="",
        metric="train_throughput_per_gpu",
        unit="tok/s/gpu",
        notes="microbatch 16",
    )
    stated = change(line, notes="microbatch 16; full activation recomputation")
    assert answer(tmp_path, line).value == pytest.approx(answer(tmp_path, stated).value)
    small = [change(line, notes=f"microbatch 1{more}") for more in ("", "; full recompute")]
    freely, again = (answer(tmp_path, each).value for each in small)
    assert freely > again


@pytest.mark.parametrize(
    "cells",
    [
        {"n_gpus": "", "tp": "", "pp": "", "dp": "", "ep": ""},
        {"tp": "TP8", "n_gpus": "8.0"},
        {"ep": "none", "dp": "0"},
        {"batch_or_concurrency": "max", "kind": "serve", "metric": "output_throughput"},
        {"batch_or_concurrency": "64-128"},
        {"input_len": "", "output_len": ""},
        {"input_len": "4k"},
        {"precision": ""},
        {"precision": "fp16/int8 TruePoint"},
        {"precision": "q4_k_m"},
        {"hardware": "NVIDIA A100-SXM4-80GB"},
        {"hardware": "H100-SXM-80GB-MaxQ"},
        {"hardware": "Cerebras-WSE-3"},
        {"hardware": "Groq-LPU-v1"},
        {"model": "Somebodys-13B", "params_b": "13", "active_params_b": "13"},
        {"model": "Nobodys-MoE", "params_b": "100", "active_params_b": "10"},
        {"metric": "tpot", "unit": "ms", "kind": "serve"},
        {"metric": "ttft", "unit": "s", "kind": "serve"},
        {"metric": "itl", "unit": "ms", "kind": "serve"},
        {"metric": "e2e_latency", "unit": "s", "kind": "serve"},
        {"metric": "output_throughput_server", "kind": "serve", "batch_or_concurrency": ""},
        {"metric": "total_throughput", "kind": "serve"},
        {"metric": "request_throughput", "unit": "req/s", "kind": "serve"},
        {"metric": "energy_per_output_token", "unit": "J/tok", "kind": "serve"},
        {"metric": "prefill_throughput", "kind": "prefill", "input_len": "512"},
        {"metric": "mfu", "unit": "%", "kind": "train", "input_len": "2048"},
        {"metric": "iter_time", "unit": "ms", "kind": "train", "n_gpus": "8", "tp": ""},
        {"metric": "train_throughput", "kind": "train", "n_gpus": "8", "dp": "8"},
        {"metric": "total_gpu_hours", "unit": "GPU-h", "kind": "train", "notes": "2T tokens"},
    ],
    ids=str,
)
def test_odd_cells_still_get_an_answer(tmp_path: Path, cells: dict[str, str]) -> None:
    found = answer(tmp_path, change(DECODE, **cells))
    assert math.isfinite(found.high)
    assert found.limit


@pytest.mark.parametrize(
    ("cells", "why"),
    [
        ({"model": "Unheard-Of", "params_b": ""}, "neither the shape nor the size"),
        ({"hardware": "Abacus-9"}, "no chip 'Abacus-9'"),
        ({"hardware": "A100-80GB-SXM MIG 1g.10gb"}, "no chip"),
        ({"precision": "int3.7-magic"}, "no precision"),
        ({"metric": "colour", "unit": "red"}, "no such metric"),
        ({"metric": "total_gpu_hours", "kind": "train", "unit": "GPU-h"}, "training tokens"),
    ],
)
def test_a_row_without_an_answer_says_why(tmp_path: Path, cells: dict[str, str], why: str) -> None:
    found = answer_row(only_row(tmp_path, change(DECODE, **cells)), shipped_constants())
    assert isinstance(found, Unanswered)
    assert why in found.reason


@pytest.mark.parametrize("value", ["", "fast", "0", "-3", "nan", "inf"])
def test_a_line_without_a_measured_value_is_counted_as_unanswered(
    tmp_path: Path, value: str
) -> None:
    rows = read_rows(write_table(tmp_path / "t.csv", change(DECODE, value=value)))
    assert isinstance(rows[0], BadRow)
    score = score_rows(rows, shipped_constants())
    assert (score.answered, len(score.unanswered), score.coverage_frac) == (0, 1, None)


def test_a_file_that_is_no_table_is_refused(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("a,b\n1,2\n")
    with pytest.raises(InputError, match="no column model"):
        read_rows(tmp_path / "t.csv")
    (tmp_path / "binary.csv").write_bytes(b"\xff\xfe\x00\x01")
    with pytest.raises(InputError, match="not a CSV table"):
        read_rows(tmp_path / "binary.csv")
    with pytest.raises(InputError, match="cannot read"):
        read_rows(tmp_path / "absent.csv")


@settings(suppress_health_check=list(HealthCheck))
@given(
    st.fixed_dictionaries(
        {
            name: st.text(alphabet="0123456789.-xk %TPmax", max_size=6)
            for name in ("n_gpus", "tp", "pp", "dp", "ep", "batch_or_concurrency", "input_len")
        }
    ),
    st.sampled_from(["tpot", "ttft", "output_throughput", "e2e_batch_latency", "mfu"]),
    st.sampled_from(["serve", "decode", "prefill", "train", ""]),
)
def test_no_cell_makes_it_fall_over(
    tmp_path: Path, cells: dict[str, str], metric: str, kind: str
) -> None:
    line = change(DECODE, metric=metric, kind=kind, unit="ms", **cells)
    for row in read_rows(write_table(tmp_path / "t.csv", line)):
        if isinstance(row, Row):
            found = answer_row(row, shipped_constants())
            assert isinstance(found, Unanswered) or found.low <= found.value <= found.high


def test_kinds_of_rows_are_told_apart(tmp_path: Path) -> None:
    def kind(**cells: str) -> str:
        return group_of(only_row(tmp_path, change(DECODE, **cells)))

    assert kind() == "static"
    assert kind(kind="serve", metric="tpot", batch_or_concurrency="8") == "TPOT under load"
    assert kind(kind="serve", metric="ttft", batch_or_concurrency="8") == "TTFT under load"
    assert kind(kind="serve", metric="e2e_batch_latency") == "static"
    assert kind(kind="serve", metric="output_throughput", batch_or_concurrency="max") == (
        "throughput under load"
    )
    assert kind(kind="train", metric="mfu") == "training, dense"
    assert kind(kind="train", metric="mfu", ep="8") == "training, MoE"


def test_numbers_are_read_as_people_write_them() -> None:
    assert parse_number("1,024") == 1024
    assert parse_number("~4k") == 4000
    assert parse_number("100-400") == 200
    assert parse_number("max") is None
    assert parse_number("") is None
    assert HEAD.count(",") == 21


@pytest.mark.parametrize(
    ("cells", "said"),
    [
        ({"regime": "legacy_sw"}, "software as old"),
        ({"regime": "odd"}, "marks it as 'odd'"),
        ({"notes": "EAGLE speculation"}, "several tokens come from one step"),
        ({"input_len": ""}, "assumed: input length not given"),
        ({"hardware": "MI300X"}, "nobody measured kernels on MI300X"),
        ({"tp": "", "pp": "", "n_gpus": "8"}, "how the model is spread"),
    ],
)
def test_why_a_row_was_missed_is_read_off_the_row(
    tmp_path: Path, cells: dict[str, str], said: str
) -> None:
    row = only_row(tmp_path, change(DECODE, **cells))
    assert said in " ".join(score_rows([row], shipped_constants()).worst[0].why)


def test_the_longest_term_is_told_with_how_wrong_it_would_have_to_be(tmp_path: Path) -> None:
    row = only_row(tmp_path, DECODE)
    answer = answer_row(row, shipped_constants())
    assert isinstance(answer, Estimate)
    total = sum(term.seconds for term in answer.terms)
    longest = max(answer.terms, key=lambda term: term.seconds)
    slow = replace(row, value=answer.value / 2)
    needed = (2 * total - (total - longest.seconds)) / longest.seconds
    why = score_rows([slow], shipped_constants()).worst[0].why
    assert f"{longest.name} is" in why[-1]
    assert f"{needed:.2g} times as long" in why[-1]


def test_a_first_token_under_load_is_explained_by_its_queue(tmp_path: Path) -> None:
    cells = {"kind": "serve", "metric": "ttft", "unit": "ms", "value": "9000"}
    row = only_row(tmp_path, change(DECODE, **cells, batch_or_concurrency="64", input_len="2000"))
    assert "waiting for others" in score_rows([row], shipped_constants()).worst[0].why[-1]
