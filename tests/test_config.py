import copy
import json
import os
import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import jsonschema
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ziggurat.config import (
    Config,
    ConsolidationConfig,
    ConstantBackoff,
    DaskConfig,
    ExponentialBackoff,
    LinearBackoff,
    RetryConfig,
    S3fsConfig,
    ZarrConfig,
    describe,
    get_config,
    parse_bytes,
    read_config,
    schema,
    write_block_ceiling,
)
from ziggurat.errors import ConfigError, ZigguratError

MIB = 2**20

# key, default, values that are accepted, values that are refused
SETTINGS: list[tuple[str, Any, list[Any], list[Any]]] = [
    ("io_retry.max_retries", 0, [0, 3], [-1, True, 1.0, "3", None]),
    ("io_retry.retry_on", [], [["Slow Down"], []], ["Slow Down", [1], [""], None, {}]),
    ("io_retry.retry_all_errors", False, [False], [0, 1, "true", None]),
    ("io_retry.backoff.delay_s", 0.1, [0, 2.5], [-0.1, "1", True, float("nan"), float("inf"), None]),
    ("io_retry.backoff.max_delay_s", 10.0, [0, 60.0], [-1, False, float("inf"), None]),
    ("io_retry.backoff.jitter", True, [False], [1, "no", None]),
    ("io_retry.backoff.strategy", "exponential", ["exponential"], ["cubic", 1, None]),
    ("s3fs.custom_retry_markers", [], [["Reduce your rate"]], ["Reduce", [None], [""]]),
    ("dask.write_block_max_bytes", 8 * MIB, [0, 1, None, 2**40], [-1, True, 1.5, "lots", "-1 MiB", [8]]),
    ("dask.max_tasks", 10_000, [1, 10**6], [0, -1, True, 10.0, "10", None]),
    ("consolidation.numpy_max_bytes", 256 * MIB, [0, 2**40], [-1, True, 0.5, None, "1 parsec"]),
    ("consolidation.partial_max_coverage", 0.5, [0, 0.25, 1], [-0.1, 1.1, "0.5", True, None, float("nan")]),
    ("zarr.async_concurrency", None, [1, 64, None], [0, -1, True, 1.5, "10"]),
    ("zarr.threading_max_workers", None, [1, 8, None], [0, True, "8"]),
    ("zarr.codec_pipeline", None, ["zarr.core.codec_pipeline.FusedCodecPipeline", None], ["", "fused!", 1, "a..b"]),
    ("zarr.codec_max_workers", None, [1, None], [0, True, 1.0]),
    ("zarr.sharding_coalesce_max_gap_bytes", None, [0, MIB, None], [-1, True, "far"]),
    ("zarr.sharding_coalesce_max_bytes", None, [0, 16 * MIB, None], [-1, True, 1.5]),
]
ACCEPTED = [(key, value) for key, _, good, _ in SETTINGS for value in good]
REFUSED = [(key, value) for key, _, _, bad in SETTINGS for value in bad]
SIZES = [
    "dask.write_block_max_bytes",
    "consolidation.numpy_max_bytes",
    "zarr.sharding_coalesce_max_gap_bytes",
    "zarr.sharding_coalesce_max_bytes",
]


def nested(key: str, value: Any) -> dict[str, Any]:
    for name in reversed(key.split(".")):
        value = {name: value}
    return value


def section_of(config: Config, key: str) -> tuple[Any, str]:
    *sections, name = key.split(".")
    owner: Any = config
    for section in sections:
        owner = getattr(owner, section)
    return owner, name


def get(config: Config, key: str) -> Any:
    return getattr(*section_of(config, key))


def put(config: Config, key: str, value: Any) -> None:
    owner, name = section_of(config, key)
    setattr(owner, name, value)


def write(path: Path, data: Any) -> Path:
    path.write_text(data if isinstance(data, str) else json.dumps(data), encoding="utf-8")
    return path


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "settings.json"


# --- the table of settings


