"""Jobs on this host, as they are listed."""

import subprocess
import sys
from pathlib import Path

import pytest

from fuelline.record.attach.jobs import job_of
from fuelline.record.attach.processes import look_at


@pytest.mark.integration
def test_a_job_is_called_by_its_script_though_its_folder_is_another(tmp_path: Path) -> None:
    (tmp_path / "finetune.py").write_text("print(flush=True)\ninput()\n")
    elsewhere = [sys.executable, "-u", "finetune.py", "--lr", "1"]
    assert Path.cwd() != tmp_path
    with subprocess.Popen(
        elsewhere, cwd=tmp_path, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as job:
        assert job.stdout is not None
        job.stdout.readline()
        seen = look_at(job.pid)
        assert seen is not None
        assert job_of(seen).name == "finetune"
        job.kill()
