"""What looks like a secret is replaced by `***` before it is written down: recordings get copied.

Standard library only: also used inside the job. Four things give a secret away: the name before it
(`--api-key x`, `"password": "x"`, `HF_TOKEN=x`), its place in a URL (a login, a signature), its
place in a header, or its own shape (`ghp_...`, a JWT). A name counts by its last word, so
`--tokenizer`, `--max-tokens` and `--key-dim` are shown. If in doubt, a value is hidden: what that
costs is one word of a command line.

What this cannot know: a secret that stands alone and looks like any other word, and one glued to a
single letter (`mysql -pSECRET`). `fuelline run --no-command` is for those.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

__all__ = ["SUSPICIOUS", "redact", "redact_code", "redact_command", "redact_json"]

MASK = "***"


def _set(words: str) -> frozenset[str]:
    return frozenset(words.split())


_ALWAYS = _set(
    "secret secrets password passwords passwd passphrase passcode pwd pw psw userpass apikey "
    "apikeys authtoken accesstoken credential credentials cred creds auth oauth bearer "
    "authorization authkey accesskey secretkey privatekey cookie cookies jwt otp totp "
    "mnemonic webhook htpasswd signature sig sas"
)
"""Last words of names whose value is a secret whatever stands before them."""
_UNLESS = {
    "token": _set(
        "pad eos bos unk mask sep cls image video audio special max min num per stop next first "
        "last end start extra text word prompt decoder forced new cost time bytes by control "
        "placeholder"
    ),
    "key": _set(
        "sort primary group partition image text label input output target data column json batch "
        "state field foreign feature metric monitor num query value cache dict sample row index "
        "object s3 path prompt source loss score best config answer question message audio video "
        "dataset routing hot map item record past"
    ),
    "pass": _set(
        "num single two three first second third last forward backward low high band one multi by "
        "per each warmup extra render compiler opt optimization"
    ),
}
"""Last words that mean a secret, and the words before them with which they do not."""
_ONLY = {
    "keys": _set("api access secret private account auth ssh openai wandb"),
    "tokens": _set("api access auth bearer secret private refresh session hf github"),
}
"""Last words that mean secrets only after one of these."""
_AMBIGUOUS = frozenset({"key", "pass", "sig", "signature", "auth", "pw", "cookie", "cookies"})
"""Names that by themselves mean much else in a text that is not a command (`key=len`, `pass=2`)."""
_RUN_TOGETHER = re.compile(
    r"(?:passwo?r?d|passphrase|secret|apikey|(?<!de)token|credentials?"
    r"|(?:access|secret|private|auth|account|shared|signing|encrypt\w{0,20}|wandb|license|master|session"
    r"|ssh|openai|subscription)key"
    r"|(?:db|user|ssh|ftp|smtp|mysql|pg|admin|root|my|key|store|redis|mail|proxy)pass)$"
)
"""`PGPASSWORD`, `hftoken`, `dbpass`; not `compass`, `monkey`."""
_FORMS = _set("base value values b json string str text hex raw plain env")
"""Last words that say in which form a value is, as `SECRET_KEY_BASE` and `--key-b64`, not what."""
_SWITCHES = _set("use no enable disable with without skip has is allow require need")
"""First words of options that often take no value, as `--use-auth-token`."""
_IN_QUERIES = _set(
    "code key sid session sessionid hmac assertion ticket awsaccesskeyid googleaccessid policy "
    "x-amz-credential x-goog-credential key-pair-id user pass auth st skoid sktid"
)
"""More names that give access when they stand in a URL."""
_WORDS = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+")
_SCHEMES = _set("bearer basic token digest apikey api-key negotiate aws4-hmac-sha256")

_LONG = r"(?=[\w-]{0,60}\d)[\w-]{20,}"
_SHAPES = {
    "hf_": r"(?=[a-z]{0,30}[A-Z0-9])[A-Za-z0-9]{16,}",  # Hugging Face
    "api_org_": r"[A-Za-z0-9]{20,}",
    "sk-live- sk-test- sk-proj- sk-ant- sk-or- sk-svcacct- sk-admin- sk-lf-": r"[\w-]{4,}",
    "sk-": r"(?=[A-Za-z]{0,60}\d)[A-Za-z0-9]{20,}",  # OpenAI, as those above
    "rk_live_ sk_live_ pk_live_ rk_test_ sk_test_ pk_test_": r"\w{6,}",  # Stripe
    "whsec_": r"[\w+/=]{12,}",
    "ghp_ gho_ ghu_ ghs_ ghr_": r"[A-Za-z0-9]{16,}",  # GitHub
    "github_pat_": r"\w{20,}",
    "glpat- glptt- gldt- glrt- glcbt- glsoat- glft- glimt- glagent- gloas-": r"[\w-]{16,}",
    "AKIA ASIA ABIA ACCA": r"[A-Z0-9]{12,}(?:[:/, ]+[A-Za-z0-9+/]{40}(?![A-Za-z0-9+/]))?",  # AWS
    "xoxa- xoxb- xoxe- xoxo- xoxp- xoxr- xoxs-": r"[\w-]{8,}",  # Slack
    "xapp-": r"[\w-]{16,}",
    "AIza": r"[\w-]{30,}",  # Google
    "ya29.": r"[\w-]{8,}",
    "GOCSPX-": r"[\w-]{16,}",
    "1//0": r"[\w-]{30,}",
    "npm_": r"[A-Za-z0-9]{24,}",
    "pypi-Ag": r"[\w-]{16,}",
    "nvapi-": r"[\w-]{16,}",  # NVIDIA
    "r8_": r"[A-Za-z0-9]{16,}",  # Replicate
    "doo_v1_ dop_v1_ dor_v1_": r"[a-f0-9]{16,}",  # DigitalOcean
    "SG.": r"[\w-]{12,}\.[\w-]{12,}",  # SendGrid
    "gsk_": r"[A-Za-z0-9]{20,}",  # Groq
    "xai- pplx- tvly-": _LONG,
    "tgp_v1_ fw_ jina_ esecret_ lsv2_pt_ lsv2_pk_ lsv2_st_ lsv2_sk_ wandb_v1_": _LONG,
    "shpat_ figd_ sntrys_ ntn_ rpa_ dckr_pat_ lin_api_ dda_ ddp_": _LONG,
    "dapi": r"[a-f0-9]{32}(?:-\d)?",  # Databricks
    "hvs. hvb. hvr.": r"[\w-]{20,}",  # Vault
    "ATATT3x": r"[\w=-]{20,}",  # Atlassian
    "tskey-": r"[\w-]{16,}",
    "local-": r"[a-f0-9]{40}",  # a W&B server of one's own
    "AGE-SECRET-KEY-1": r"[A-Z0-9]{20,}",
    "eyJ": r"[\w-]{8,2000}\.[\w-]{4,}(?:\.[\w-]*)?",  # JWT
    "hooks.slack.com/": r"(?:services|workflows|triggers)/[\w/-]+",
    "discord.com/api/webhooks/ discordapp.com/api/webhooks/": r"[\w/-]+",
    "api.telegram.org/bot": r"[\w:-]+",
}
"""How known tokens begin, and what follows."""
_ANY_SHAPE = "|".join(
    f"(?:{'|'.join(map(re.escape, beginnings.split()))}){rest}"
    for beginnings, rest in _SHAPES.items()
)
_SHAPE = re.compile(rf"(?<![A-Za-z0-9])(?:{_ANY_SHAPE})")
_PEM = re.compile(
    r"-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(?:-----END [A-Z ]*PRIVATE KEY-----|\Z)", re.DOTALL
)
_LOGIN = re.compile(
    r"(?P<scheme>://)(?:[^/\s\"'<>?#]{1,300}|[^/\s:@\"']{0,100}:(?!\d{1,5}(?:[/?#]|$))[^\s\"'@]{1,300})"
    r"@(?=[\w\[])"
)
"""`scheme://user:password@host`; the password may have `@` in it, or after a colon `/`."""
_BARE_LOGIN = re.compile(
    r"(?<![\w/:.%+-])(?!mailto:)(?P<user>[\w.%+-]{1,100}):[^\s:@/\"'<>()]{1,300}@(?!sha256\b)(?=[^\W_])"
)
_STEMS = (
    *("key", "token", "secret", "pass", "pwd", "pw", "psw", "auth", "cred", "bearer", "cookie"),
    *("sig", "sas", "otp", "jwt", "mnemonic", "webhook"),
)
"""Every name that means a secret has one of these in it."""
_NAME = rf"[\w.\-\[\]$]{{0,200}}(?:{'|'.join(_STEMS)})[\w\-\]]{{0,60}}"
"""Bounded, as names are untrusted: no text takes longer than a multiple of its length."""
_OPENING = r"b?(?P<quote>\\*[\"'])"
_PEEK = re.compile(r"[^\"'\\]{0,500}")
"""As much of a quoted value as shows what it is: its end is searched only where it is hidden."""
_QUERY = re.compile(
    r"(?P<before>[?&#;]|%3F|%26|%23)(?P<name>[\w.\-~]+?)(?P<sep>=|%3D)(?P<value>[^&\s\"'#;<>]+)",
    re.IGNORECASE,
)
_BARE = r"[^\s,;&\"'(){}\[\]<>]"
_REST = re.compile(f"{_BARE}+")
_PAIR = re.compile(
    rf"(?<![\w.\-\[\]$])(?P<name>{_NAME})(?P<between>\\*[\"']?\]?\s*(?:=|(?<!:):(?!:)|%3D|=>)\s*)"
    rf"(?:{_OPENING}|(?P<open>[\[{{])|(?P<bare>{_BARE}{{1,500}}))",
    re.IGNORECASE,
)
"""`name=value` and `name: value`, with or without quotes around either."""
_OPTION = re.compile(
    rf"(?<![\w-])(?P<name>--?{_NAME})(?P<between>\s+)(?:{_OPENING}|(?P<bare>[^\s\"']+))",
    re.IGNORECASE,
)
"""`--name value` within one text, as in `bash -c "..."`."""
_HEADER = re.compile(
    r"(?P<name>\b(?:proxy-)?authorization\b\\*[\"']?\s*[:=]\s*\\*[\"']?)"
    r"(?P<scheme>[A-Za-z][\w-]*\s+)?(?P<value>[^\s\"'\\,;]+(?:,\s*\w+=[^\s\"'\\]+)*)",
    re.IGNORECASE,
)
_COOKIE = re.compile(r"(?P<name>\b(?:set-)?cookie\s*:\s*)(?P<value>[^\"'\n]+)", re.IGNORECASE)
_SCHEME = re.compile(r"\b(?P<scheme>bearer\s+|basic\s+)(?P<value>[\w.~+/=-]{6,})", re.IGNORECASE)
_LISTED = re.compile(
    r"(?P<head>[\"']?name[\"']?\s*[:=]\s*[\"']?(?P<name>[\w.-]+)[\"']?\s*,\s*[\"']?value[\"']?\s*[:=]\s*)"
    r"(?:[\"'](?P<quoted>[^\"']*)[\"']|(?P<bare>[^\s,}\]]+))",
    re.IGNORECASE,
)
"""`{"name": "HF_TOKEN", "value": "x"}`, as containers list their environment."""
_CODE = re.compile(
    rf"(?<![\w.\-\[\]$])(?P<name>{_NAME})(?P<between>[\"']?\]?\s*(?:=|:|,)\s*)[bfru]{{0,2}}"
    r"(?P<quote>[\"'])(?P<quoted>.*?)(?P=quote)",
    re.IGNORECASE,
)
_BEGINNINGS = _set(" ".join(_SHAPES).lower())
_SIGNS = {*_STEMS, *_BEGINNINGS, "=", "%3d", "@", "basic", "private"}
SUSPICIOUS = tuple(
    sorted(each for each in _SIGNS if not any(sign in each for sign in _SIGNS - {each}))
)
"""In lower case: a text with none of these has nothing to redact."""


def redact(text: str) -> str:
    """The text without what looks like a secret; a text that has none comes back as it is."""
    return _redact(text, is_command=False) if _is_suspicious(text) else text


def redact_code(line: str) -> str:
    """The same for a line of source code, where `token = f(x)` is no secret but a literal is."""
    if not _is_suspicious(line):
        return line
    return _CODE.sub(_hide_literal, _redact_shapes(line))


def redact_command(words: Iterable[str]) -> list[str]:
    """The words of a command line without secrets.

    `train.py --api-key x TOKEN=y s3://me:z@host` -> `train.py --api-key *** TOKEN=*** s3://***@host`
    """
    hidden = _Hidden()
    return [hidden.take(word) for word in words]


def redact_json(blocks: Iterable[str]) -> Iterator[str]:
    """The lines of a large JSON text without secrets; what was JSON stays it.

    Traces say the same few hundred strings a million times: each is judged once, and only a block
    with a suspect in it is looked at in order.
    """
    document = _NestedText()
    return map(document.take, blocks)


class _Hidden:
    """What the words so far say about the next one."""

    def __init__(self) -> None:
        self._next = ""
        """`value`: the next word is a secret. `values`: all up to the next option. `switch`: it is
        one unless it is an option. `scheme`: unless it names a scheme, then the one after it.
        `login`: it may be `user:password`. `key`: it is one if it looks like one."""

    def take(self, word: str) -> str:
        """The word as it is shown."""
        expected, self._next = self._next, ""
        if expected == "scheme" and word.lower() in _SCHEMES:
            self._next = "value"
            return word
        if expected == "login" and ":" in word and "://" not in word:
            return f"{word.partition(':')[0]}:{MASK}"
        if _is_expected(expected, word):
            self._next = "values" if expected == "values" else ""
            return MASK
        return self._show(word)

    def _show(self, word: str) -> str:
        name, equals, _ = word.partition("=")
        if equals and _is_plain(name) and _is_secret(name):
            return f"{name}={MASK}"
        if not equals:
            self._next = _AFTER.get(word.lower().rstrip(":")) or _expect_after(word)
        return _redact(word, is_command=True) if _is_suspicious(word) else word


_LITERAL = r'"[^"\\\n]*(?:\\.[^"\\\n]*)*"'
_LITERALS = re.compile(_LITERAL)
_TOKENS = re.compile(
    rf'(?P<text>{_LITERAL})(?P<colon>\s*:)?|(?P<open>[\[{{])|(?P<close>[\]}}])|[^\s"\[\]{{}},:]+'
)
_MOST_LITERALS = 100_000
"""Of which it is remembered that they were judged: a hostile text has no two that are the same."""


class _NestedText:
    """What the tokens of a JSON text so far say about the next one."""

    def __init__(self) -> None:
        self._judged: set[str] = set()
        self._changed: dict[str, str] = {}
        self._names: dict[str, str] = {}
        """Names that mean a secret, without their quotes, by the literals that they are."""
        self._next = ""
        """`text`: the next value is a secret if it is a string. `any`: whatever it is."""
        self._depth = 0
        """How many brackets are open around the values of a secret name."""
        self._key = ""
        self._is_named = False
        """The `value` that comes belongs to a secret `name`."""

    def take(self, block: str) -> str:
        """The block as it is shown; it ends where a line does."""
        literals = set(_LITERALS.findall(block))
        if len(self._judged) > _MOST_LITERALS:
            self._judged.clear()
        new = literals - self._judged
        self._judged |= new
        for literal in new:
            self._judge(literal)
        is_clean = literals.isdisjoint(self._names) and literals.isdisjoint(self._changed)
        if is_clean and not (self._depth or self._next or self._is_named):
            return block
        return _TOKENS.sub(self._show, block)

    def _judge(self, literal: str) -> None:
        try:
            text = json.loads(literal, strict=False)
        except ValueError:  # an escape that JSON does not know
            text = literal[1:-1]
        if (shown := redact(text)) != text:
            self._changed[literal] = json.dumps(shown)
        if _is_plain(text) and _is_secret(text):
            self._names[literal] = text

    def _show(self, found: re.Match[str]) -> str:
        expected, self._next = self._next, ""
        if found["open"]:
            self._depth += bool(self._depth or expected == "any")
        elif found["close"]:
            self._depth -= bool(self._depth)
            self._is_named = False
        elif found["colon"]:
            self._key = found["text"]
            self._next = self._expect_after(self._key)
            return self._changed.get(self._key, self._key) + found["colon"]
        else:
            return self._show_value(found, expected)
        return found[0]

    def _expect_after(self, key: str) -> str:
        if key in self._names:
            return "text" if _is_ambiguous(self._names[key]) else "any"
        return "any" if self._is_named and key == '"value"' else ""

    def _show_value(self, found: re.Match[str], expected: str) -> str:
        text = found["text"]
        if self._depth or expected == "any" or (expected and text):
            return f'"{MASK}"'
        if not text:
            return found[0]
        name = self._names.get(text, "")
        if self._key == '"name"':
            self._is_named = bool(name)
        if name.startswith("-"):  # ["--api-key", "x"]
            self._next = "text"
        return self._changed.get(text, text)


def _is_expected(expected: str, word: str) -> bool:
    """Whether a word is the secret that the words before it announced."""
    if expected == "values":
        return not word.startswith("-")
    if expected == "switch":
        return not word.startswith("--")
    return expected in ("value", "scheme") or (expected == "key" and _looks_random(word))


_AFTER = {
    **dict.fromkeys(("authorization", "proxy-authorization"), "scheme"),
    **dict.fromkeys(("-u", "--user", "--proxy-user", "--login"), "login"),
    "bearer": "value",
    "login": "key",  # `wandb login KEY`
}
"""Words that say what the next one is."""


def _expect_after(word: str) -> str:
    """What follows an option, or a header's name (`X-Api-Key:`) in its own word."""
    name = word.rstrip(":")
    if not (word.startswith("-") or word.endswith(":")) or not _is_plain(name):
        return ""
    if not _is_secret(name):
        return ""
    parts = _split(name)
    if parts[0] in _SWITCHES:
        return "switch"
    is_list = parts[-1].endswith("s") and parts[-1] not in ("pass", "sas")
    return "values" if is_list or parts[-1] == "cookie" else "value"


