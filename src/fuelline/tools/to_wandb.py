"""Into Weights & Biases: figures and verdict in the run's summary, the page among its media.

Whether that is sent or kept for `wandb sync` is W&B's own setting (WANDB_MODE, `wandb offline`).
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import TYPE_CHECKING

import wandb
from wandb.errors import Error

from fuelline.schema.errors import RefusedError

if TYPE_CHECKING:
    from fuelline.pipeline.handed import HandedRun

_FOLDER = re.compile(r"(?:offline-)?run-\d{8}_\d{6}-(?P<id>[^/]+)")
"""That a run leaves in WANDB_DIR, `wandb/` by default."""


def attach(handed: HandedRun, where: str) -> str:
    """To the run `ID` or `ENTITY/PROJECT/ID`; one that W&B does not know yet is made."""
    *above, run_id = where.split("/")
    entity, project = ([None, None, *above])[-2:]
    try:
        settings = wandb.Settings(silent=True, console="off", disable_git=True)
        run = wandb.init(
            id=run_id, project=project, entity=entity, resume="allow", settings=settings
        )
        run.summary.update({**handed.figures(), **handed.tags()})
        run.log({"fuelline/page": wandb.Html(handed.page.read_text(), inject=False)})
        kept, is_offline = run.dir, run.offline
        run.finish()
    except (Error, OSError) as error:
        words = next(iter(str(error).splitlines()), "")
        raise RefusedError(
            f"W&B did not take it ({words}). Nothing is attached to {where!r}. "
            "`WANDB_MODE=offline` keeps it here for `wandb sync`."
        ) from None
    folder = Path(kept).parent
    return f"{folder}; `wandb sync {folder}` sends it" if is_offline else f"W&B run {where}"


def find(began_s: float) -> str | None:
    """WANDB_RUN_ID, or the only run that the job has left in its folder."""
    named = os.environ.get("WANDB_RUN_ID")
    if named:
        return named
    folder = Path(os.environ.get("WANDB_DIR", ".")) / "wandb"
    try:
        runs = [
            found["id"]
            for path in folder.iterdir()
            if (found := _FOLDER.fullmatch(path.name)) and path.stat().st_mtime >= began_s
        ]
    except OSError:
        return None
    return runs[0] if len(set(runs)) == 1 else None
