"""`fuelline plan`: what one answer says in several places is the same, and flags are kept."""

import json
import re

import pytest

from tests.unit.cli.test_plan import Capture, answer, run

SECONDS = {"ns": 1e-9, "us": 1e-6, "ms": 1e-3, "s": 1.0}
_TIME = r"([\d.,]+) (ns|us|ms|s)"


def seconds(number: str, unit: str) -> float:
    return float(number.replace(",", "")) * SECONDS[unit]


def explained(out: str) -> list[tuple[list[float], float]]:
    """Of every `Terms of` block: what its lines show, and what they are said to make."""
    blocks = out.split("Terms of ")[1:]
    found = []
    for block in blocks:
        lines, _, total = block.partition("- = ")
        parts = [seconds(*each) for each in re.findall(rf"\+{_TIME} \+-", lines)]
        made = re.match(_TIME, total)
        assert made is not None
        found.append((parts, seconds(*made.groups())))
    return found


@pytest.mark.parametrize(
    "words",
    [
        ("serve", "llama-3.1-8b", "--chip", "h100"),
        ("serve", "llama-3.1-70b", "--chip", "groq", "--precision", "int8"),
        ("serve", "llama-3.1-70b", "--chip", "cerebras"),
        ("serve", "deepseek-v3", "--chip", "h200", "--ep", "16"),
        ("serve", "llama-3.1-405b", "--chip", "h100", "--chips", "2", "--offload"),
        ("train", "llama-3.1-70b", "--chip", "h100", "--chips", "1024", "--jitter", "3"),
        ("train", "deepseek-v3", "--chip", "h800", "--chips", "2048"),
        ("train", "llama-3.1-8b", "--chip", "h100", "--chips", "64", "--sites", "2"),
    ],
)
def test_the_terms_that_are_shown_add_up_by_eye(capsys: Capture, words: tuple[str, ...]) -> None:
    _, out, _ = run(capsys, *words, "--explain")
    blocks = explained(out)
    assert len(blocks) == (3 if words[0] == "serve" else 1)
    for parts, made in blocks:
        assert len(parts) > 2
        assert sum(parts) == pytest.approx(made, rel=0.05)
        assert "+-" in out


def test_the_time_that_is_explained_is_the_time_that_is_stated(capsys: Capture) -> None:
    words = ("serve", "llama-3.1-70b", "--chip", "groq", "--precision", "int8")
    _, out, _ = run(capsys, *words, "--explain")
    token = re.search(r"per token: ([\d.]+) \(", out)
    assert token is not None
    assert explained(out)[0][1] * 1e3 == pytest.approx(float(token[1]), rel=0.01)


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (("serve", "llama-3.1-8b", "--tp", "2.5"), 2, "whole number between 1 and 1,024"),
        (("serve", "llama-3.1-8b", "--chips", "3.7"), 2, "Give --chips 3 or --chips 4"),
        (("serve", "llama-3.1-8b", "--batch", "1,2.5"), 2, "--batch is 2.5"),
        (("train", "llama-3.1-8b", "--chip", "h100", "--chips", "7.5"), 2, "Give --chips 7"),
        (("train", "llama-3.1-8b", "--chip", "h100", "--pp", "1.5..8"), 2, "--pp is 1.5"),
        (("serve", "llama-3.1-8b", "--chip", "h100", "--batch", "100000"), 3, "does not fit"),
        (("serve", "qwen3-235b-a22b", "--tp", "8", "--ep", "4", "--pp", "999"), 2, "94 layers"),
        (("serve", "mixtral-8x7b", "--tp", "16", "--ep", "8", "--chip", "l40s"), 0, ""),
        (("serve", "dbrx", "--chip", "h200", "--tp", "3", "--ep", "8"), 2, "--tp"),
    ],
)
def test_a_flag_is_kept_or_refused_with_what_would_do(
    capsys: Capture, words: tuple[str, ...], code: int, said: str
) -> None:
    found, _, err = run(capsys, *words)
    assert found == code
    assert said in " ".join(err.split())


@pytest.mark.parametrize(("tp", "ep", "dp"), [(1, 16, 16), (8, 16, 2), (8, 8, 1), (8, 4, 1)])
def test_tensor_and_expert_parallelism_are_both_kept(
    capsys: Capture, tp: int, ep: int, dp: int
) -> None:
    words = ("serve", "deepseek-v3", "--chip", "b200", "--precision", "fp8")
    spread = answer(capsys, *words, "--tp", str(tp), "--ep", str(ep))["options"][0]["spread"]
    assert (spread["tp"], spread["ep"], spread["dp"]) == (tp, ep, dp)


def test_a_batch_that_fits_is_the_batch_of_the_answer(capsys: Capture) -> None:
    refused = run(capsys, "serve", "llama-3.1-8b", "--chip", "h100", "--batch", "100000")[2]
    most = refused.split("--batch 1 to ")[1].split(",")[0]
    words = ("serve", "llama-3.1-8b", "--chip", "h100", "--batch")
    for batch in ("1", "77", most):
        assert answer(capsys, *words, batch)["options"][0]["sequences"] == int(batch)


LOADED = (
    "serve", "llama-3.1-70b", "--chip", "h100", "--rate", "20", "--in", "2048", "--out", "256",
    "--slo", "ttft=500ms,tpot=40ms",
)  # fmt: skip


