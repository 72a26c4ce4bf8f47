"""The user's own JPEGs by every decoder that is installed here: how fast, and how far from Pillow.

Pixels of another decoder may differ by a level or more, and a picture that is decoded at half its
size differs from one that was resized afterwards; a training sees that. So each rate comes with the
difference that was measured on the same pictures. Files are read and nothing else: regular ones
that a picture's size may have, of which Pillow decodes each as a JPEG, whatever it is.

Also here: how many JPEGs one core decodes in a second, with the Pillow that is installed here, if
any.
"""

from __future__ import annotations

import io
import os
import stat
import time
import warnings
from importlib import import_module
from typing import TYPE_CHECKING, Any

from fuelline.probe.pace import time_rate
from fuelline.schema.diagnosis.ceilings import Ceiling
from fuelline.schema.readings import Missing, Signal

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path


MOST = 32
"""Pictures: enough for several cameras and qualities, and half a second of decoding each way."""
LOOK_S = 2.0
"""For them, in a folder that may have millions of files and none among them."""
MOST_BYTES = 64 * 10**6
"""Of all of them together, which are held: 32 of a camera of 12 megapixels fit."""
MOST_PIXELS = 25_000_000
"""Of one, before it is decoded: 75 MB of RGB, of which a comparison holds several."""
_MOST_WORDS = 200
"""Characters of a decoder's error that are repeated."""
_ENDINGS = (".jpg", ".jpeg")
_FORMATS = ("JPEG",)
"""Of those that Pillow knows by a file's content: for EPS it starts Ghostscript, which runs what is
in the file. A camera's file of several JPEGs (MPO) is opened as a JPEG."""


def probe_pictures(folder: Path, seconds: float) -> list[Ceiling]:
    """Nothing if the folder shows no JPEG."""
    found = list(_find(folder))
    if not found:
        return []
    try:
        pillow, numpy = import_module("PIL.Image"), import_module("numpy")
    except ImportError as missing:
        reason = Missing(reason=f"{missing.name} is not installed in this environment")
        return [_ceiling("pillow", "by Pillow", reason)]
    whole, half = _Pillow(pillow, numpy).whole, _Pillow(pillow, numpy).half
    pictures = [each for each in found if _is_whole(each, pillow, whole)]
    if not pictures:
        reason = Missing(reason=f"it decodes none of the {len(found)} that were tried")
        return [_ceiling("pillow", "by Pillow", reason)]
    base = [
        _ceiling("pillow", "by Pillow", _rate(whole, pictures, seconds)),
        _ceiling("pillow_half", "by Pillow, resized to half", _rate(half, pictures, seconds)),
    ]
    others = [
        ("simplejpeg", "by simplejpeg", _by_simplejpeg, whole),
        ("opencv", "by OpenCV", _by_opencv, whole),
        ("draft", "at half size at once (draft)", _Pillow(pillow, numpy).scaled, half),
    ]
    return [*base, *(_compare(*other, pictures=pictures, seconds=seconds) for other in others)]


def _find(folder: Path) -> Iterator[bytes]:
    until, found, left_bytes = time.monotonic() + LOOK_S, 0, MOST_BYTES
    for parent, _, names in os.walk(folder):
        for name in sorted(names):
            if found == MOST or time.monotonic() > until:
                return
            if name.lower().endswith(_ENDINGS):
                path = os.path.join(parent, name)  # noqa: PTH118 - millions of names
                content = _read(path, left_bytes)
                if content is not None:
                    found, left_bytes = found + 1, left_bytes - len(content)
                    yield content


