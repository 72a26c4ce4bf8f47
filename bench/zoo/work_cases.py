"""The zoo's cases of work that is no training step: maps over data sets, ingestion, inference, RL.

They run in an environment of their own (`make zoo-work`), because they use real parsers and
libraries from PyPI.
"""

from bench.zoo.case import HEALTHY, Case, Pair
from bench.zoo.faults.groups import Hogs, OneCore, Quota
from bench.zoo.faults.mounts import SlowMount, SlowOut
from bench.zoo.faults.preload import SlowReads

INGEST = "ingest"
MAP = "dataset_map"
PARSER = "Whether a parser decodes or transforms is a matter of words; its samples fall on both."
CROWDED = "If others keep the second core busy, it is not free."


def _prepare(limit: str) -> tuple[Pair, ...]:
    return (("transform", limit), ("decode", limit))


SERIAL = (*_prepare("parallelism"),)

WORK_CASES = [
    Case(
        name="work-pdf-serial",
        sentence="PDFs are parsed by pypdf one after the other; a core is free.",
        job=INGEST,
        args="--pdfs 60 --parser pypdf",
        without="--layers 40 --width 1024",
        truth=SERIAL,
        why_two=PARSER,
    ),
    Case(
        name="work-pdf-tokens",
        sentence="PDFs are parsed quickly by PyMuPDF, then tokenised in Python, in one process.",
        job=INGEST,
        args="--pdfs 60 --parser pymupdf --times 6",
        truth=SERIAL,
        why_two=PARSER,
    ),
    Case(
        name="work-pdf-latency",
        sentence="Every read of a document takes 30 ms longer.",
        job=INGEST,
        data="files",
        args="--parser bytes",
        fault=SlowReads(delay_ms=30),
        truth=(("read", "latency"),),
    ),
    Case(
        name="work-pdf-mount",
        sentence="Documents are on a mount where every read takes 15 ms longer.",
        job=INGEST,
        data="files",
        args="--parser bytes",
        fault=SlowMount(read_ms=15),
        truth=(("read", "latency"),),
    ),
    Case(
        name="work-pdf-metadata",
        sentence="Documents are small files on a mount where open takes 15 ms and stat 3 ms.",
        job=INGEST,
        data="files",
        args="--parser bytes",
        fault=SlowMount(open_ms=15, getattr_ms=3),
        truth=(("read", "latency"),),
    ),
    Case(
        name="work-pdf-threads",
        sentence="Threads parse PDFs in Python, and take turns at its lock.",
        job=INGEST,
        args="--pdfs 60 --parser pypdf --pool threads --workers 4",
        truth=(("transform", "code"), ("decode", "code")),
        why_two=PARSER,
    ),
    Case(
        name="work-pdf-quota",
        sentence="Two processes parse PDFs under a quota of half a core.",
        job=INGEST,
        args="--pdfs 60 --parser pypdf --pool processes --workers 2",
        fault=Quota(0.5),
        truth=_prepare("cores"),
        why_two=PARSER,
    ),
    Case(
        name="work-pdf-one-core",
        sentence="Two processes parse PDFs, and may use one core.",
        job=INGEST,
        args="--pdfs 60 --parser pypdf --pool processes --workers 2",
        fault=OneCore(),
        truth=_prepare("cores"),
        why_two=PARSER,
    ),
    Case(
        name="work-pdf-neighbours",
        sentence="Other processes keep all cores busy while PDFs are parsed.",
        job=INGEST,
        args="--pdfs 60 --parser pypdf --pool processes --workers 2",
        fault=Hogs(job_shares=512),
        truth=_prepare("cores"),
        why_two=PARSER,
    ),
    Case(
        name="work-write-mount",
        sentence="Every result is a small file on a mount where writing takes 20 ms.",
        job=INGEST,
        data="files",
        args="--parser bytes --store files",
        fault=SlowOut(write_ms=20),
        truth=(("write", "latency"),),
    ),
    Case(
        name="work-write-log",
        sentence="Results go line by line, each flushed, to a file on that mount.",
        job=INGEST,
        data="files",
        args="--parser bytes --store log",
        fault=SlowOut(write_ms=20),
        truth=(("write", "latency"),),
    ),
    Case(
        name="work-service",
        sentence="A service is asked once for every document and takes 40 ms.",
        job=INGEST,
        data="files",
        args="--parser bytes --service-ms 40",
        truth=(("fetch", "parallelism"),),
    ),
    Case(
        name="work-map-serial",
        sentence="datasets.map runs a Python function in one process; a core is free.",
        job=MAP,
        args="--function clean",
        truth=SERIAL,
        why_two=PARSER,
    ),
    Case(
        name="work-map-batched",
        sentence="datasets.map with batched=True, in one process.",
        job=MAP,
        args="--function clean_many",
        truth=SERIAL,
        why_two=PARSER,
    ),
    Case(
        name="work-map-pack",
        sentence="Texts are tokenised and packed before training, in one process.",
        job=MAP,
        args="--function pack",
        truth=SERIAL,
        why_two=PARSER,
    ),
    Case(
        name="work-map-read",
        sentence="datasets.map reads a file for each row; each read takes 20 ms longer.",
        job=MAP,
        data="files",
        args="--function read --rows 300",
        fault=SlowReads(delay_ms=20),
        truth=(("read", "latency"),),
    ),
    Case(
        name="work-map-cores",
        sentence="datasets.map with two processes that may use one core.",
        job=MAP,
        args="--function clean --num-proc 2 --rows 20000",
        fault=OneCore(),
        truth=_prepare("cores"),
        why_two=PARSER,
    ),
    Case(
        name="work-healthy-embed",
        sentence="Documents are embedded by a model that takes nearly all of the time.",
        job=INGEST,
        data="files",
        args="--parser bytes --layers 60 --width 1024",
        truth=(HEALTHY,),
    ),
    Case(
        name="work-healthy-embed-pool",
        sentence="The same, with a process that prepares ahead.",
        job=INGEST,
        data="files",
        args="--parser bytes --layers 60 --width 1024 --pool processes --workers 1",
        truth=(HEALTHY,),
    ),
]