def _is_suspicious(text: str) -> bool:
    lowered = text.lower()
    return any(stem in lowered for stem in SUSPICIOUS)


def _redact(text: str, *, is_command: bool) -> str:
    text = _redact_shapes(text)
    text = _COOKIE.sub(rf"\g<name>{MASK}", text)
    text = _HEADER.sub(_hide_header, text)
    text = _SCHEME.sub(
        lambda found: found["scheme"] + MASK if _looks_random(found["value"]) else found[0], text
    )
    text = _QUERY.sub(_hide_query, text)
    text = _LISTED.sub(_hide_listed, text)
    text = _hide_values(text, _OPTION, _is_no_value)
    return _hide_values(text, _PAIR, lambda found: _is_harmless(found, is_command=is_command))


def _redact_shapes(text: str) -> str:
    """What needs no name: known tokens, private keys, logins in URLs."""
    text = _PEM.sub(MASK, text)
    text = _LOGIN.sub(rf"\g<scheme>{MASK}@", text)
    text = _BARE_LOGIN.sub(rf"\g<user>:{MASK}@", text)
    return _SHAPE.sub(MASK, text)


def _hide_header(found: re.Match[str]) -> str:
    scheme = found["scheme"] or ""
    if found["value"].startswith(MASK):
        return found[0]
    return f"{found['name']}{scheme}{MASK}"


