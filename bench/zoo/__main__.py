"""`python -m bench.zoo`: run the zoo, print as it goes, keep the outcomes in bench/out/zoo.json.

python -m bench.zoo --only read-iops-files --runs 1
python -m bench.zoo --check          are the faults really there? no recorder involved
python -m bench.zoo --device emu     on a device in torch (bench/emu) instead of a queue of sleeps
python -m bench.zoo --report         the last outcomes as a section of bench/RESULTS.md
python -m bench.zoo --tensorflow     the cases of tf.data and Keras, kept in zoo.tensorflow.json
python -m bench.zoo --work           the cases without training steps, kept in zoo.work.json
"""

from __future__ import annotations

import argparse
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from bench.zoo import outcome, report
from bench.zoo.cases import CASES
from bench.zoo.check import check
from bench.zoo.job import my_turn
from bench.zoo.load import LOADS, background
from bench.zoo.outcome import Outcome
from bench.zoo.record import run_case
from bench.zoo.tensorflow_cases import TENSORFLOW_CASES
from bench.zoo.work_cases import WORK_CASES

if TYPE_CHECKING:
    from bench.zoo.case import Case

OUT = Path(__file__).parents[1] / "out"


def main(argv: list[str] | None = None) -> dict[str, object]:
    """Run what was asked for; the figures of the outcomes that are kept afterwards."""
    options = _options(argv)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that faults are undone
    if options.check:
        return {"passed": check(_chosen(options), options.device)}
    if not options.report:
        run(options)
    told = load_outcomes(_kept_in(options))
    if not options.only and not options.tensorflow and not options.work:
        report.write_report(told, options.device)
    ours = outcome.summary([o for o in told if o.tool == "fuelline"])
    print(report.confusion_table([o for o in told if o.tool == "fuelline"]))
    print(ours)
    return ours


def run(options: argparse.Namespace) -> None:
    """Each repetition under another load; outcomes are kept after every case."""
    loads = [options.load] if options.load else [LOADS[n % len(LOADS)] for n in range(options.runs)]
    for load in loads:
        with background(load):
            for case in _chosen(options):
                told = [] if options.peers_only else [run_case(case, load, options.device)]
                if "traceml" in options.peers and load == loads[0]:
                    from bench.zoo.peers import traceml

                    told.append(traceml.run_case(case, load))
                for one in told:
                    _print(one)
                keep(told, _kept_in(options))


def keep(fresh: list[Outcome], path: Path) -> None:
    """Replace the outcomes of the same case, tool and load."""
    replaced = {(o.case, o.tool, o.load) for o in fresh}
    order = {
        case.name: place for place, case in enumerate([*CASES, *TENSORFLOW_CASES, *WORK_CASES])
    }
    with my_turn(OUT / "outcomes.lock"):
        kept = [o for o in load_outcomes(path) if (o.case, o.tool, o.load) not in replaced]
        kept = sorted(
            (o for o in [*kept, *fresh] if o.case in order),
            key=lambda o: (o.tool, order[o.case], LOADS.index(o.load)),
        )
        path.write_bytes(msgspec.json.format(msgspec.json.encode(kept)))


def load_outcomes(path: Path) -> list[Outcome]:
    """What was kept so far."""
    return msgspec.json.decode(path.read_bytes(), type=list[Outcome]) if path.exists() else []


def _kept_in(options: argparse.Namespace) -> Path:
    kind = "tensorflow" if options.tensorflow else "work" if options.work else options.device
    return OUT / (f"zoo.{kind}.json" if kind else "zoo.json")


def _chosen(options: argparse.Namespace) -> list[Case]:
    names, cases = options.only, TENSORFLOW_CASES if options.tensorflow else CASES
    cases = WORK_CASES if options.work else cases
    unknown = set(names) - {case.name for case in cases}
    if unknown:
        sys.exit(f"no such case: {', '.join(sorted(unknown))}; see bench/zoo/*cases.py")
    return [case for case in cases if not names or case.name in names]


def _print(told: Outcome) -> None:
    said = " x ".join(told.said) if told.said else "-"
    truth = " x ".join(told.truth[0])
    alarm = " FALSE ALARM" if told.false_alarm else ""
    unexplained = "-" if told.unexplained_frac is None else f"{told.unexplained_frac:.1%}"
    print(
        f"{told.status:11} {told.tool:8} {told.case:30} {told.load:8}"
        f" truth {truth:22} said {said:22} unexplained {unexplained:>6}{alarm}"
    )
    if told.culprit:
        print(f"            culprit {told.culprit}; said {told.said_culprit or 'nobody'}")
    if told.status != "right":
        print(f"            {told.words[:300]}")
    sys.stdout.flush()


def _options(argv: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m bench.zoo", description=__doc__.splitlines()[0]
    )
    parser.add_argument("--only", nargs="+", default=[], metavar="NAME", help="only these cases")
    parser.add_argument(
        "--runs", type=int, default=1, help="repetitions, each under another load (default 1)"
    )
    parser.add_argument("--load", choices=LOADS, help="one repetition under this load")
    parser.add_argument(
        "--peers", nargs="*", default=[], choices=["traceml"], help="also run these"
    )
    parser.add_argument("--peers-only", action="store_true", help="run nothing but the peers")
    parser.add_argument(
        "--device",
        choices=["emu"],
        default="",
        help="run all jobs on the device of bench/emu (default: a queue of sleeps)",
    )
    parser.add_argument("--check", action="store_true", help="only see that faults are real")
    parser.add_argument("--tensorflow", action="store_true", help="the cases of TensorFlow")
    parser.add_argument("--report", action="store_true", help="only write the report again")
    parser.add_argument("--work", action="store_true", help="the cases without training steps")
    return parser.parse_args(argv)


if __name__ == "__main__":
    sys.exit(0 if main()["passed"] else 1)
