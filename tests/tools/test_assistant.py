"""`fuelline mcp` asked by the official client: the same JSON as the commands print, read-only."""

from __future__ import annotations

import asyncio
import json
import subprocess
from typing import Any

import pytest

from tests.integration.serving import FUELLINE

mcp = pytest.importorskip("mcp", reason="`make tools` has it")
stdio = pytest.importorskip("mcp.client.stdio", reason="`make tools` has it")

ASKED: list[tuple[str, dict[str, Any], list[str]]] = [
    ("diagnose", {"run": "job"}, ["diagnose", "job"]),
    ("whatif", {"run": "job", "workers": 2}, ["whatif", "job", "--workers", "2"]),
    ("compare", {"before": "job", "after": "job"}, ["compare", "job", "job"]),
    (
        "plan_serve",
        {"model": "llama-3.1-8b", "chip": "h100", "prompt_tokens": 512},
        ["plan", "serve", "llama-3.1-8b", "--chip", "h100", "--in", "512"],
    ),
]


def test_tools_say_what_the_commands_say(recorded) -> None:
    home, run = recorded
    told = asyncio.run(ask_all(home.environment, str(home.folder)))
    for name, _, words in ASKED:
        printed = subprocess.run(
            [*FUELLINE, *words, "--json"],
            cwd=home.folder, env=home.environment, capture_output=True, check=True,
        )  # fmt: skip
        assert json.loads(told[name]) == json.loads(printed.stdout), name
    (listed,) = json.loads(told["list_runs"])
    assert listed["run"] == run.name
    assert "no recorded run" in told["missing"] or "neither a folder" in told["missing"]
    assert "dash" in told["dash"]


async def ask_all(environment: dict[str, str], folder: str) -> dict[str, str]:
    server = mcp.StdioServerParameters(
        command=FUELLINE[0], args=[*FUELLINE[1:], "mcp"], env=environment, cwd=folder
    )
    found: dict[str, str] = {}
    async with stdio.stdio_client(server) as streams, mcp.ClientSession(*streams) as session:
        await session.initialize()
        tools = (await session.list_tools()).tools
        assert {tool.name for tool in tools} == {"list_runs", "plan_train"} | {
            name for name, _, _ in ASKED
        }
        assert all(tool.annotations.read_only_hint for tool in tools)
        for name, words, _ in [*ASKED, ("list_runs", {}, [])]:
            answer = await session.call_tool(name, words)
            assert not answer.is_error, answer
            found[name] = answer.content[0].text
        for key, name in (("missing", "no-such-run"), ("dash", "--html=/tmp/x.html")):
            answer = await session.call_tool("diagnose", {"run": name})
            assert answer.is_error
            found[key] = answer.content[0].text
    return found
