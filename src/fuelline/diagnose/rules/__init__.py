"""Every root cause that can be named, one file each.

Within a stage the more specific rule stands first, and the first that fires speaks for the stage.
Rules about imported traces are silent on recorded runs, and the other way round.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from fuelline.diagnose.rules.allocator_stalls import AllocatorStalls
from fuelline.diagnose.rules.checkpoint_pause import CheckpointPause
from fuelline.diagnose.rules.code_in_step import CodeInStep
from fuelline.diagnose.rules.collection_pause import CollectionPause
from fuelline.diagnose.rules.degraded_link import DegradedLink
from fuelline.diagnose.rules.drained_queue import DrainedQueue
from fuelline.diagnose.rules.epoch_restart import EpochRestart
from fuelline.diagnose.rules.exposed_copies import ExposedCopies
from fuelline.diagnose.rules.exposed_exchange import ExposedExchange
from fuelline.diagnose.rules.file_lock import FileLock
from fuelline.diagnose.rules.host_sync import HostSync
from fuelline.diagnose.rules.late_ranks import LateRanks
from fuelline.diagnose.rules.launch_bound import LaunchBound
from fuelline.diagnose.rules.loop_pause import LoopPause
from fuelline.diagnose.rules.loop_transform import LoopTransform
from fuelline.diagnose.rules.network_bandwidth import NetworkBandwidth
from fuelline.diagnose.rules.network_jitter import NetworkJitter
from fuelline.diagnose.rules.network_latency import NetworkLatency
from fuelline.diagnose.rules.page_cache import PageCacheThrash
from fuelline.diagnose.rules.rank_jitter import RankJitter
from fuelline.diagnose.rules.ranks_take_turns import RanksTakeTurns
from fuelline.diagnose.rules.sick_card import SickCard
from fuelline.diagnose.rules.slow_copies import SlowCopies
from fuelline.diagnose.rules.slow_function import SlowFunction
from fuelline.diagnose.rules.slow_handoff import SlowHandoff
from fuelline.diagnose.rules.slow_reads import SlowReads
from fuelline.diagnose.rules.slow_worker import SlowWorker
from fuelline.diagnose.rules.small_batches import SmallBatches
from fuelline.diagnose.rules.small_files import SmallFiles
from fuelline.diagnose.rules.starved_device import StarvedDevice
from fuelline.diagnose.rules.storage_bandwidth import StorageBandwidth
from fuelline.diagnose.rules.storage_contention import StorageContention
from fuelline.diagnose.rules.straggler import Straggler
from fuelline.diagnose.rules.throttled_chip import ThrottledChip
from fuelline.diagnose.rules.too_few_workers import TooFewWorkers
from fuelline.diagnose.rules.too_little_cpu import TooLittleCpu
from fuelline.diagnose.rules.uneven_microbatches import UnevenMicrobatches
from fuelline.diagnose.rules.uneven_stages import UnevenStages
from fuelline.diagnose.rules.unfilled_chip import UnfilledChip
from fuelline.diagnose.rules.validation_pause import ValidationPause
from fuelline.diagnose.rules.worker_lock import WorkerLock

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
    (WorkerLock(), SlowFunction(), TooLittleCpu(), TooFewWorkers()),
    (LoopTransform(),),
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
    (EpochRestart(),),
    (Straggler(), RankJitter()),
    (NetworkJitter(), NetworkBandwidth(), NetworkLatency()),
    (StarvedDevice(),),
    (LaunchBound(),),
    (UnfilledChip(),),
    (DrainedQueue(),),
    (ExposedCopies(),),
    (AllocatorStalls(),),
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