def test_the_table_is_complete() -> None:
    assert {key for key, _, _ in describe(Config())} == {key for key, *_ in SETTINGS}


@pytest.mark.parametrize(("key", "default"), [row[:2] for row in SETTINGS])
def test_default(key: str, default: Any) -> None:
    value = get(Config(), key)
    assert value == default
    assert type(value) is type(default)


@pytest.mark.parametrize(("key", "value"), ACCEPTED)
def test_accepted(key: str, value: Any, file: Path) -> None:
    assert get(read_config(write(file, nested(key, value))), key) == value
    assert get(Config(**nested(key, value)), key) == value
    config = Config()
    put(config, key, value)
    assert get(config, key) == value


@pytest.mark.parametrize(("key", "value"), REFUSED)
def test_refused_in_a_file(key: str, value: Any, file: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        read_config(write(file, nested(key, value)))
    shown = "io_retry.backoff" if key.endswith("strategy") else key  # the union's member is chosen by it
    assert str(caught.value).startswith(f"{file}: {shown}")
    assert repr(value[0] if isinstance(value, list) else value) in str(caught.value)


@pytest.mark.parametrize(("key", "value"), REFUSED)
def test_a_refused_assignment_changes_nothing(key: str, value: Any) -> None:
    config = Config(dask={"max_tasks": 7})
    before = copy.deepcopy(config)
    with pytest.raises(ConfigError, match=key.replace(".", r"\.")):
        put(config, key, value)
    assert config == before
    assert describe(config) == describe(before)


@pytest.mark.parametrize(("key", "value"), REFUSED)
def test_refused_by_the_constructor(key: str, value: Any) -> None:
    with pytest.raises(ConfigError):
        Config(**nested(key, value))


@pytest.mark.parametrize(
    "section", [RetryConfig, S3fsConfig, DaskConfig, ConsolidationConfig, ZarrConfig, LinearBackoff]
)
def test_unknown_names_are_refused(section: type) -> None:
    with pytest.raises(ConfigError, match=f"^{section.section}.surprise = 1: unknown key; {section.section} knows "):
        section(surprise=1)
    with pytest.raises(ConfigError, match=f"^{section.section}.surprise = 1: unknown key; "):
        section().surprise = 1


@pytest.mark.parametrize(
    ("data", "said"),
    [
        ({"dsk": {}}, "dsk = {}: unknown key; the configuration knows io_retry, s3fs, dask, consolidation, zarr"),
        ({"dask": {"max_task": 1}}, "dask.max_task = 1: unknown key; dask knows write_block_max_bytes, max_tasks"),
        ({"io_retry": {"backoff": {"linear": 1}}}, "io_retry.backoff.linear = 1: unknown key; io_retry.backoff knows "),
        ({"dask": None}, "dask = None: "),
        ({"dask": [1]}, "dask = [1]: "),
        ({"io_retry": {"backoff": 1}}, "io_retry.backoff = 1: "),
        ({"dask": {"max_tasks": 0}, "zarr": {"async_concurrency": 0}}, "dask.max_tasks = 0: "),
        ({"dask": {"max_tasks": 0}, "zarr": {"async_concurrency": 0}}, "; zarr.async_concurrency = 0: "),
    ],
)
def test_what_a_refusal_says(data: Any, said: str, file: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        read_config(write(file, data))
    assert said in str(caught.value)
    assert str(file) in str(caught.value)


# --- sizes


@pytest.mark.parametrize(
    ("text", "n_bytes"),
    [
        ("8 MiB", 8 * MIB),
        ("256MB", 256_000_000),
        ("1 kB", 1000),
        ("1KiB", 1024),
        ("1.5 GiB", 3 * 2**29),
        ("2 tb", 2 * 10**12),
        (" 0 ", 0),
        ("12", 12),
        ("7 B", 7),
        ("3M", 3_000_000),
        ("3Mi", 3 * MIB),
        ("1 PiB", 2**50),
        (np.int64(5), 5),
    ],
)
def test_sizes(text: Any, n_bytes: int) -> None:
    assert parse_bytes(text) == n_bytes
    assert type(parse_bytes(text)) is int
    for key in SIZES:
        assert get(Config(**nested(key, text)), key) == n_bytes


@pytest.mark.parametrize(
    "text", ["", "MiB", "8 MiBs", "8 iB", "0.3 B", "1e3", "٣ MB", "8 M i B", 1.0, True, None, b"8"]
)
def test_what_is_no_size(text: Any) -> None:
    with pytest.raises(ValueError, match="8 MiB"):
        parse_bytes(text)


@given(st.integers(0, 2**62), st.sampled_from(["", "k", "M", "G", "T", "P"]), st.booleans(), st.sampled_from(["", " "]))
def test_sizes_are_exact(number: int, prefix: str, binary: bool, gap: str) -> None:
    unit = prefix + ("i" if binary and prefix else "") + "B"
    base = 1024 if "i" in unit else 1000
    assert parse_bytes(f"{number}{gap}{unit}") == number * base ** " kMGTP".index(prefix or " ")


@pytest.mark.parametrize(
    ("setting", "dask_says", "ceiling"),
    [
        (8 * MIB, 128 * MIB, 8 * MIB),
        (8 * MIB, MIB, MIB),
        (None, 128 * MIB, 128 * MIB),
        (None, None, 8 * MIB),
        (64, None, 64),
        (0, 128 * MIB, 0),
        (0, None, 0),
    ],
)
def test_write_block_ceiling(setting: int | None, dask_says: int | None, ceiling: int) -> None:
    assert write_block_ceiling(setting, dask_says) == ceiling


# --- retries


@pytest.mark.parametrize(
    ("value", "backoff"),
    [
        ("constant", ConstantBackoff()),
        ("linear", LinearBackoff()),
        ("exponential", ExponentialBackoff()),
        ({"delay_s": 2}, ExponentialBackoff(delay_s=2.0)),
        ({"strategy": "linear", "jitter": False}, LinearBackoff(jitter=False)),
        ({"strategy": "constant", "max_delay_s": 1.5}, ConstantBackoff(max_delay_s=1.5)),
    ],
)
def test_backoff(value: Any, backoff: Any, file: Path) -> None:
    config = Config()
    config.io_retry.backoff = value
    assert config.io_retry.backoff == backoff
    assert read_config(write(file, {"io_retry": {"backoff": value}})).io_retry.backoff == backoff
    config.io_retry.backoff = backoff
    assert config.io_retry.backoff is backoff


def test_retry_all_errors_warns_from_the_file(file: Path) -> None:
    with pytest.warns(UserWarning, match=r"io_retry\.retry_all_errors"):
        config = read_config(write(file, {"io_retry": {"retry_all_errors": True}}))
    assert config.io_retry.retry_all_errors is True


def test_retry_all_errors_warns_from_code_and_only_when_it_is_set() -> None:
    config = Config()
    with pytest.warns(UserWarning, match=r"io_retry\.retry_all_errors"):
        config.io_retry.retry_all_errors = True
    config.io_retry.max_retries = 3  # a second warning would be an error here
    assert config.io_retry.retry_all_errors is True


def test_a_warning_that_is_an_error_leaves_the_setting_alone() -> None:
    config = Config()
    with pytest.raises(UserWarning, match="retry_all_errors"):
        config.io_retry.retry_all_errors = True
    assert config == Config()


@pytest.mark.filterwarnings("ignore:io_retry.retry_all_errors")
def test_retry_all_errors_excludes_retry_on(file: Path) -> None:
    both = {"io_retry": {"retry_on": ["503"], "retry_all_errors": True}}
    with pytest.raises(ConfigError, match=r"io_retry.*retry_all_errors = true excludes retry_on = \['503'\]"):
        read_config(write(file, both))
    config = Config(io_retry={"retry_on": ["503"]})
    with pytest.raises(ConfigError, match="excludes retry_on"):
        config.io_retry.retry_all_errors = True
    assert config == Config(io_retry={"retry_on": ["503"]})
    assert config.model_dump(exclude_unset=True) == {"io_retry": {"retry_on": ["503"]}}
    config.io_retry.retry_on = []
    config.io_retry.retry_all_errors = True
    with pytest.raises(ConfigError, match="excludes retry_on"):
        config.io_retry.retry_on = ["503"]
    assert (config.io_retry.retry_on, config.io_retry.retry_all_errors) == ([], True)


def test_defaults_are_not_shared() -> None:
    Config().io_retry.retry_on.append("503")
    Config().io_retry.backoff.delay_s = 5.0
    assert Config().io_retry == RetryConfig()


# --- the file


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "empty"),
        (" \n", "empty"),
        ("{", "not valid JSON"),
        ("{'dask': {}}", "not valid JSON"),
        ('{"dask": {}, "dask": {}}', "key given twice: dask"),
        ("[" * 100_000, "not valid JSON"),
        ("[]", "no JSON object"),
        ("null", "no JSON object"),
        ('"dask"', "no JSON object"),
    ],
)
def test_files_that_hold_no_configuration(text: str, said: str, file: Path) -> None:
    with pytest.raises(ConfigError, match=said) as caught:
        read_config(write(file, text))
    assert str(caught.value).startswith(str(file))
    assert isinstance(caught.value, ZigguratError)
    assert isinstance(caught.value, ValueError)


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    (tmp_path / "directory.json").mkdir()
    (tmp_path / "latin.json").write_bytes(b'{"\xe9": 1}')
    for name in ("directory.json", "latin.json"):
        with pytest.raises(ConfigError, match=f"{name}: cannot be read"):
            read_config(tmp_path / name)
    with pytest.raises(FileNotFoundError):
        read_config(tmp_path / "absent.json")


