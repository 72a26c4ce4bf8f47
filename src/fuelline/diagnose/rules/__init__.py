"""Every root cause that can be named, one file each.

Within a stage the more specific rule stands first, and the first that fires speaks for the stage.
Rules about imported traces are silent on recorded runs, and the other way round.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from fuelline.diagnose.rules.recorded.blocked_workers import BlockedWorkers
from fuelline.diagnose.rules.recorded.checkpoint_pause import CheckpointPause
from fuelline.diagnose.rules.recorded.code_in_step import CodeInStep
from fuelline.diagnose.rules.recorded.collection_pause import CollectionPause
from fuelline.diagnose.rules.recorded.compile_pause import CompilePause
from fuelline.diagnose.rules.recorded.degraded_link import DegradedLink
from fuelline.diagnose.rules.recorded.epoch_restart import EpochRestart
from fuelline.diagnose.rules.recorded.file_lock import FileLock
from fuelline.diagnose.rules.recorded.host_sync import HostSync
from fuelline.diagnose.rules.recorded.loop_pause import LoopPause
from fuelline.diagnose.rules.recorded.loop_transform import LoopTransform
from fuelline.diagnose.rules.recorded.memory_bound import MemoryBound
from fuelline.diagnose.rules.recorded.network_bandwidth import NetworkBandwidth
from fuelline.diagnose.rules.recorded.network_jitter import NetworkJitter
from fuelline.diagnose.rules.recorded.network_latency import NetworkLatency
from fuelline.diagnose.rules.recorded.one_at_a_time import OneAtATime
from fuelline.diagnose.rules.recorded.page_cache import PageCacheThrash
from fuelline.diagnose.rules.recorded.rank_jitter import RankJitter
from fuelline.diagnose.rules.recorded.sick_card import SickCard
from fuelline.diagnose.rules.recorded.slow_collate import SlowCollate
from fuelline.diagnose.rules.recorded.slow_copies import SlowCopies
from fuelline.diagnose.rules.recorded.slow_function import SlowFunction
from fuelline.diagnose.rules.recorded.slow_handoff import SlowHandoff
from fuelline.diagnose.rules.recorded.slow_reads import SlowReads
from fuelline.diagnose.rules.recorded.slow_writes import SlowWrites
from fuelline.diagnose.rules.recorded.small_batches import SmallBatches
from fuelline.diagnose.rules.recorded.small_files import SmallFiles
from fuelline.diagnose.rules.recorded.storage_bandwidth import StorageBandwidth
from fuelline.diagnose.rules.recorded.storage_contention import StorageContention
from fuelline.diagnose.rules.recorded.straggler import Straggler
from fuelline.diagnose.rules.recorded.throttled_chip import ThrottledChip
from fuelline.diagnose.rules.recorded.too_few_workers import TooFewWorkers
from fuelline.diagnose.rules.recorded.too_little_cpu import TooLittleCpu
from fuelline.diagnose.rules.recorded.validation_pause import ValidationPause
from fuelline.diagnose.rules.recorded.worker_lock import WorkerLock
from fuelline.diagnose.rules.traced.allocator_stalls import AllocatorStalls
from fuelline.diagnose.rules.traced.drained_queue import DrainedQueue
from fuelline.diagnose.rules.traced.exposed_copies import ExposedCopies
from fuelline.diagnose.rules.traced.exposed_exchange import ExposedExchange
from fuelline.diagnose.rules.traced.host_code import HostCode
from fuelline.diagnose.rules.traced.late_ranks import LateRanks
from fuelline.diagnose.rules.traced.launch_bound import LaunchBound
from fuelline.diagnose.rules.traced.ranks_take_turns import RanksTakeTurns
from fuelline.diagnose.rules.traced.slow_preparation import SlowPreparation
from fuelline.diagnose.rules.traced.slow_worker import SlowWorker
from fuelline.diagnose.rules.traced.start_up import StartUp
from fuelline.diagnose.rules.traced.starved_device import StarvedDevice
from fuelline.diagnose.rules.traced.uneven_microbatches import UnevenMicrobatches
from fuelline.diagnose.rules.traced.uneven_stages import UnevenStages
from fuelline.diagnose.rules.traced.unfilled_chip import UnfilledChip

if TYPE_CHECKING:
    from fuelline.diagnose.rule import Rule

RULE_GROUPS: tuple[tuple[Rule, ...], ...] = (
    (
        FileLock(),
        PageCacheThrash(),
        StorageContention(),
        StorageBandwidth(),
        SmallFiles(),
        SlowReads(),
    ),
    (SlowWrites(),),
    (OneAtATime(), BlockedWorkers()),
    (WorkerLock(), MemoryBound(), SlowFunction(), TooLittleCpu(), TooFewWorkers()),
    (LoopTransform(),),
    (SlowCollate(),),
    (SlowHandoff(),),
    (DegradedLink(), SlowCopies()),
    (SickCard(),),
    (ThrottledChip(),),
    (SmallBatches(), HostSync()),
    (CheckpointPause(),),
    (ValidationPause(),),
    (CodeInStep(),),
    (LoopPause(),),
    (CollectionPause(),),
    (CompilePause(),),
    (EpochRestart(),),
    (Straggler(), RankJitter()),
    (NetworkJitter(), NetworkBandwidth(), NetworkLatency()),
    (SlowPreparation(), StarvedDevice()),
    (LaunchBound(),),
    (UnfilledChip(),),
    (DrainedQueue(),),
    (ExposedCopies(),),
    (AllocatorStalls(),),
    (StartUp(),),
    (HostCode(),),
    (
        SlowWorker(),
        UnevenStages(),
        UnevenMicrobatches(),
        LateRanks(),
        RanksTakeTurns(),
    ),
    (ExposedExchange(),),
)

RULES: tuple[Rule, ...] = tuple(
    sorted((rule for group in RULE_GROUPS for rule in group), key=lambda rule: rule.code)
)
