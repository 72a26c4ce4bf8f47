"""`fuelline plan`: intervals and limits in 80 columns, and refusals with a way out."""

import json
from pathlib import Path
from typing import Any

import pytest

from fuelline.cli import main
from tests.unit.plan.rows import DECODE, change, write_table

Capture = pytest.CaptureFixture[str]


def run(capsys: Capture, *words: str) -> tuple[int, str, str]:
    try:
        code = main(["plan", *words])
    except SystemExit as left:
        code = int(left.code or 0)
    said = capsys.readouterr()
    assert "Traceback" not in said.err
    for line in said.out.splitlines():
        assert len(line) <= 80 or line.startswith(("{", "Plot written to "))
    return code, said.out, said.err


def answer(capsys: Capture, *words: str) -> dict[str, Any]:
    code, out, _ = run(capsys, *words, "--json")
    assert code == 0
    found: dict[str, Any] = json.loads(out)
    assert found["schema_version"] == 1
    return found


SERVE = ("serve", "llama-3.1-8b", "--chip", "h100", "--in", "1024", "--out", "128")


def test_serving_has_an_interval_and_a_limit_for_every_answer(capsys: Capture) -> None:
    found = answer(capsys, *SERVE, "--rate", "20", "--slo", "ttft=1s,tpot=40ms")
    best = found["options"][0]
    for key in ("rate_tokens_per_s", "tpot_s", "ttft_s"):
        assert best[key]["low"] < best[key]["value"] < best[key]["high"]
        assert best[key]["limit"]
        assert best[key]["terms"]
    assert best["meets"]
    assert best["tpot_s"]["value"] <= 0.04
    assert best["usd_per_mtoken"] > 0
    assert found["pools"]["why"]


def test_serving_is_told_in_words_with_the_terms_on_demand(capsys: Capture) -> None:
    code, out, _ = run(capsys, *SERVE, "--explain")
    assert code == 0
    assert "read weights" in out
    assert "limit: " in out
    assert "cannot get more than" in out


def test_a_measured_rate_is_put_beside_the_floor(capsys: Capture) -> None:
    words = ("serve", "llama-2-7b", "--chip", "a100", "--batch", "1", "--measured", "104.9")
    floor = answer(capsys, *words)["floor"]
    assert 0.6 < floor["measured_share"] < 0.8
    _, out, _ = run(capsys, *words)
    assert "Your 104.9 are" in " ".join(out.split())


def test_a_range_gives_a_table_and_a_plot_with_the_crossing(
    capsys: Capture, tmp_path: Path
) -> None:
    plot = tmp_path / "plot.svg"
    code, out, _ = run(capsys, *SERVE, "--batch", "1..256", "--plot", str(plot))
    assert code == 0
    assert "By --batch" in out
    assert "bandwidth to math at" in out
    for path in (plot, plot.with_stem("plot-2")):
        assert path.read_text().startswith("<svg")
        assert f"Plot written to {path}" in out
    found = answer(capsys, *SERVE, "--batch", "1..256")
    rates = [point["option"]["rate_tokens_per_s"]["value"] for point in found["sweep"]]
    assert [point["at"] for point in found["sweep"]] == [2**power for power in range(9)]
    assert rates == sorted(rates)
    joules = [point["option"]["joule_per_token"] for point in found["sweep"]]
    assert joules[0] > 10 * joules[6]


@pytest.mark.parametrize(
    ("flag", "words"),
    [
        ("in", ("--in", "1k..4k")),
        ("out", ("--out", "1..8")),
        ("rate", ("--rate", "1,4")),
        ("tp", ("--tp", "1..8")),
        ("pp", ("--pp", "1..4")),
        ("chips", ("--chips", "1..8")),
        ("price", ("--price", "1..4")),
        ("measured", ("--measured", "50..200")),
        ("kv", ("--kv", "8,16")),
        ("headroom", ("--headroom", "10,30%", "--rate", "2")),
        ("vary", ("--vary", "0,20", "--rate", "2")),
        ("attain", ("--attain", "80,90", "--rate", "2")),
        ("slo tpot", ("--slo", "tpot=20ms..80ms")),
        ("slo ttft", ("--slo", "ttft=500ms..2s,tpot=80ms")),
    ],
)
def test_every_number_of_serving_may_be_a_range(
    capsys: Capture, tmp_path: Path, flag: str, words: tuple[str, ...]
) -> None:
    plot = tmp_path / "plot.svg"
    base = ("serve", "llama-3.1-8b", "--chip", "h100", "--plot", str(plot))
    code, out, err = run(capsys, *base, *words)
    assert (code, err) == (0, "")
    _check_sweep(out, flag, plot)


