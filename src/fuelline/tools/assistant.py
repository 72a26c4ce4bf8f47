"""For assistants: a server of the Model Context Protocol on stdin and stdout, read-only.

Every tool types a command with `--json` and gives what that prints, in a process of its own with
its bounds: an assistant is told what a user is told. Only the options below can be given, so no
file is written and no job is started.
"""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

from mcp.server import MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from mcp.types import ToolAnnotations

from fuelline import __version__
from fuelline.record.launch import own_python

if TYPE_CHECKING:
    from collections.abc import Sequence

_LONGEST_S = 120.0
_MOST_LISTED = 50
_TOLD = (
    "Fuelline finds what keeps accelerators waiting in training. Runs are named by id, by the "
    "job's name (its newest run), or left empty for the last run. Figures are measured or "
    "predicted with intervals; a `Missing` has the reason why there is none. Start with diagnose."
)
_READ_ONLY = ToolAnnotations(read_only_hint=True, open_world_hint=False)


def serve_assistant() -> None:
    """Until the other side closes."""
    server = MCPServer("fuelline", instructions=_TOLD, version=__version__, log_level="WARNING")
    for tool in (list_runs, diagnose, whatif, compare, plan_serve, plan_train):
        server.tool(annotations=_READ_ONLY)(tool)
    server.run("stdio")


async def list_runs(words: str = "", limit: int = 20) -> str:
    """Recorded runs, the newest first: id, when, state, verdict. `words` must all be in a row."""
    rows = json.loads(await _ask("runs"))
    wanted = words.lower().split()
    found = [
        row for row in reversed(rows) if all(word in json.dumps(row).lower() for word in wanted)
    ]
    return json.dumps(found[: max(1, min(limit, _MOST_LISTED))])


async def diagnose(run: str = "", price: float | None = None) -> str:
    """Why a run's training waits, with evidence and cost; `price`: USD per accelerator-hour."""
    return await _ask("diagnose", run, price=price)


async def whatif(
    run: str = "",
    *,
    workers: int | None = None,
    prefetch: int | None = None,
    batch_size: int | None = None,
    storage: str | None = None,
    cores: float | None = None,
    chip: str | None = None,
    transform: str | None = None,
) -> str:
    """The predicted speedup of a change; without one, what would help most.

    `storage`: warm, nvme, ssd, hdd or a factor such as 2x; `chip`: a name or 3x; `transform`: 2x.
    """
    return await _ask(
        "whatif", run, workers=workers, prefetch=prefetch, batch_size=batch_size, storage=storage,
        cores=cores, chip=chip, transform=transform,
    )  # fmt: skip


async def compare(before: str, after: str, threshold: float | None = None) -> str:
    """What changed between two runs, beyond the noise; `threshold` in percent of a step."""
    return await _ask("compare", before, after, threshold=threshold)


async def plan_serve(
    model: str,
    *,
    chip: str | None = None,
    prompt_tokens: int | None = None,
    output_tokens: int | None = None,
    requests_per_s: float | None = None,
    slo: str | None = None,
    precision: str | None = None,
) -> str:
    """What it takes to serve a language model, by chip; `slo`: ttft=500ms,tpot=40ms."""
    return await _ask(
        "plan", "serve", model, chip=chip, **{"in": prompt_tokens}, out=output_tokens,
        rate=requests_per_s, slo=slo, precision=precision,
    )  # fmt: skip


async def plan_train(
    model: str, chip: str | None = None, chips: int | None = None, tokens: str | None = None
) -> str:
    """What it takes to train a language model: time, money, the limit; `tokens` such as 1T."""
    return await _ask("plan", "train", model, chip=chip, chips=chips, tokens=tokens)


async def _ask(command: str, *names: str, **options: object) -> str:
    """What the command prints; why it refuses, as an error."""
    words = [command, *(name for name in names if name), "--json"]
    if any(name.startswith("-") for name in names):
        raise ToolError("A name begins with no dash.")
    words += _spell(options)
    child = await asyncio.create_subprocess_exec(
        *own_python("fuelline.cli.serve.making", words),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        said, problem = await asyncio.wait_for(child.communicate(), _LONGEST_S)
    except asyncio.TimeoutError:
        child.kill()
        raise ToolError(f"`fuelline {command}` took longer than {_LONGEST_S:.0f} s.") from None
    if not said.strip():
        raise ToolError(problem.decode("utf-8", "replace").strip() or "no answer")
    return said.decode()


def _spell(options: dict[str, Any]) -> Sequence[str]:
    return [
        f"--{name.replace('_', '-')}={value:g}"
        if isinstance(value, float)
        else f"--{name.replace('_', '-')}={value}"
        for name, value in options.items()
        if value is not None
    ]
