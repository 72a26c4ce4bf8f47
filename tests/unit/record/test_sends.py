"""Stages of a pipeline send each other tensors; a group of one rank and a stand-in for the call."""

from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from torch import distributed

from fuelline.record.hooks.torch.install import Installation
from fuelline.record.hooks.torch.sends import Sends
from fuelline.record.spool import Spool
from fuelline.schema.wire import Collective, Flag, Kind
from tests.integration.harness import read_spools

pytestmark = pytest.mark.torch


def test_an_exchange_between_stages_is_recorded_with_the_wait_for_it(tmp_path: Path) -> None:
    store = distributed.HashStore()
    distributed.init_process_group("gloo", store=store, rank=0, world_size=1)
    installation = Installation(Spool(str(tmp_path / "spool")))
    try:
        installation.guest.appoint()
        installation.add("sends", "install")
        hook = next(each for each in installation.hooks if isinstance(each, Sends))
        handles = [distributed.Work(), distributed.Work()]
        exchange = hook.wrap(lambda ops: handles)
        ops = [SimpleNamespace(group=None, tensor=torch.zeros(size)) for size in (4, 6)]
        assert exchange(ops) is handles
        assert len(hook.roll.handles.open) == 2
        assert exchange([]) is handles
    finally:
        installation.uninstall()
        distributed.destroy_process_group()
    (left,) = read_spools(tmp_path)
    (record,) = left.of(Kind.COLLECTIVE)
    assert record[2:4] == (Collective.SENDS, 40)
    assert record[5] == -1
    assert record[8] == Flag.ASYNC
    assert not left.faults


def test_torch_recognises_what_it_is_given_to_send(tmp_path: Path) -> None:
    installation = Installation(Spool(str(tmp_path / "spool")))
    sends, receives = distributed.isend, distributed.irecv
    installation.add("sends", "install")
    try:
        assert (distributed.isend, distributed.irecv) == (sends, receives)
    finally:
        installation.uninstall()