TRAIN = ("train", "llama-3.1-8b", "--chip", "h100", "--chips", "16")


@pytest.mark.parametrize(
    "words",
    [
        ("chips", "8..64"),
        ("tokens", "100B..1T"),
        ("seq", "4k..16k"),
        ("batch-tokens", "1M..4M"),
        ("tp", "1..4"),
        ("pp", "1..4"),
        ("cp", "1..4"),
        ("microbatch", "1..4"),
        ("zero", "0..3"),
        ("interleave", "1..4"),
        ("jitter", "1..5%"),
        ("checkpoint", "10s..5min"),
        ("mtbf", "1000h..50000h"),
        ("sample-bytes", "1k..64k"),
        ("sites", "1..4"),
        ("link", "0.1..10"),
        ("price", "1..3"),
    ],
)
def test_every_number_of_training_may_be_a_range(
    capsys: Capture, tmp_path: Path, words: tuple[str, str]
) -> None:
    plot = tmp_path / "plot.svg"
    more = ("--sites", "2") if words[0] == "link" else ()
    code, out, err = run(capsys, *TRAIN, f"--{words[0]}", words[1], *more, "--plot", str(plot))
    assert (code, err) == (0, "")
    _check_sweep(out, words[0], plot)


def _check_sweep(out: str, flag: str, plot: Path) -> None:
    """A table with intervals and limits, a plot on the screen, and one in a file that is named."""
    _, _, swept = out.partition(f"By --{flag}")
    table = swept.partition("and what it takes")[0].splitlines()
    assert "(80 %)" in table[1]
    assert table[1].endswith("limit")
    assert all("(" in line and line.endswith(("math", "memory", "sites")) for line in table[2:-1])
    assert "+-----" in swept
    assert f"Plot written to {plot}" in out.splitlines()
    assert plot.read_text().startswith("<svg")


def test_chips_of_a_list_are_trained_on_side_by_side(capsys: Capture) -> None:
    found = answer(capsys, "train", "llama-3.1-8b", "--chip", "h100,h200")
    assert [point["label"] for point in found["sweep"]] == ["H100-SXM-80GB", "H200-SXM"]
    assert found["sweep"][1]["days"] < found["sweep"][0]["days"]


def test_every_line_of_a_range_has_an_interval_and_a_limit(capsys: Capture) -> None:
    for words in (SERVE, TRAIN):
        flag = "--batch" if words is SERVE else "--tp"
        for point in answer(capsys, *words, flag, "1..4")["sweep"]:
            line = point["option"] if words is SERVE else point
            ranges = [value for key, value in line.items() if key.endswith("_range")]
            assert len(ranges) >= 2
            for each in ranges:
                assert each["low"] < each["value"] < each["high"]
                assert each["limit"]


def test_a_range_of_rates_says_what_each_needs(capsys: Capture) -> None:
    words = (*SERVE, "--slo", "ttft=500ms,tpot=40ms", "--rate", "16..64")
    found = answer(capsys, *words)
    needed = [point["fleet"]["chips"] for point in found["sweep"]]
    assert needed == sorted(needed)
    assert needed[-1] > needed[0]


def test_training_that_does_not_fit_names_a_change_that_does(capsys: Capture) -> None:
    words = ("train", "llama-3.1-70b", "--chip", "h100", "--tokens", "1T")
    code, _, err = run(capsys, *words, "--chips", "4")
    assert code == 3
    chips = err.partition("With --chips ")[2].split()[0]
    assert run(capsys, *words, "--chips", chips)[0] == 0


def test_the_whole_catalogue_is_searched_without_a_chip(capsys: Capture) -> None:
    found = answer(capsys, "serve", "mixtral-8x7b", "--rate", "5")
    assert found["searched"] > 200
    assert len({option["chip"] for option in found["options"]}) == len(found["options"]) == 8


def test_limits_that_nothing_keeps_give_exit_code_one_and_the_gap(capsys: Capture) -> None:
    code, out, _ = run(capsys, *SERVE, "--slo", "tpot=1ms")
    assert code == 1
    assert "No option meets the limits" in " ".join(out.split())