@pytest.mark.parametrize("name", ["settings.toml", "settings", "settings.json.bak"])
def test_only_json_files(name: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=f"{name}: the configuration is a .json file"):
        read_config(write(tmp_path / name, {}))


def test_a_byte_order_mark_is_no_fault(file: Path) -> None:
    file.write_bytes(b'\xef\xbb\xbf{"dask": {"max_tasks": 5}}')
    assert read_config(file).dask.max_tasks == 5


def test_describe(file: Path) -> None:
    config = read_config(
        write(file, {"dask": {"max_tasks": 5}, "io_retry": {"backoff": "linear", "retry_on": ["503"]}})
    )
    config.consolidation.numpy_max_bytes = "1 MiB"
    config.io_retry.retry_on.append("504")
    origins = {key: (value, origin) for key, value, origin in describe(config)}
    assert origins["dask.max_tasks"] == (5, f"file {file}")
    assert origins["io_retry.backoff.strategy"] == ("linear", f"file {file}")
    assert origins["io_retry.backoff.delay_s"] == (0.1, "default")
    assert origins["io_retry.retry_on"] == (["503", "504"], "set in code")
    assert origins["consolidation.numpy_max_bytes"] == (MIB, "set in code")
    assert origins["zarr.async_concurrency"] == (None, "default")
    config.dask = DaskConfig()
    assert ("dask.max_tasks", 10_000, "set in code") in describe(config)


