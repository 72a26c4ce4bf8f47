"""Two ranks on the emulated device: who waits for a slow device is told by the devices' logs."""

import json
import sys

import torch
import torch.distributed as dist
from bench import emu
from bench.emu import collectives
from bench.torture.job import wait_for_threads
from torch import nn
from torch.distributed.fsdp import fully_shard

torch.set_num_threads(1)
collectives.register()
dist.init_process_group(collectives.NAME)
rank = dist.get_rank()

summed = torch.full((4,), float(rank + 1), device="emu")
dist.all_reduce(summed)
sharded = fully_shard(nn.Linear(8, 8).to("emu"))
sharded(torch.ones(2, 8, device="emu")).sum().backward()
model = nn.parallel.DistributedDataParallel(nn.Linear(8, 8).to("emu"))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
dist.barrier()
emu.library.emu_clear_log()

for _ in range(3):
    emu.kernel(300 if rank else 10)
    model(torch.ones(2, 8, device="emu")).sum().backward()
    optimizer.step()
is_pending = not torch.accelerator.current_stream().query()
torch.accelerator.synchronize()
log = emu.read_log()
exchanges = log[log["doing"] == emu.Doing.EXCHANGE]
waited_ms = float((exchanges["end_ns"] - exchanges["start_ns"]).sum() / 1e6)
answer = {"summed": summed.tolist(), "pending": bool(is_pending), "waited_ms": waited_ms}
if not rank:
    sys.stdout.write(json.dumps(answer) + "\n")
dist.barrier()
dist.destroy_process_group()
wait_for_threads()