def test_where_no_limit_is_kept_the_nearest_way_comes_first(capsys: Capture) -> None:
    code, out, _ = run(capsys, "serve", "llama-3.1-70b", "--chip", "h100", "--slo", "tpot=1ms")
    assert code == 1
    assert "8 H100-SXM-80GB (tp 8)" in out
    assert "so no software would" in " ".join(out.split())


def test_pools_of_a_small_model_are_no_row_of_zeros(capsys: Capture) -> None:
    _, out, _ = run(capsys, *SERVE, "--slo", "ttft=500ms,tpot=20ms")
    assert " 0.0 " not in out.partition("Separating prefill and decode")[2]
    pools = answer(capsys, *SERVE, "--slo", "ttft=500ms,tpot=20ms")["pools"]
    for whole in (pools["together_range"], pools["apart_range"]):
        assert 0 < whole["low"] < whole["value"] < whole["high"]


def test_the_critical_batch_has_an_interval_and_the_floor_is_called_a_bound(
    capsys: Capture,
) -> None:
    ends = answer(capsys, *SERVE)["options"][0]["critical_batch_range"]
    assert ends["low"] < 989e12 / 3.35e12 < ends["high"]
    assert "A bound from the data sheet" in " ".join(run(capsys, *SERVE)[1].split())


@pytest.mark.parametrize(
    "words",
    [
        ("serve", "llama-3.1-8b", "--chip", "h100", "--tp", "1,3,4"),
        ("train", "llama-3.1-8b", "--chip", "h100", "--chips", "24", "--tp", "1,3,4"),
    ],
)
def test_a_degree_of_a_range_that_cuts_no_heads_is_marked_in_its_line(
    capsys: Capture, words: tuple[str, ...]
) -> None:
    points = answer(capsys, *words)["sweep"]
    assert [point["why_not"] for point in points] == ["", "cannot cut 32 heads", ""]
    assert run(capsys, *words[:-1], "3,5")[0] == 2


def test_a_chip_whose_links_are_not_known_is_not_joined_with_others(capsys: Capture) -> None:
    for words in (("serve", "llama-3.1-405b"), ("train", "llama-3.1-8b")):
        code, _, err = run(capsys, *words, "--chip", "sn40l")
        assert code == 3
        assert "links are not known" in err or "links of SN40L are not known" in err
    for purpose in ("serve", "train"):
        lines = answer(capsys, "chips", "llama-3.1-405b", "--for", purpose)["lines"]
        why = next(line["why_not"] for line in lines if line["chip"] == "SN40L")
        assert "no links known" in why


def test_chips_side_by_side_for_training_are_points_of_time_and_money(
    capsys: Capture, tmp_path: Path
) -> None:
    plot = tmp_path / "chips.svg"
    words = ("train", "llama-3.1-8b", "--chip", "h100,a100", "--chips", "64")
    code, out, _ = run(capsys, *words, "--plot", str(plot))
    assert code == 0
    assert "chips side by side" in out
    assert "A100-80GB-SXM" in plot.read_text()


def test_a_chip_without_measured_tiles_borrows_none(capsys: Capture) -> None:
    assert [edge[0] for edge in answer(capsys, "shape", "gpt2", "--chip", "b200")["edges"]][:2] == [
        64,
        128,
    ]
    assert answer(capsys, "shape", "gpt2", "--chip", "cerebras")["edges"] == []
    assert "was not measured" in " ".join(run(capsys, "shape", "gpt2", "--chip", "a100")[1].split())


def test_training_tells_time_memory_input_and_failures(capsys: Capture) -> None:
    words = ("train", "llama-3.1-70b", "--chip", "h100", "--chips", "1024", "--tokens", "1T")
    found = answer(capsys, *words)
    assert 0.3 < found["mfu_frac"]["value"] < 0.6
    assert found["memory"]["fits"]
    assert found["loader_bytes_per_s"] == pytest.approx(4 * found["tokens_per_s"])
    assert 0.9 < found["goodput"]["share"] < 1
    assert found["days"] == pytest.approx(
        1e12 / found["tokens_per_s"] / found["goodput"]["share"] / 86400
    )
    _, out, _ = run(capsys, *words, "--explain")
    assert "practical 40 %" in out
    assert "matrix math" in out