def _read(path: str, most_bytes: int) -> bytes | None:
    """A file, by a link too, as datasets have them; a FIFO of that name would hold us for ever."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        with os.fdopen(descriptor, "rb") as file:
            status = os.fstat(descriptor)
            if not stat.S_ISREG(status.st_mode) or status.st_size > most_bytes:
                return None
            return file.read(status.st_size)
    except OSError:
        return None  # not for us to read, or gone


def _is_whole(content: bytes, pillow: Any, decode: Callable[[bytes], Any]) -> bool:
    """Of one that is not too large; Pillow may have been given a lower limit than ours."""
    with warnings.catch_warnings():
        warnings.simplefilter("error", pillow.DecompressionBombWarning)
        try:
            with _open(pillow, content) as picture:  # reads no more than its header
                if picture.width * picture.height > MOST_PIXELS:
                    return False
            decode(content)
        except Exception:  # noqa: BLE001 - damaged files make Pillow raise almost anything
            return False
    return True


def _open(pillow: Any, content: bytes) -> Any:
    return pillow.open(io.BytesIO(content), formats=_FORMATS)


class _Pillow:
    """What most datasets do, and its way of decoding at half size."""

    def __init__(self, pillow: Any, numpy: Any) -> None:
        self._pillow, self._numpy = pillow, numpy

    def whole(self, content: bytes) -> Any:
        """`Image.open(...).convert("RGB")`."""
        with _open(self._pillow, content) as picture:
            return self._numpy.asarray(picture.convert("RGB"))

    def half(self, content: bytes) -> Any:
        """Decoded whole, then resized."""
        with _open(self._pillow, content) as picture:
            size = [-(-side // 2) for side in picture.size]
            small = picture.convert("RGB").resize(size, self._pillow.Resampling.BILINEAR)
            return self._numpy.asarray(small)

    def scaled(self, content: bytes) -> Any:
        """The decoder leaves out what a smaller picture does not need."""
        with _open(self._pillow, content) as picture:
            # Pillow takes the smallest size that is no smaller than what is asked for.
            picture.draft("RGB", [max(1, side // 2) for side in picture.size])
            return self._numpy.asarray(picture.convert("RGB"))


def _by_simplejpeg(content: bytes) -> Any:
    return import_module("simplejpeg").decode_jpeg(content, colorspace="RGB")


def _by_opencv(content: bytes) -> Any:
    opencv, numpy = import_module("cv2"), import_module("numpy")
    flags = opencv.IMREAD_COLOR | opencv.IMREAD_IGNORE_ORIENTATION
    picture = opencv.imdecode(numpy.frombuffer(content, numpy.uint8), flags)
    if picture is None:
        raise ValueError("it is no JPEG to OpenCV")
    return opencv.cvtColor(picture, opencv.COLOR_BGR2RGB)


def _compare(
    name: str,
    words: str,
    decode: Callable[[bytes], Any],
    reference: Callable[[bytes], Any],
    *,
    pictures: list[bytes],
    seconds: float,
) -> Ceiling:
    try:
        means, mosts = zip(*(_differ(decode, reference, each) for each in pictures), strict=True)
    except ImportError as missing:
        return _ceiling(name, words, Missing(reason=f"{missing.name} is not installed here"))
    except Exception as refusal:  # noqa: BLE001 - each decoder has errors of its own
        return _ceiling(name, words, Missing(reason=f"it refuses a picture: {_brief(refusal)}"))
    return _ceiling(
        name,
        words,
        _rate(decode, pictures, seconds),
        mean_difference=sum(means) / len(means),
        most_difference=max(mosts),
    )


def _brief(error: Exception) -> str:
    """On one line; OpenCV's errors are paragraphs."""
    return " ".join(str(error).split())[:_MOST_WORDS] or type(error).__name__


def _differ(
    decode: Callable[[bytes], Any], reference: Callable[[bytes], Any], content: bytes
) -> tuple[float, float]:
    """Mean and largest difference of a picture, in levels of 255."""
    ours, theirs = decode(content), reference(content)
    if ours.shape != theirs.shape:
        raise ValueError(f"{ours.shape} instead of {theirs.shape}")
    apart = abs(ours.astype("int16") - theirs.astype("int16"))
    return float(apart.mean()), float(apart.max())


def _rate(decode: Callable[[bytes], Any], pictures: list[bytes], seconds: float) -> Signal:
    turn = iter(range(1 << 62))

    def act() -> float:
        decode(pictures[next(turn) % len(pictures)])
        return 1.0

    return time_rate(act, seconds, "count/s", "probe pictures")


def _ceiling(name: str, words: str, signal: Signal, **difference: float) -> Ceiling:
    what = f"your JPEGs {words}, one core"
    return Ceiling(group="decode", name=f"own_{name}_1", what=what, signal=signal, **difference)


WIDTH, HEIGHT = 500, 375
"""The usual size of a picture of ImageNet."""
QUALITY = 90


def probe_decode(seconds: float) -> list[Ceiling]:
    """JPEG to RGB in memory: no disk, no resizing, one core."""
    what = f"JPEGs of {WIDTH}x{HEIGHT} decoded, one core"
    return [Ceiling(group="decode", name="jpeg_1", what=what, signal=_decode_rate(seconds))]


def _decode_rate(seconds: float) -> Signal:
    try:
        image = import_module("PIL.Image")
    except ImportError:
        return Missing(reason="Pillow is not installed in this environment (pip install pillow)")
    noise = image.effect_noise((WIDTH // 4, HEIGHT // 4), 60).resize((WIDTH, HEIGHT))
    held = io.BytesIO()
    image.merge("RGB", (noise, noise.transpose(0), noise.transpose(1))).save(
        held, "JPEG", quality=QUALITY
    )
    content = held.getvalue()

    def act() -> float:
        with image.open(io.BytesIO(content)) as picture:
            picture.convert("RGB").load()
        return 1.0

    return time_rate(act, seconds, "count/s", "probe decode")