def test_the_headline_buys_what_the_simulation_says(capsys: Capture) -> None:
    found = answer(capsys, *LOADED)
    best, simulated = found["options"][0], found["fleet"]["options"][0]
    assert best["spread"] == simulated["spread"]
    assert best["replicas"] == simulated["bought"] == simulated["with_spares"]
    assert best["chips"] == simulated["chips"]
    assert best["usd_per_hour"] == pytest.approx(simulated["usd_per_hour"])
    _, out, _ = run(capsys, *LOADED)
    assert out.split("requests/s")[1].split()[0] == str(best["replicas"])


@pytest.mark.parametrize("chips", [8, 16, 28])
def test_chips_that_are_given_are_never_exceeded(capsys: Capture, chips: int) -> None:
    code, out, _ = run(capsys, *LOADED, "--chips", str(chips), "--json")
    found = json.loads(out)
    best, fleet = found["options"][0], found["fleet"]
    assert all(each["chips"] <= chips for each in found["options"])
    assert all(each["chips"] <= chips for each in fleet["options"])
    carried = fleet["options"][0]["carries_per_s"]
    assert (code == 1) == best["short"]
    assert carried * 0.8 < 20.4 if best["short"] else carried * 0.8 > 19.6
    assert chips < fleet["needed_chips"]
    _, said, _ = run(capsys, *LOADED, "--chips", str(chips))
    assert f"it takes --chips {fleet['needed_chips']}" in " ".join(said.split())
    assert run(capsys, *LOADED, "--chips", str(fleet["needed_chips"]))[0] == 0


def test_more_chips_carry_more_requests(capsys: Capture) -> None:
    carried = []
    for chips in (8, 28):
        _, out, _ = run(capsys, *LOADED, "--chips", str(chips), "--json")
        carried.append(json.loads(out)["fleet"]["options"][0]["carries_per_s"])
    assert carried == sorted(carried)
    assert carried[-1] > 2 * carried[0]


@pytest.mark.parametrize(
    "words",
    [
        ("llama-3.1-8b", "--chip", "h200", "--in", "128", "--batch", "1..2048"),
        ("mixtral-8x7b", "--chip", "h200", "--tp", "2", "--in", "128", "--batch", "16..2048"),
        ("llama-3.1-70b", "--chip", "h200", "--tp", "4", "--pp", "2", "--in", "64",
         "--batch", "8..4096"),
    ],
)  # fmt: skip
def test_table_and_plot_turn_at_the_same_batch(capsys: Capture, words: tuple[str, ...]) -> None:
    found = answer(capsys, "serve", *words)
    turn = found["options"][0]["critical_batch"]
    points = [each["option"] for each in found["sweep"] if each["option"]]
    assert {each["critical_batch"] for each in points} == {turn}
    limits = [(each["sequences"] >= turn, each["products_limit"]) for each in points]
    assert {limit for above, limit in limits if above} == {"math"}
    assert {limit for above, limit in limits if not above} == {"memory bandwidth"}
    _, out, _ = run(capsys, "serve", *words)
    assert f"critical batch: about {turn:,.0f} sequences" in " ".join(out.split())


def test_counts_are_whole_numbers_in_json(capsys: Capture) -> None:
    for words in (
        ("serve", "llama-3.1-8b", "--chip", "h100"),
        ("serve", "deepseek-v3", "--chip", "b200", "--ep", "8", "--precision", "fp8"),
        ("serve", "llama-3.1-70b", "--chip", "groq", "--precision", "int8"),
    ):
        option = answer(capsys, *words)["options"][0]
        assert isinstance(option["sequences"], int)
        assert isinstance(option["most_sequences"], int)
        assert option["sequences"] <= option["most_sequences"]


def test_how_full_a_fleet_is_depends_on_the_rate(capsys: Capture) -> None:
    said = []
    for rate in ("2", "20"):
        words = [rate if word == "20" else word for word in LOADED]
        _, out, _ = run(capsys, *words)
        assert "busy 100 %" not in out
        said.append(" ".join(out.split()).split("loads them to ")[1].split(" %")[0])
    assert float(said[0]) < float(said[1]) < 100


def test_experts_are_told_of_in_serving_and_training(capsys: Capture) -> None:
    serve = (
        "serve",
        "deepseek-v3",
        "--chip",
        "b200",
        "--precision",
        "fp8",
        "--tp",
        "1",
        "--ep",
        "8",
    )
    few, many = (
        answer(capsys, *serve, "--batch", size)["options"][0]["experts"] for size in ("8", "2048")
    )
    assert 0.1 < few["touched_share"] < 0.3
    assert many["touched_share"] > 0.99
    assert many["all_to_all_bytes"] > 100 * few["all_to_all_bytes"] > 0
    assert few["imbalance_frac"] > 0
    _, out, _ = run(capsys, *serve, "--explain")
    for words in ("of a layer's experts", "all-to-all of experts", "fullest expert chip"):
        assert words in " ".join(out.split())
    train = ("train", "deepseek-v3", "--chip", "h800", "--chips", "2048", "--ep", "64")
    found = answer(capsys, *train)["experts"]
    assert found["all_to_all_s"] > 0
    assert found["imbalance_s"] > 0
    _, out, _ = run(capsys, *train, "--explain")
    assert "tokens a micro-batch touch 100 %" in " ".join(out.split())
    assert "all-to-all of experts" in out