def test_too_few_chips_say_what_they_carry_and_how_many_would_do(capsys: Capture) -> None:
    words = ("serve", "llama-3.1-8b", "--chip", "h100", "--rate", "500")
    code, out, _ = run(capsys, *words, "--chips", "8")
    assert code == 1
    said = " ".join(out.split())
    assert "--chips 8 is too few: they carry" in said
    enough = said.split("it takes --chips ")[1].split(".")[0]
    assert run(capsys, *words, "--chips", enough)[0] == 0


def test_too_few_chips_for_one_replica_are_not_called_too_little_memory(capsys: Capture) -> None:
    words = ("serve", "llama-3.1-70b", "--chip", "h100")
    code, _, error = run(capsys, *words, "--chips", "1")
    assert code == 3
    assert "--chips 1 is too few" in error
    assert "GB" not in error.replace("80GB", "")
    enough = error.split("Ask for --chips ")[1].split(",")[0]
    assert run(capsys, *words, "--chips", enough)[0] == 0


def test_training_apart_says_why_it_does_not_work(capsys: Capture) -> None:
    words = ("train", "llama-3.1-405b", "--chip", "h100", "--chips", "8192", "--sites", "4")
    found, together = answer(capsys, *words), answer(capsys, *words[:-2])
    assert found["apart"]["share"] < 0.05
    assert found["days"] > 20 * together["days"]
    assert found["step_s"]["limit"] == "link between sites"
    _, out, _ = run(capsys, *words)
    assert "frontier models are trained in one place" in out


def test_training_ranges_give_a_table(capsys: Capture) -> None:
    code, out, _ = run(
        capsys, "train", "llama-3.1-8b", "--chip", "h100", "--chips", "8..64", "--tokens", "1T"
    )
    assert code == 0
    assert "By --chips" in out
    assert "days to train" in out


@pytest.mark.parametrize("purpose", ["serve", "train"])
def test_all_chips_stand_side_by_side_and_those_that_cannot_say_why(
    capsys: Capture, purpose: str
) -> None:
    found = answer(capsys, "chips", "llama-3.1-70b", "--for", purpose)
    assert len(found["lines"]) >= 48
    assert all(line["why_not"] or line["tokens_per_s_per_chip"] for line in found["lines"])
    code, out, _ = run(capsys, "chips", "llama-3.1-70b", "--for", purpose)
    assert code == 0
    assert "Not here" in out
    header = "$/Mtok" if purpose == "serve" else "$/Mtok (80 %)"
    costs = out.partition(header)[2].splitlines()[1:30]
    assert all(line.count("(") >= 1 for line in costs if "H100" in line or "B200" in line)
    for line in found["lines"]:
        ranges = [value for key, value in line.items() if key.endswith("_range") and value]
        assert line["why_not"] or line["tokens_per_s_per_chip"]["limit"]
        assert all(each["low"] < each["value"] < each["high"] for each in ranges)


def test_a_model_runs_in_the_precision_that_it_is_published_in(capsys: Capture) -> None:
    deepseek = ("serve", "deepseek-v3", "--chip")
    found = answer(capsys, *deepseek, "h200")
    assert (found["precision"], found["precision_note"]) == ("fp8", "as published")
    assert answer(capsys, *deepseek, "h200", "--precision", "bf16")["precision_note"] == ""
    without = answer(capsys, *deepseek, "a100")
    assert (without["precision"], without["options"][0]["precision"]) == ("bf16", "bf16")
    assert "no unit" in without["precision_note"]
    both = answer(capsys, *deepseek, "h200,a100")["options"]
    assert [each["precision"] for each in both] == ["fp8", "bf16"]
    small, large = (
        answer(capsys, "serve", "gpt-oss-120b", "--chip", "h100", *more)["options"][0]
        for more in ((), ("--precision", "bf16"))
    )
    assert small["weight_bytes_per_chip"] * small["chips"] < 70e9
    assert large["weight_bytes_per_chip"] * large["chips"] > 200e9
    _, out, _ = run(capsys, "chips", "deepseek-v3", "--chip", "h200,a100")
    assert "no unit for fp8, so in bf16" in " ".join(out.split())
    assert (
        answer(capsys, "train", "deepseek-v3", "--chip", "h200", "--chips", "2048")["precision"]
        == "bf16"
    )