def _hide_query(found: re.Match[str]) -> str:
    name = found["name"]
    is_secret = _is_secret(name) or name.lower() in _IN_QUERIES
    return f"{found['before']}{name}{found['sep']}{MASK}" if is_secret else found[0]


def _hide_listed(found: re.Match[str]) -> str:
    if not _is_secret(found["name"]):
        return found[0]
    return found["head"] + (MASK if found["bare"] else f'"{MASK}"')


def _is_no_value(found: re.Match[str]) -> bool:
    """Whether what follows an option is the next one, or belongs to a pair."""
    bare = found["bare"]
    return bare is not None and (bare.startswith("--") or bare in ("=", ":"))


def _hide_literal(found: re.Match[str]) -> str:
    if not _is_secret(found["name"]) or not found["quoted"]:
        return found[0]
    if _is_ambiguous(found["name"]) and not _looks_random(found["quoted"]):
        return found[0]
    return f"{found[0][: found.start('quoted') - found.start()]}{MASK}{found['quote']}"


def _hide_values(
    text: str, pattern: re.Pattern[str], is_shown: Callable[[re.Match[str]], bool]
) -> str:
    """Names with their values; one in quotes or brackets is hidden to the closing one."""
    parts: list[str] = []
    at = 0
    while (found := pattern.search(text, at)) is not None:
        if not _is_secret(found["name"]) or is_shown(found):
            step = found.end("name")
            parts.append(text[at:step])
            at = step
            continue
        parts.append(text[at : found.end("between")])
        at = found.end()
        if (quote := found["quote"]) is not None:
            at = _find_quote(text, at, quote)
            parts += [quote, MASK, quote if text.endswith(quote, 0, at) else ""]
            continue
        parts.append(_mask_like(found))
        if found["bare"] is None:
            at = _find_close(text, found.start("open"))
        elif rest := _REST.match(text, at):
            at = rest.end()
    return "".join(parts) + text[at:] if parts else text