def test_schema() -> None:
    validator = jsonschema.Draft202012Validator(schema())
    good = [nested(key, value) for key, value in ACCEPTED]
    good += [nested(key, "8 MiB") for key in SIZES] + [{"io_retry": {"backoff": "linear"}}, {}]
    assert [data for data in good if not validator.is_valid(data)] == []
    bad = [{"dsk": {}}, {"dask": {"max_task": 1}}, {"dask": {"max_tasks": 0}}, {"io_retry": {"backoff": "cubic"}}]
    assert [data for data in bad if validator.is_valid(data)] == []
    assert "law" not in str(schema())
    assert schema()["$defs"]["DaskConfig"]["properties"]["max_tasks"]["description"].startswith("Most tasks")


def test_pickle(file: Path) -> None:
    config = read_config(write(file, {"io_retry": {"max_retries": 2}}))
    assert pickle.loads(pickle.dumps(config)) == config
    assert describe(pickle.loads(pickle.dumps(config))) == describe(config)


# --- the one object, in fresh processes because the place is fixed at import


def run(code: str, home: Path, **env: str) -> str:
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("ZIGGURAT")}
    variables = {**inherited, "HOME": str(home), "USERPROFILE": str(home), **env}
    code = "import json, os\nfrom ziggurat.config import ConfigError, describe, get_config\n" + code
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code], env=variables, cwd=home, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_without_a_file_there_are_the_defaults(tmp_path: Path) -> None:
    assert run("print(all(origin == 'default' for *_, origin in describe(get_config())))", tmp_path) == "True"