def test_shapes_that_waste_are_named_with_the_nearest_that_do_not(capsys: Capture) -> None:
    found = answer(capsys, "shape", "gpt2", "--chip", "h100")
    vocabulary = next(each for each in found["dimensions"] if each["name"] == "vocabulary")
    assert vocabulary["nearest"] == [50304]
    assert answer(capsys, "shape", "llama-3.1-8b", "--chip", "h100")["dimensions"] == []
    assert answer(capsys, "shape", "gpt2", "--chip", "tpu-v6e")["dimensions"]


def test_a_table_is_checked_in_words_and_in_json(capsys: Capture, tmp_path: Path) -> None:
    table = write_table(tmp_path / "t.csv", DECODE, change(DECODE, id="R2", model="?", params_b=""))
    found = answer(capsys, "check", str(table))
    assert (found["rows"], found["answered"]) == (2, 1)
    assert found["unanswered"][0]["id"] == "R2"
    code, out, _ = run(capsys, "check", str(table))
    assert code == 0
    assert "1 of 2 rows answered" in out
    assert "Rows without an answer" in out


def test_a_table_without_an_answer_is_bad_input(capsys: Capture, tmp_path: Path) -> None:
    table = write_table(tmp_path / "t.csv", change(DECODE, model="?", params_b=""))
    code, out, _ = run(capsys, "check", str(table))
    assert code == 3
    assert "0 of 1 rows answered" in out


def test_rows_on_a_chip_of_ones_own_are_answered(capsys: Capture, tmp_path: Path) -> None:
    table = write_table(tmp_path / "t.csv", change(DECODE, hardware="Slate-7"))
    assert run(capsys, "check", str(table))[0] == 3
    own = tmp_path / "own.toml"
    own.write_text('[[chip]]\nname = "Slate-7"\nbf16_tflops = 400\nmem_gb = 96\nmem_gbps = 2000\n')
    code, out, _ = run(capsys, "check", str(table), "--catalogue", str(own))
    assert code == 0
    assert "1 of 1 rows answered" in out
    assert "nobody measured kernels on Slate-7" in " ".join(out.split())


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (("serve", "llama-9"), 3, "Nearest names"),
        (("serve", "llama-3.1-8b", "--chip", "h1000"), 3, "Nearest"),
        (("serve", "llama-3.1-8b", "--batch", "0"), 2, "between 1 and"),
        (("serve", "llama-3.1-8b", "--in", "1e30"), 2, "between 1 and"),
        (("serve", "llama-3.1-8b", "--rate", "-4"), 2, "between"),
        (("serve", "llama-3.1-8b", "--batch", "1..8", "--in", "1..8"), 2, "both ranges"),
        (("serve", "llama-3.1-8b", "--slo", "tpot=1s..8s", "--kv", "8,16"), 2, "both ranges"),
        (("serve", "llama-3.1-8b", "--headroom", "0..40"), 2, "give --rate"),
        (("serve", "llama-3.1-8b", "--vary", "50"), 2, "give --rate"),
        (("serve", "llama-3.1-8b", "--kv", "12"), 2, "one of 8, 16"),
        (("train", "llama-3.1-8b", "--chip", "h100,h200", "--tp", "1..8"), 2, "a table has one"),
        (("chips", "llama-3.1-8b", "--in", "1..8"), 2, "takes one number here"),
        (("serve", "llama-3.1-8b", "--tp", "5"), 2, "does not divide 32"),
        (("serve", "mixtral-8x7b", "--ep", "3"), 2, "does not divide 8 experts"),
        (("serve", "llama-3.1-8b", "--ep", "8"), 2, "no experts"),
        (("serve", "llama-3.1-8b", "--pp", "64"), 2, "32 layers"),
        (("serve", "llama-3.1-405b", "--chip", "t4", "--tp", "1"), 3, "The smallest that does"),
        (("serve", "llama-3.1-8b", "--engine", "magic"), 2, "no engine"),
        (("serve", "llama-3.1-8b", "--slo", "fast"), 2, "ttft=500ms"),
        (("serve", "llama-3.1-8b", "--headroom", "200"), 2, "between 0 and 90"),
        (("serve", "llama-3.1-8b", "--precision", "fp5"), 3, "no precision"),
        (("serve", "llama-3.1-8b", "--chip", "h100", "--plot", "x.gif"), 2, ".svg"),
        (("serve", "llama-3.1-8b", "--catalogue", "absent.toml"), 3, "cannot read"),
        (("train", "llama-3.1-8b"), 2, "--chip"),
        (("train", "llama-3.1-405b", "--chip", "h100", "--chips", "8"), 3, "does not fit"),
        (("train", "llama-3.1-8b", "--chip", "h100", "--chips", "7", "--tp", "2"), 3, "no layout"),
        (("train", "llama-3.1-8b", "--chip", "h100", "--tokens", "0"), 2, "between"),
        (("shape", "llama-3.1-8b"), 2, "--chip"),
        (("check", "absent.csv"), 3, "cannot read"),
    ],
)
def test_bad_input_is_refused_with_a_way_out(
    capsys: Capture, words: tuple[str, ...], code: int, said: str
) -> None:
    found, out, err = run(capsys, *words)
    assert (found, out) == (code, "")
    assert said in " ".join(err.split())