def _find_quote(text: str, at: int, quote: str) -> int:
    """Behind the quote that closes a value; the end of the text if none does.

    In quotes with n backslashes before them, as in JSON within JSON, a backslash has 2 (n + 1).
    """
    escapes = len(quote) - 1
    for found in re.compile(rf"(\\*){quote[-1]}").finditer(text, at):
        more = len(found[1]) - escapes
        if more >= 0 and more % (2 * escapes + 2) == 0:
            return found.end()
    return len(text)


def _is_harmless(found: re.Match[str], *, is_command: bool) -> bool:
    """Whether the name means something else here, unless its value looks like a secret."""
    value = found["bare"]
    if found["quote"] and (peek := _PEEK.match(found.string, found.end())):
        value = peek[0]
    if value == MASK or (value or "").lower() in _SCHEMES:
        return True  # hidden already, or what is hidden comes after it
    if not _is_ambiguous(found["name"]):
        return False
    if value is None:
        return found["name"].lower() != "auth"
    is_pair = "=" in found["between"] or "%3D" in found["between"].upper()
    is_text = found["quote"] and found["between"][:1] in "\"'\\"  # in JSON
    return not (is_text or (is_pair and is_command) or _looks_random(value))


def _is_ambiguous(name: str) -> bool:
    words = _split(name)
    return len(words) == 1 and words[0] in _AMBIGUOUS