def test_the_file_in_the_home_directory_is_read_once(tmp_path: Path) -> None:
    (tmp_path / ".ziggurat").mkdir()
    file = write(tmp_path / ".ziggurat" / "ziggurat_config.json", {"dask": {"max_tasks": 5}})
    code = f"first = get_config()\nos.remove({str(file)!r})\nprint(first.dask.max_tasks, get_config() is first)"
    assert run(code, tmp_path) == "5 True"


@pytest.mark.parametrize("named", ["~/mine.json", "mine.json", "{home}/mine.json"])
def test_the_environment_names_the_file(named: str, tmp_path: Path) -> None:
    write(tmp_path / "mine.json", {"dask": {"max_tasks": 6}})
    code = "os.chdir('/')\nprint(get_config().dask.max_tasks)"
    assert run(code, tmp_path, ZIGGURAT_CONFIG_PATH=named.format(home=tmp_path)) == "6"


def test_the_environment_counts_before_import_only(tmp_path: Path) -> None:
    write(tmp_path / "mine.json", {"dask": {"max_tasks": 6}})
    code = "os.environ['ZIGGURAT_CONFIG_PATH'] = 'mine.json'\nprint(get_config().dask.max_tasks)"
    assert run(code, tmp_path) == "10000"


def test_an_environment_that_names_a_missing_file_warns(tmp_path: Path) -> None:
    code = "import warnings\nwith warnings.catch_warnings(record=True) as caught:\n warnings.simplefilter('always')\n"
    code += " get_config()\n get_config()\nprint([(w.category.__name__, str(w.message)) for w in caught])"
    said = run(code, tmp_path, ZIGGURAT_CONFIG_PATH="absent.json")
    assert said.count("UserWarning") == 1
    assert f"ZIGGURAT_CONFIG_PATH names {tmp_path / 'absent.json'}" in said


def test_a_refused_file_is_refused_each_time(tmp_path: Path) -> None:
    write(tmp_path / "mine.json", {"dask": {"max_tasks": 0}})
    code = "for _ in range(2):\n try:\n  get_config()\n except ConfigError as error:\n  print(error)"
    said = run(code, tmp_path, ZIGGURAT_CONFIG_PATH="mine.json").splitlines()
    assert said[0].startswith(f"{tmp_path / 'mine.json'}: dask.max_tasks = 0: ")
    assert said[1] == said[0]


def test_threads_get_one_object(tmp_path: Path) -> None:
    code = "import time\nfrom concurrent.futures import ThreadPoolExecutor\nfrom ziggurat import config\n"
    code += "config.read_config = lambda path: time.sleep(0.05) or config.Config()\n"  # reading takes a while
    code += "with ThreadPoolExecutor(8) as pool:\n seen = list(pool.map(lambda _: get_config(), range(8)))\n"
    code += "print(len({id(one) for one in seen}))"
    assert run(code, tmp_path) == "1"


def test_importing_the_configuration_loads_nothing_heavy(tmp_path: Path) -> None:
    code = "import sys\nprint(sorted({'zarr', 'dask', 'numpy', 'numba', 'xarray', 's3fs'} & set(sys.modules)))"
    assert run(code, tmp_path) == "[]"


def test_get_config_is_one_object() -> None:
    assert get_config() is get_config()