def test_a_chip_of_ones_own_is_planned_for_and_its_blanks_are_not_filled(
    capsys: Capture, tmp_path: Path
) -> None:
    own = tmp_path / "mine.toml"
    own.write_text(
        '[[chip]]\nname = "Mine"\nbf16_tflops = 500\nmem_gb = 96\nmem_gbps = 2000\n'
        "usd_per_hour = 1.5\n"
    )
    words = ("serve", "llama-3.1-8b", "--chip", "mine", "--catalogue", str(own))
    option = answer(capsys, *words)["options"][0]
    assert option["usd_per_hour"] == 1.5
    assert option["joule_per_token"] is None
    own.write_text('[[chip]]\nname = "Mine"\nbf16_tflops = 500\nmem_gb = 96\n')
    code, _, err = run(capsys, *words)
    assert code == 3
    assert "memory bandwidth of Mine is not known" in err


def test_weights_in_host_memory_have_room_but_no_bandwidth(capsys: Capture) -> None:
    words = ("serve", "llama-3.1-405b", "--chip", "h100", "--offload")
    code, out, _ = run(capsys, *words, "--chips", "1")
    assert code == 0
    assert "Capacity is not bandwidth" in " ".join(out.split())
    assert "limit: host bus" in out
    alone, cut = (
        answer(capsys, *words, "--batch", "1", "--tp", tp, "--pp", pp)
        for tp, pp in (("1", "1"), ("2", "2"))
    )
    first, second = alone["options"][0], cut["options"][0]
    assert 0.9 < first["host_share"] < 1
    # Two buses in parallel halve it, two stages behind one another do not.
    assert second["tpot_s"]["value"] < 0.55 * first["tpot_s"]["value"]
    assert (
        first["tpot_s"]["value"]
        > 200
        * answer(capsys, "serve", "llama-3.1-405b", "--chip", "h100", "--batch", "1")["options"][0][
            "tpot_s"
        ]["value"]
    )


@pytest.mark.parametrize(
    ("words", "field", "least", "most"),
    [
        (("--tp", "4", "--batch", "1..64"), "sequences", 1, 64),
        (("--tp", "4", "--batch", "96..128"), "sequences", 96, 128),
        (("--tp", "1..4"), "tp", 1, 4),
        (("--chips", "4..8"), "chips", 4, 8),
    ],
)
def test_the_first_lines_answer_within_the_range(
    capsys: Capture, words: tuple[str, ...], field: str, least: int, most: int
) -> None:
    found = answer(capsys, "serve", "llama-3.1-70b", "--chip", "h100", *words)
    best = found["options"][0]
    assert least <= {**best, **best["spread"]}[field] <= most


def test_a_range_of_batches_that_memory_does_not_hold_says_what_it_does(capsys: Capture) -> None:
    code, _, said = run(
        capsys, "serve", "llama-3.1-70b", "--chip", "h100", "--tp", "2", "--batch", "1000..4000"
    )
    assert code == 3
    assert "--batch 1,000 does not fit" in said


@pytest.mark.parametrize(
    ("words", "both"),
    [
        (("llama-3.1-70b", "--tp", "7"), ("--tp 4", "--tp 8")),
        (("mixtral-8x7b", "--ep", "3"), ("--ep 2", "--ep 4")),
    ],
)
def test_a_degree_that_does_not_divide_names_its_neighbours(
    capsys: Capture, words: tuple[str, ...], both: tuple[str, str]
) -> None:
    code, _, said = run(capsys, "serve", *words, "--chip", "h100")
    assert code == 2
    assert all(each in said for each in both)


