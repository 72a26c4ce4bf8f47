"""Rows of a table for tests."""

from pathlib import Path

HEAD = (
    "id,kind,model,params_b,active_params_b,hardware,n_gpus,tp,pp,dp,ep,precision,"
    "batch_or_concurrency,input_len,output_len,metric,value,unit,source,confidence,notes,regime"
)
DECODE = (
    "R1,decode,Llama-2-7B,6.74,6.74,A100-80GB-SXM,1,1,1,1,1,bf16,1,5,200,"
    "decode_throughput_per_user,104,tok/s,somewhere,found,,clean"
)


def write_table(path: Path, *lines: str) -> Path:
    path.write_text("\n".join([HEAD, *lines]) + "\n")
    return path


def change(line: str, **cells: str) -> str:
    """A line with some cells replaced."""
    named = dict(zip(HEAD.split(","), line.split(","), strict=True))
    assert not cells.keys() - named.keys()
    return ",".join({**named, **cells}.values())
