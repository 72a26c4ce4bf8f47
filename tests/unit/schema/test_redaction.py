"""A recording gets copied: secrets do not go with it, and all else does."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fuelline.schema import redaction
from fuelline.schema.redaction import SUSPICIOUS, redact, redact_code, redact_command, redact_json

S = "Xq7Lr2Vw9Kp4Zt8B"
"""Stands for the secret: no known shape, so that only its place gives it away."""
SHORT = "tulip"
"""Does not even look random."""

COMMANDS = [
    ["--api-key", S],
    [f"--api-key={S}"],
    ["--apikey", SHORT],
    ["--apiKey", SHORT],
    ["--API_KEY2", SHORT],
    ["--pass", SHORT],
    ["--pwd", SHORT],
    ["--pw", SHORT],
    ["-password", SHORT],
    ["--passphrase", SHORT],
    ["--auth", SHORT],
    ["--auth-token", SHORT],
    ["--use-auth-token", SHORT],
    ["--bearer", SHORT],
    ["--client-secret", SHORT],
    ["--access-key", SHORT],
    ["--wandb-key", SHORT],
    ["--token", "--" + S],
    ["--api-keys", SHORT, "b" + SHORT, "--lr", "1"],
    ["--credentials", SHORT, SHORT],
    ["--webhook-url", f"https://chat.example/{SHORT}"],
    ["--otp", SHORT],
    [f"SECRET_KEY_BASE={SHORT}"],
    ["--client-secret-value", SHORT],
    ["--encryption_key_b64", SHORT],
    ["--privateKeyBase64", SHORT],
    ["--credentials-json", json.dumps({"v": SHORT})],
    ["--connection-password-string", SHORT],
    ["--config", json.dumps({"secret_key_base": SHORT})],
    [f"HF_TOKEN={SHORT}"],
    [f"AWS_SECRET_ACCESS_KEY={SHORT}"],
    [f"PGPASSWORD={SHORT}"],
    [f"db.password={SHORT}"],
    [f"++env.HF_TOKEN={SHORT}"],
    ["-e", f"TOKEN={SHORT}"],
    [f"--env=HF_TOKEN={SHORT}"],
    [f"-Dpassword={SHORT}"],
    [f"key={SHORT}"],
    ["-H", f"Authorization: Bearer {SHORT}"],
    ["-H", f"authorization: basic {SHORT}"],
    ["-H", "Authorization:", "Bearer", SHORT],
    [f"--header=Authorization: Token {SHORT}"],
    ["-H", f"X-Api-Key: {SHORT}"],
    ["-H", "X-Api-Key:", SHORT],
    ["-H", f"Cookie: session={SHORT}; theme={SHORT}"],
    ["--cookie", f"session={SHORT}"],
    ["-u", f"me:{SHORT}"],
    ["--user", f"me:{SHORT}"],
    [f"me:{SHORT}@db.example:5432"],
    [f"postgres://me:{SHORT}@db/x"],
    [f"postgres://me:a@{SHORT}@db/x"],
    [f"postgres://me:{SHORT}/x@db/x"],
    [f"redis://:{SHORT}@cache/0"],
    [f"https://{SHORT}@o1.example/2"],
    [f"https://b.example/o?X-Amz-Credential={SHORT}&X-Amz-Signature={SHORT}&x=1"],
    [f"https://b.example/o?X-Amz-Security-Token={SHORT}"],
    [f"https://b.example/o?X-Goog-Signature={SHORT}"],
    [f"https://b.example/o?sv=1&sig={SHORT}"],
    [f"https://b.example/o?AWSAccessKeyId={SHORT}&Signature={SHORT}"],
    [f"https://b.example/o#access_token={SHORT}"],
    [f"https://b.example/o?key={SHORT}"],
    [f"https://b.example/o?code={SHORT}"],
    [f"next=https%3A%2F%2Fb.example%2F%3Ftoken%3D{SHORT}%26a%3D1"],
    ["--config", json.dumps({"a": {"api_key": SHORT}, "lr": 1})],
    ["--config", json.dumps(json.dumps({"api_key": SHORT}))],
    ["--config", json.dumps({"secrets": [SHORT, SHORT], "credentials": {"v": SHORT}})],
    ["--config", str({"password": SHORT})],
    ["--config", f"{{api_key: {SHORT}, lr: 1}}"],
    ["--config", f"password: {SHORT}"],
    ["--env", json.dumps([{"name": "HF_TOKEN", "value": SHORT}])],
    ["--storage", f"AccountName=a;AccountKey={SHORT}==;EndpointSuffix=b"],
    ["bash", "-c", f"export HF_TOKEN={SHORT}; python t.py --api-key {SHORT} --pass '{SHORT} x'"],
    ["wandb", "login", "0123456789abcdef0123456789abcdef01234567"],
]

SHAPES = [
    "hf_" + "aB3" * 12,
    "sk-live-" + "a1" * 6,
    "sk-proj-" + "aB3_" * 10,
    "sk-ant-api03-" + "aB3-" * 10,
    "sk-" + "aB3" * 16,
    "ghp_" + "aB3" * 12,
    "gho_" + "aB3" * 12,
    "github_pat_" + "aB3_" * 8,
    "glpat-" + "aB3-" * 5,
    "AKIA" + "Q3" * 8,
    "ASIA" + "Q3" * 8,
    "xoxb-" + "123-" * 4 + "aB3",
    "AIza" + "aB3-_" * 7,
    "ya29." + "aB3_" * 8,
    "npm_" + "aB3" * 12,
    "pypi-AgEI" + "aB3" * 12,
    "nvapi-" + "aB3" * 12,
    "r8_" + "aB3" * 12,
    "dop_v1_" + "a3" * 32,
    "SG." + "aB3" * 6 + "." + "aB3" * 6,
    "sk_live_" + "aB3" * 8,
    "whsec_" + "aB3" * 8,
    "gsk_" + "aB3" * 12,
    "hvs." + "aB3" * 10,
    "dapi" + "a3" * 16,
    "wandb_v1_" + "aB3" * 12,
    "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.abc-_123",
    "https://hooks.slack.com/services/T0/B0/aB3",
    "-----BEGIN RSA PRIVATE KEY-----\nMIIE\n-----END RSA PRIVATE KEY-----",
]

HARMLESS = [
    "--tokenizer gpt2",
    "--max-tokens 512",
    "--token-embedding-dim 64",
    "--pad-token <pad>",
    "--key-dim 64",
    "--num-keys 3",
    "--num-key-value-heads 8",
    "--past-key-values 1",
    "--sort-key-json x",
    "--base-value 1",
    "--sort-key length",
    "--pass-through x",
    "--two-pass x",
    "--bypass x",
    "--low-pass 3",
    "--author me",
    "--authoritative x",
    "--password-file /run/pw.txt",
    "--signal 9",
    "--basic x",
    "--monkey business",
    "--compass=north",
    "--revision 0123456789abcdef0123456789abcdef01234567",
    "/data/sk-learn/train",
    "sk-learn-contrib",
    "hf_transformers",
    "https://host:8080/path@v1?epoch=3&batch=2",
    "git+https://github.com/a/b@main",
    "registry/image:1.2@sha256:abc",
    "mailto:me@host.example",
    "s3://bucket/key/part-0.parquet",
    "--user me",
    "-p 22",
    "model.attention.key_proj=linear",
    "train.py monkey",
]

NAMES = [
    "void at::native::vectorized_elementwise_kernel<4, at::native::sigmoid_kernel_cuda(float)>",
    "nn.Module: TokenEmbedding_0",
    "token_embedding: 12",
    "aten::view, op_id = 31, sizes = [[2]]",
    "pass=2 key=len",
    "/data/key=5/part.parquet",
    "random_bits[bit_width=32 shape=()] key=k",
    "std::pass::run",
    "get_token (/srv/auth.py:12)",
]


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_a_secret_on_a_command_line_is_hidden(words: list[str]) -> None:
    shown = redact_command(["train.py", *words, "--epochs", "2"])
    text = " ".join(shown)
    assert not any(each in text for each in (S, SHORT, "0123456789abcdef"))
    assert "***" in text
    assert shown[0] == "train.py"
    assert shown[-2:] == ["--epochs", "2"]
    assert redact_command(shown) == shown


@pytest.mark.parametrize("secret", SHAPES)
@pytest.mark.parametrize("around", ["{}", "load {} now", "/data/{}/x.bin", "a={},b", 'f("{}")'])
def test_a_known_shape_is_hidden_wherever_it_stands(secret: str, around: str) -> None:
    text = around.format(secret)
    for shown in (redact(text), redact_code(text), redact_command([text])[0]):
        assert "***" in shown
        assert secret not in shown
        assert "aB3aB3" not in shown


@pytest.mark.parametrize("text", HARMLESS)
def test_what_is_no_secret_is_shown_as_it_is(text: str) -> None:
    assert redact_command(text.split()) == text.split()
    assert redact(text) == text


@pytest.mark.parametrize("text", NAMES)
def test_names_in_traces_and_paths_stay_as_they_are(text: str) -> None:
    assert redact(text) == text


@pytest.mark.parametrize(
    "text",
    [
        f"download?token={S}",
        f"password={SHORT} host=a",
        f"connect api_key: {SHORT}",
        f"python train.py --api-key {SHORT} --lr 1",
        f"key={S}",
    ],
)
def test_a_secret_in_a_name_of_a_trace_is_hidden(text: str) -> None:
    assert S not in redact(text)
    assert SHORT not in redact(text)


def test_a_command_keeps_all_but_the_secret() -> None:
    command = ["t.py", "--api-key", "x", "TOKEN=y", "s3://me:z@host/p", "--lr=1"]
    shown = ["t.py", "--api-key", "***", "TOKEN=***", "s3://***@host/p", "--lr=1"]
    assert redact_command(command) == shown


def test_what_was_json_stays_json() -> None:
    told = {"token": 123, "x": {"auth": {"a": 1}}, "password": None, "secrets": [1], "lr": 0.1}
    shown = json.loads(redact(json.dumps(told)))
    assert shown == dict.fromkeys(("token", "password", "secrets"), "***") | {
        "x": {"auth": "***"},
        "lr": 0.1,
    }


@pytest.mark.parametrize(
    ("line", "shown"),
    [
        ('login("hf_aB3aB3aB3aB3aB3aB3")', 'login("***")'),
        ('api_key = "tulip"', 'api_key = "***"'),
        ('os.environ["HF_TOKEN"] = "tulip"', 'os.environ["HF_TOKEN"] = "***"'),
        ('connect(password="tulip", retries=3)', 'connect(password="***", retries=3)'),
        ("token = tokenizer.decode(x)", "token = tokenizer.decode(x)"),
        ("f(x, token=token, key=len)", "f(x, token=token, key=len)"),
        ('batch["key"] = "image"', 'batch["key"] = "image"'),
        ('mode = "train"; token = "tulip"', 'mode = "train"; token = "***"'),
        ('password = ""', 'password = ""'),
    ],
)
def test_of_source_code_only_literals_are_hidden(line: str, shown: str) -> None:
    assert redact_code(line) == shown


def test_every_known_shape_passes_the_first_sieve() -> None:
    assert all(any(stem in shape.lower() for stem in SUSPICIOUS) for shape in SHAPES)


@given(st.text(alphabet="key=:tokn-\"'\\{}[]?&%3D@/ abC1*,", max_size=80))
def test_any_text_can_be_redacted_and_a_second_time_changes_nothing(text: str) -> None:
    once = redact(text)
    assert redact(once) == once
    redact_code(text)
    redact_command(text.split())


@pytest.mark.parametrize(
    "part", ["key", "hf_", "eyJ-", "x://a:b", 'key="', "--key ", "token[[", "key:", "a-", '\\"key']
)
def test_a_hostile_name_takes_no_longer_than_its_length_allows(part: str) -> None:
    redact((part * 16_000)[:16_000] + "key")  # minutes, if it were quadratic


@pytest.mark.parametrize("name", ["pw=", "key=", "keyx=", "--pw "])
def test_quotes_that_never_close_take_no_longer_than_their_length_allows(name: str) -> None:
    openings = "".join(f'{name}{chr(92) * count}" ' for count in range(1000, 0, -1))
    redact(openings)  # minutes, if each looked for its end
    redact_command(["-" * 200_000 + "!", f"?{'encrypt' * 30_000}=x"])


@pytest.mark.parametrize(
    "text",
    [
        json.dumps({"password": f'a"{SHORT}', "lr": 1}),
        json.dumps(json.dumps({"password": f'a"{SHORT}\\', "lr": 1})),
        f'password="{SHORT} and {SHORT}',
        f'password=\\"{SHORT} and {SHORT}',
    ],
)
def test_a_value_is_hidden_to_its_own_closing_quote_or_else_to_the_end(text: str) -> None:
    shown = redact(text)
    assert SHORT not in shown
    assert ("lr" in shown) == ("lr" in text)


TRACE = {
    "HF_TOKEN": SHORT,
    "password": 1234,
    "credentials": {"v": [SHORT, 12], "w": {"x": SHORT}},
    "env": [{"name": "WANDB_API_KEY", "value": SHORT}],
    "argv": ["train.py", "--api-key", SHORT],
    "config": json.dumps({"api_key": SHORT}),
    "traceEvents": [
        {"name": "aten::mm", "args": {"key": 5, "Input Dims": [[2, 3]], "token_count": 3}},
        {"name": "api_key: [abc", "ph": "X", "ts": 1.5},
        {"name": f'password="{SHORT}', "ph": "X", "args": {"key": SHORT, "lr": 0.1}},
    ],
}


@pytest.mark.parametrize("indent", [None, 1])
@pytest.mark.parametrize("lines", [1, 1000])
def test_a_trace_stays_json_and_loses_only_its_secrets(indent: int | None, lines: int) -> None:
    text = json.dumps(TRACE, indent=indent).splitlines(keepends=True)
    blocks = ["".join(text[at : at + lines]) for at in range(0, len(text), lines)]
    shown = json.loads("".join(redact_json(blocks)))
    assert shown == {
        "HF_TOKEN": "***",
        "password": "***",
        "credentials": {"v": ["***", "***"], "w": {"x": "***"}},
        "env": [{"name": "WANDB_API_KEY", "value": "***"}],
        "argv": ["train.py", "--api-key", "***"],
        "config": json.dumps({"api_key": "***"}),
        "traceEvents": [
            TRACE["traceEvents"][0],  # type: ignore[index]
            {"name": "api_key: ***", "ph": "X", "ts": 1.5},
            {"name": 'password="***', "ph": "X", "args": {"key": "***", "lr": 0.1}},
        ],
    }


def test_of_a_trace_without_secrets_every_byte_stays() -> None:
    block = '{"name": "a\\u00e9\\/ \\q \t", "x":\n[1,2 ], "broken\n}'
    assert list(redact_json([block, block])) == [block, block]


def test_of_a_trace_with_more_strings_than_are_remembered_secrets_are_hidden_all_the_same(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(redaction, "_MOST_LITERALS", 1)
    blocks = ['{"a": "b",\n', '"c": "d",\n', f'"token": "{SHORT}"}}\n']
    assert json.loads("".join(redact_json(blocks))) == {"a": "b", "c": "d", "token": "***"}


def test_brackets_within_a_secret_are_hidden_to_the_outer_one() -> None:
    text = f'password={{"a": [1, {{}}], "b": "{SHORT}"}} epochs=3'
    assert redact(text) == "password=*** epochs=3"


def test_a_listed_name_that_is_no_secret_keeps_its_value() -> None:
    text = '{"name": "LANG", "value": "C.UTF-8"}, {"name": "HF_TOKEN", "value": "tulip"}'
    shown = '{"name": "LANG", "value": "C.UTF-8"}, {"name": "HF_TOKEN", "value": "***"}'
    assert redact(text) == shown


def test_a_long_secret_is_hidden_to_its_end() -> None:
    assert redact(f"password={S * 100} epochs=3") == "password=*** epochs=3"