def test_chips_that_share_a_sequence_bring_its_first_token_sooner(capsys: Capture) -> None:
    found = answer(
        capsys, "serve", "llama-3.1-8b", "--chip", "h100", "--tp", "1", "--batch", "1",
        "--in", "100k", "--cp", "1..4",
    )  # fmt: skip
    firsts = [point["option"]["prefill_s"] for point in found["sweep"]]
    assert firsts == sorted(firsts, reverse=True)
    assert [point["option"]["chips"] for point in found["sweep"]] == [1, 2, 4]


def test_an_unknown_host_bus_is_named_as_an_assumption(capsys: Capture) -> None:
    words = ("serve", "llama-3.1-70b", "--tp", "4", "--offload", "--explain", "--chip")
    _, unknown, _ = run(capsys, *words, "arc-b60")
    _, known, _ = run(capsys, *words, "rtx-4090")
    assert "assumed: a host bus" in unknown
    assert "assumed: a host bus" not in known
    assert "limit: host bus" in known


@pytest.mark.parametrize(
    ("order", "key"),
    [("usd", "usd_per_mtoken"), ("floor", "floor_s"), ("joules", "joule_per_token")],
)
def test_chips_are_sorted_and_cut(capsys: Capture, order: str, key: str) -> None:
    found = answer(capsys, "chips", "llama-3.1-8b", "--sort", order, "--top", "5")
    fit = [line for line in found["lines"] if not line["why_not"]]
    assert len(fit) == 5
    values = [line[key] for line in fit]
    assert values == sorted(values)
    assert found["left_out"] > 0
    _, out, _ = run(capsys, "chips", "llama-3.1-8b", "--sort", order, "--top", "5")
    assert f"{found['left_out']} more fit" in out


def test_chips_are_sorted_by_rate_by_default(capsys: Capture) -> None:
    lines = answer(capsys, "chips", "llama-3.1-8b")["lines"]
    rates = [line["tokens_per_s_per_chip"]["value"] for line in lines if not line["why_not"]]
    assert rates == sorted(rates, reverse=True)


@pytest.mark.parametrize("words", [("--top", "0"), ("--sort", "floor", "--for", "train")])
def test_an_order_that_makes_no_sense_is_refused(capsys: Capture, words: tuple[str, ...]) -> None:
    code, _, err = run(capsys, "chips", "llama-3.1-8b", *words)
    assert code == 2
    assert "Nothing was planned" in err


SLOW = """
[[chip]]
name = "laptop"
kind = "cpu"
fp32_tflops = 0.05
bf16_tflops = 0.05
mem_gb = 256
mem_gbps = 10
confidence = "{confidence}"
"""


@pytest.mark.parametrize(
    ("confidence", "said"),
    [
        ("measured", "that `fuelline roofline` measured"),
        ("yours", "your catalogue's figures"),
    ],
)
def test_a_plan_that_is_beyond_use_says_so_and_whose_figures_it_has(
    capsys: Capture, tmp_path: Path, confidence: str, said: str
) -> None:
    (tmp_path / "mine.toml").write_text(SLOW.format(confidence=confidence))
    words = (
        "serve",
        "llama-3.1-70b",
        "--chip",
        "laptop",
        "--catalogue",
        str(tmp_path / "mine.toml"),
    )
    _, out, _ = run(capsys, *words)
    plain = " ".join(out.split())
    assert "beyond use" in plain
    assert "No setting changes that" in plain
    assert "--sort floor" in plain
    assert said in plain
    assert "data sheet" not in plain


def test_a_plan_that_only_fills_the_chip_names_the_limit_to_give(
    capsys: Capture, tmp_path: Path
) -> None:
    (tmp_path / "mine.toml").write_text(
        SLOW.format(confidence="yours").replace("mem_gbps = 10", "mem_gbps = 900")
    )
    words = (
        "serve",
        "llama-3.1-8b",
        "--chip",
        "laptop",
        "--catalogue",
        str(tmp_path / "mine.toml"),
    )
    plain = " ".join(run(capsys, *words)[1].split())
    assert "beyond use" in plain
    assert "--slo tpot=200ms" in plain
    assert "beyond use" not in run(capsys, *SERVE)[1]