def _mask_like(found: re.Match[str]) -> str:
    """The mask, in quotes where its place needs them to stay JSON."""
    quote = re.match(r"\\*[\"']", found["between"])
    return f"{quote[0]}{MASK}{quote[0]}" if quote and ":" in found["between"] else MASK


def _find_close(text: str, at: int) -> int:
    """Behind the bracket that closes the one at a place; the end of the text if none does."""
    depth = 0
    for place in range(at, len(text)):
        if text[place] in "[{":
            depth += 1
        elif text[place] in "]}":
            depth -= 1
            if not depth:
                return place + 1
    return len(text)


def _is_plain(name: str) -> bool:
    """Whether a word is the name of an option, a variable or a setting, and no text."""
    return re.fullmatch(r"[\w.\-\[\]/@:]+", name.lstrip("-+~")) is not None


def _split(name: str) -> list[str]:
    """`--wandbApi_KEY2` -> wandb, api, key; `SECRET_KEY_BASE` -> secret, key."""
    words = [word.lower() for word in _WORDS.findall(name)]
    while len(words) > 1 and (words[-1].isdecimal() or words[-1] in _FORMS):
        words.pop()
    return words or [""]


def _is_secret(name: str) -> bool:
    """Whether a name means a secret: by its last word, and the one before it."""
    words = _split(name)
    last, before = words[-1], words[-2] if len(words) > 1 else ""
    if last in ("url", "uri", "id") and before in ("webhook", "dsn", "session"):
        return True
    if last in _UNLESS:
        return before not in _UNLESS[last]
    if last in _ONLY:
        return before in _ONLY[last]
    if last in _ALWAYS:
        return True
    return _RUN_TOGETHER.search(last) is not None


def _looks_random(text: str) -> bool:
    """Letters and digits in one long word, as secrets and hashes are."""
    is_word = re.fullmatch(r"[\w.~+/=-]{16,}", text) is not None
    return is_word and any(map(str.isdigit, text)) and any(map(str.isalpha, text))
