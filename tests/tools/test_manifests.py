"""The manifests of docs/fleet.md, by Kubernetes' own schema; no cluster is asked."""

import shlex
from pathlib import Path

import pytest

from fuelline.cli.parser import parse

validator = pytest.importorskip("kubernetes_validate", reason="runs in `make tools`")
yaml = pytest.importorskip("yaml", reason="comes with it")
MANIFESTS = sorted((Path(__file__).parents[2] / "examples" / "kubernetes").glob("*.yaml"))


@pytest.mark.parametrize("path", MANIFESTS, ids=lambda path: path.name)
def test_a_manifest_is_valid_and_so_are_its_commands(path: Path) -> None:
    manifest = yaml.safe_load(path.read_text())
    validator.validate(manifest, "1.29", strict=True)
    wrong = {**manifest, "spec": {**manifest["spec"], "template_": {}}}
    with pytest.raises(validator.ValidationError):
        validator.validate(wrong, "1.29", strict=True)
    template = (
        manifest["spec"].get("template") or manifest["spec"]["jobTemplate"]["spec"]["template"]
    )
    (container,) = template["spec"]["containers"]
    words = [*container["command"], *container["args"]]
    lines = [words] if words[0] == "fuelline" else list(map(shlex.split, words[-1].splitlines()))
    commands = [line[1:] for line in lines if line[0] == "fuelline"]
    assert commands
    for command in commands:
        until = command.index(">") if ">" in command else None
        assert parse(command[:until]).act is not None
