"""The command line: what it prints, what it refuses and how, and what it does not import."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import zarr

import ziggurat
from ziggurat.cli import app, main
from ziggurat.demo import make_image, make_labels
from ziggurat.display import progress_texts
from ziggurat.parsing import parse_factors, parse_nodata
from ziggurat.report import Progress

type Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    """Run the command line in this process; return its exit code, stdout and stderr."""
    monkeypatch.delenv("ZIGGURAT_DEBUG", raising=False)
    # What an option sets is set for the process: other tests are to find it as it was.
    dask = ziggurat.get_config().dask
    monkeypatch.setattr(dask, "write_block_max_bytes", dask.write_block_max_bytes)

    def run(*arguments: str | Path) -> tuple[int, str, str]:
        code = main([str(argument) for argument in arguments])
        return code, *capsys.readouterr()

    return run


@pytest.fixture
def pixels() -> np.ndarray:
    return np.random.default_rng(0).integers(0, 256, (2, 301, 203), "uint8")


@pytest.fixture
def image(tmp_path: Path, pixels: np.ndarray) -> Path:
    return make_image(tmp_path / "my image.zarr", pixels)


def outside(*arguments: str, **options: object) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False, **options)  # type: ignore[call-overload,no-any-return]


# Imports


def test_help_imports_nothing_heavy() -> None:
    code = (
        "import sys; from ziggurat.cli import main; code = main(['--help']); "
        "heavy = {'zarr', 'dask', 'numba', 'numpy', 'matplotlib', 'xarray', 'skimage'} & set(sys.modules); "
        "sys.exit(f'imported {heavy}' if heavy else code)"
    )
    done = outside("-c", code)
    assert (done.returncode, done.stderr) == (0, "")
    assert all(word in done.stdout for word in ("info", "plan", "consolidate", "demo"))


# Usage


def test_without_a_command_it_helps(run: Run) -> None:
    code, out, err = run()
    assert (code, err) == (0, "")
    assert "Usage" in out


def test_version(run: Run) -> None:
    assert run("--version") == (0, "0.1.0\n", "")


def test_every_command_has_help(run: Run) -> None:
    for command in app.registered_commands:
        assert command.callback is not None
        code, out, _ = run(command.callback.__name__, "--help")
        assert (code, "Usage" in out) == (0, True)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["info"], ["PATH", "--help"]),
        (["rebuild", "x"], ["rebuild", "--help"]),
        (["plan", "x", "--wrong"], ["--wrong", "--help"]),
        (["consolidate", "x", "--mode", "gpu"], ["gpu", "numpy", "dask"]),
        (["consolidate", "x", "--factors", "2,y"], ["2,y", "1x2x2"]),
        (["consolidate", "x", "--nodata", "none"], ["none", "nan"]),
        (["consolidate", "x", "--write-block-max-bytes", "8 parsecs"], ["8 parsecs", "8 MiB"]),
        (["info", "nowhere.zarr"], ["nowhere.zarr"]),
        (["plan", "nowhere.zarr"], ["nowhere.zarr"]),
        (["consolidate", "nowhere.zarr"], ["nowhere.zarr"]),
    ],
)
def test_what_is_wrong_is_one_line(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str], words: list[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    code, out, err = run(*arguments)
    assert (code, out) == (1, "")
    assert err.startswith("ziggurat: ")
    assert err.count("\n") == 1
    assert all(word in err for word in words), err
    assert list(tmp_path.iterdir()) == []


def test_remedies_are_those_of_the_command_line(run: Run, image: Path, tmp_path: Path) -> None:
    group = zarr.create_group(tmp_path / "plain.zarr")
    group.create_array("a", shape=(8, 8), chunks=(4, 4), dtype="uint8")
    cases = {
        "--level": ("info", tmp_path / "plain.zarr"),
        "--overwrite": ("build", image, image),
        "'changed'": ("consolidate", image, "--regions", "touched"),
        "at most 1": ("verify", image, "--sample", "5"),
    }
    for remedy, arguments in cases.items():
        code, out, err = run(*arguments)
        assert (code, out, err.count("\n")) == (1, "", 1)
        assert remedy in err and "=True" not in err and "levels=" not in err, err


@pytest.mark.parametrize("verb", ["info", "plan", "consolidate", "build"])
def test_a_file_of_another_kind(run: Run, tmp_path: Path, verb: str) -> None:
    (tmp_path / "picture.png").write_bytes(b"\x89PNG")
    code, out, err = run(verb, tmp_path / "picture.png", *([tmp_path / "new.zarr"] if verb == "build" else []))
    assert (code, out, err.count("\n")) == (1, "", 1)
    assert "picture.png is" in err and (".npy" in err if verb == "build" else "a directory" in err)
    assert not (tmp_path / "new.zarr").exists()


def test_one_factor_is_that_of_all_levels(run: Run, image: Path) -> None:
    assert run("plan", image, "--factors", "2")[0] == 0


def test_info_of_a_plain_group(run: Run, tmp_path: Path) -> None:
    group = zarr.create_group(tmp_path / "plain.zarr")
    group.create_array("a", shape=(8, 8), chunks=(4, 4), dtype="uint8")
    code, out, _ = run("info", tmp_path / "plain.zarr", "--level", "a")
    assert code == 0 and "plain.za" in out and "None" not in out


def test_unknown_method_is_one_line(run: Run, image: Path) -> None:
    code, out, err = run("consolidate", image, "--method", "average")
    assert (code, out, err.count("\n")) == (1, "", 1)
    assert "average" in err
    assert "mean" in err


def test_unexpected_errors_are_one_line_too(run: Run, image: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> None:
        raise KeyError("two\nlines")

    monkeypatch.setattr(ziggurat, "consolidate", fail, raising=False)
    code, _, err = run("consolidate", image)
    assert (code, err.count("\n")) == (1, 1)
    assert "KeyError" in err
    assert "with -v" in err


def test_an_interrupt_ends_like_a_signal(run: Run, image: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(*_: object, **__: object) -> None:
        error = KeyboardInterrupt()
        error.add_note("3 of 9 write units were done")
        raise error

    monkeypatch.setattr(ziggurat, "consolidate", interrupt, raising=False)
    assert run("consolidate", image) == (130, "", "ziggurat: interrupted; 3 of 9 write units were done\n")


@pytest.mark.parametrize("arguments", [("-v", "info", "nowhere.zarr"), ("info", "nowhere.zarr", "-v")])
def test_verbose_shows_where_it_comes_from_and_what_to_do(run: Run, arguments: tuple[str, ...]) -> None:
    code, out, err = run(*arguments)
    assert (code, out) == (1, "")
    assert err.startswith("Traceback") and "store.py" in err
    assert err.splitlines()[-1].startswith("ziggurat: there is nothing at nowhere.zarr")


def test_debug_variable_is_verbose(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ZIGGURAT_DEBUG", "1")
    assert run("info", "nowhere.zarr")[2].startswith("Traceback")


def test_module_ends_with_the_exit_code(tmp_path: Path) -> None:
    done = outside("-m", "ziggurat.cli", "info", str(tmp_path / "nowhere.zarr"))
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (1, "", 1)


# Values


def test_parse_factors() -> None:
    assert parse_factors("2,3") == [2, 3]
    assert parse_factors("1x2x2,2") == [(1, 2, 2), 2]
    assert parse_factors("3") == 3
    assert parse_factors("1x2x2") == [(1, 2, 2)]


def test_parse_nodata_keeps_integers() -> None:
    assert parse_nodata(str(2**53 + 1)) == 2**53 + 1
    assert isinstance(parse_nodata("-5"), int)
    assert np.isnan(parse_nodata("nan"))
    assert parse_nodata("1e3") == 1000.0


@pytest.mark.parametrize("sizes", ["1,2,3", "1x", "y"])
def test_sizes_are_refused_in_one_line(run: Run, image: Path, tmp_path: Path, sizes: str) -> None:
    code, out, err = run("build", image, tmp_path / "new.zarr", "--chunks", sizes)
    assert (code, out, err.count("\n")) == (1, "", 1)
    assert sizes in err and "1x512x512" in err


# What every verb has


VERBS = {
    "info": ["my image.zarr"],
    "build": ["my image.zarr", "copy.zarr"],
    "plan": ["my image.zarr"],
    "consolidate": ["my image.zarr"],
    "verify": ["my image.zarr"],
    "preview": ["my image.zarr", "-o", "picture.png"],
    "config": [],
    "demo": ["somewhere"],
}


def test_every_verb_is_listed() -> None:
    names = [command.callback.__name__ for command in app.registered_commands if command.callback]
    assert sorted(names) == sorted([*VERBS, "view"])


@pytest.fixture
def ready(image: Path, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """Make a built image in the working directory."""
    monkeypatch.chdir(image.parent)
    assert run("consolidate", image.name, "-q") == (0, "", "")


@pytest.mark.parametrize("verb", VERBS)
def test_json_is_one_document_and_nothing_else(run: Run, ready: None, verb: str) -> None:
    code, out, err = run(verb, *VERBS[verb], "--json")
    assert (code, err) == (0, "")
    assert isinstance(json.loads(out), dict)


@pytest.mark.parametrize("verb", VERBS)
def test_quiet_prints_nothing(run: Run, ready: None, verb: str) -> None:
    assert run(verb, *VERBS[verb], "--quiet") == (0, "", "")


@pytest.mark.parametrize("verb", VERBS)
def test_verbose_shows_the_log_of_that_call_alone(run: Run, ready: None, verb: str) -> None:
    code, out, err = run(verb, *VERBS[verb], "-v")
    assert code == 0 and out
    assert ("info: " in err) == (verb in ("build", "consolidate", "verify", "demo"))
    assert "info:" not in run(verb, *VERBS[verb], *(["--overwrite"] if verb == "build" else []))[2]


EXAMPLES = [
    line
    for command in app.registered_commands
    for line in (command.epilog or "").split("\n\n")
    if line.startswith("ziggurat ") and not line.startswith("ziggurat view")
]


@pytest.mark.parametrize("example", EXAMPLES)
def test_examples_in_the_help_run(
    run: Run, tmp_path: Path, pixels: np.ndarray, monkeypatch: pytest.MonkeyPatch, example: str
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("image.zarr", "plate.zarr"):
        make_image(tmp_path / name, pixels)
    ziggurat.consolidate("image.zarr")
    group = zarr.create_group("group.zarr")
    for name, n in (("0", 64), ("1", 32)):
        group.create_array(name, shape=(n, n), chunks=(16, 16), dtype="uint8")
    np.save("pixels.npy", pixels)
    np.save("cells.npy", pixels[:1])
    words = example.split()[1:]
    if "--resume" in words:
        pytest.skip("nothing was interrupted: see test_ctrl_c_and_resume")
    if words[:2] == ["build", "pixels.npy"]:
        words[2] = "new.zarr"
    code, out, err = run(*words)
    assert (code, err) == (0, "") and out


def test_every_verb_has_examples() -> None:
    for command in app.registered_commands:
        assert (command.epilog or "").count("ziggurat ") >= 2, command.callback


@pytest.mark.skipif(os.name == "nt", reason="Windows has no SIGINT for one process")
def test_ctrl_c_and_resume(tmp_path: Path, run: Run) -> None:
    group = zarr.create_group(tmp_path / "plain.zarr")
    for name, n in (("0", 1024), ("1", 512), ("2", 256)):
        group.create_array(name, shape=(n, n), chunks=(32, 32), dtype="uint8")
    pixels = np.random.default_rng(0).integers(0, 256, (1024, 1024), "uint8")
    zarr.open_array(tmp_path / "plain.zarr" / "0")[...] = pixels
    arguments = ["consolidate", str(tmp_path / "plain.zarr"), "--mode", "dask", "--method", "max"]
    arguments += ["--write-block-max-bytes", "4 KiB", *(word for k in "012" for word in ("--level", k))]
    slow = (
        "import sys, time; from ziggurat import handle; from ziggurat.cli import main; write = handle.Handle.write\n"
        "handle.Handle.write = lambda *args: (time.sleep(0.04), write(*args))\n"
        "sys.exit(main(sys.argv[1:]))"
    )
    with subprocess.Popen(
        [sys.executable, "-c", slow, *arguments], stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        # By then some tasks of several units each are done.
        while process.poll() is None and len(list((tmp_path / "plain.zarr" / "1" / "c").glob("*/*"))) < 100:
            time.sleep(0.01)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=60)
    assert (process.returncode, out, err.count("\n")) == (130, "", 1), err
    assert err.startswith("ziggurat: interrupted; ") and "write units were done" in err and "; --resume does" in err
    code, out, err = run(*arguments, "--resume", "--json")
    assert (code, err) == (0, "")
    assert 0 < json.loads(out)["n_units"] < 16 * 16 + 8 * 8
    np.testing.assert_array_equal(group["1"][...], pixels.reshape(512, 2, 512, 2).max(axis=(1, 3)))
    assert run("verify", *arguments[1:4], *arguments[4:6], *arguments[8:])[0] == 0


def test_what_reads_the_output_may_stop(image: Path) -> None:
    command = f'"{sys.executable}" -m ziggurat.cli config | true'
    done = subprocess.run(command, shell=True, capture_output=True, text=True, timeout=60, check=False)
    assert done.stderr == ""


@pytest.mark.parametrize(
    ("line", "index", "found"),
    [
        ("ziggurat con", 1, ["consolidate", "config"]),
        ("ziggurat consolidate x --method m", 4, ["mean", "median", "mode", "min", "max"]),
        ("ziggurat plan x --mode ", 4, ["auto", "numpy", "dask"]),
    ],
)
def test_shells_complete(line: str, index: int, found: list[str]) -> None:
    environment = {"_ZIGGURAT_COMPLETE": "complete_bash", "COMP_WORDS": line, "COMP_CWORD": str(index)}
    done = outside("-m", "ziggurat.cli", env={**os.environ, **environment})
    assert sorted(done.stdout.split()) == sorted(found)


# info


def test_info(run: Run, image: Path) -> None:
    code, out, err = run("info", image)
    assert (code, err) == (0, "")
    assert "method: mean" in out
    finest = next(line for line in out.splitlines() if "2 x 301 x 203" in line)
    assert all(word in finest for word in ("0", "uint8", "1 x 128 x 128", "1 x 384 x 256", "1 1 1"))
    assert any("2 x 37 x 25" in line and "1 8 8" in line for line in out.splitlines())


def test_info_json(run: Run, image: Path) -> None:
    code, out, _ = run("info", image, "--json")
    values = json.loads(out)
    assert (code, values["axes"], values["method"]) == (0, ["c", "y", "x"], "mean")
    assert values["levels"][1]["shape"] == [2, 150, 101]
    assert values["levels"][1]["scale"] == [1.0, 2.0, 2.0]
    assert values["levels"][1]["dtype"] == "uint8"


def test_info_of_labels(run: Run, image: Path, pixels: np.ndarray) -> None:
    labels = make_labels(image, pixels[0])
    assert "method: mode" in run("info", labels)[1]


def test_info_of_a_name_with_brackets(run: Run, tmp_path: Path, pixels: np.ndarray) -> None:
    image = make_image(tmp_path / "[red]a[bold].zarr", pixels)
    assert "[red]a[bold]" in run("info", image)[1]


# plan and consolidate


def test_plan_writes_nothing(run: Run, image: Path) -> None:
    before = sorted(image.rglob("*"))
    code, out, err = run("plan", image)
    assert (code, err) == (0, "")
    assert "numpy" in out
    assert sorted(image.rglob("*")) == before


def test_consolidate_prints_the_report(run: Run, image: Path, pixels: np.ndarray) -> None:
    code, out, err = run("consolidate", image)
    assert (code, err) == (0, "")
    assert "mean on numpy" in out
    blocks = pixels[:, :300, :202].reshape(2, 150, 2, 101, 2).mean(axis=(2, 4))
    np.testing.assert_array_equal(zarr.open_array(image / "1")[...], np.rint(blocks))


def test_consolidate_json(run: Run, image: Path) -> None:
    code, out, err = run("consolidate", image, "--json", "--mode", "dask", "--method", "max")
    values = json.loads(out)
    assert (code, err) == (0, "")
    assert (values["mode"], values["method"], len(values["levels"])) == ("dask", "max", 3)


def test_consolidate_quiet(run: Run, image: Path) -> None:
    assert run("consolidate", image, "--quiet") == (0, "", "")
    assert zarr.open_array(image / "3")[...].any()


def test_consolidate_takes_levels_factors_and_nodata(run: Run, tmp_path: Path) -> None:
    group = zarr.create_group(tmp_path / "plain.zarr")
    for name, shape in (("full", (4, 6)), ("half", (2, 3))):
        group.create_array(name, shape=shape, chunks=(2, 2), dtype="int16")
    full = zarr.open_array(tmp_path / "plain.zarr" / "full")
    full[...] = 7
    full[::2] = -1
    arguments = ["--level", "full", "--level", "half", "--factors", "2x2", "--nodata", "-1", "--method", "mean"]
    code, _, err = run("consolidate", tmp_path / "plain.zarr", *arguments)
    assert (code, err) == (0, "")
    assert (zarr.open_array(tmp_path / "plain.zarr" / "half")[...] == 7).all()


def test_block_ceiling_is_a_setting(run: Run, image: Path) -> None:
    dask = ziggurat.get_config().dask
    assert run("plan", image, "--write-block-max-bytes", "64 KiB")[0] == 0
    assert dask.write_block_max_bytes == 64 * 1024


# Progress


def test_progress_texts() -> None:
    record = Progress(level=2, n_units=1_000, n_units_total=4_000, bytes_done=60 * 2**20, elapsed_s=30.0)
    assert progress_texts(record) == ["level 2", "1,000/4,000 units", "2.0 MiB/s", "0:01:30 left"]
    assert progress_texts(Progress(1, 0, 4_000, 0, 0.0))[-1] == ""


def read_all(terminal: int) -> str:
    """Read what the other end of a pseudo-terminal gets until it is closed, which Linux tells as an error."""
    parts = []
    with contextlib.suppress(OSError):
        while part := os.read(terminal, 2**16):
            parts.append(part)
    return b"".join(parts).decode()


@pytest.mark.skipif(os.name == "nt", reason="Windows has no pseudo-terminals")
def test_progress_bar_on_a_terminal_only(image: Path) -> None:
    reader, terminal = os.openpty()
    command = [sys.executable, "-m", "ziggurat.cli", "consolidate", str(image)]
    environment = {**os.environ, "TERM": "xterm", "COLUMNS": "100"}
    with subprocess.Popen(command, stderr=terminal, stdout=subprocess.DEVNULL, env=environment) as process:
        os.close(terminal)
        drawn = read_all(reader)
    os.close(reader)
    assert process.returncode == 0
    assert "units" in drawn
    assert "level" in drawn


def test_no_progress_bar_off_a_terminal(image: Path) -> None:
    done = outside("-m", "ziggurat.cli", "consolidate", str(image), env={**os.environ, "FORCE_COLOR": "1"})
    assert (done.returncode, done.stderr) == (0, "")


# demo


def test_demo_twice(run: Run, tmp_path: Path) -> None:
    place = tmp_path / "here and there"
    for _ in range(2):
        code, out, err = run("demo", place)
        assert (code, err) == (0, "")
        assert "mean on" in out
        assert "mode on" in out
        assert out.count("equal a plain numpy reference") == 2
        assert str(place / "retina.zarr") in out
    assert zarr.open_array(place / "retina.zarr" / "3").shape == (3, 176, 176)


def test_demo_tells_commands_that_work(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    _, out, _ = run("demo", tmp_path / "new")
    (line,) = (line for line in out.splitlines() if " info " in line)
    done = subprocess.run(line, shell=True, capture_output=True, text=True, timeout=60, check=True)
    assert "2 x 2" not in done.stdout and "1411" in done.stdout


def test_demo_keeps_what_it_did_not_make(run: Run, tmp_path: Path) -> None:
    (tmp_path / "retina.zarr").mkdir()
    (tmp_path / "retina.zarr" / "mine").write_text("keep")
    code, _, err = run("demo", tmp_path)
    assert (code, err.count("\n")) == (1, 1)
    assert "another directory" in err
    assert (tmp_path / "retina.zarr" / "mine").read_text() == "keep"


def test_demo_without_scikit_image(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "skimage", None)
    code, _, err = run("demo", tmp_path / "new")
    assert (code, err.count("\n")) == (1, 1)
    assert "pip install 'ziggurat[demo]'" in err
    assert not (tmp_path / "new").exists()


def test_demo_finds_a_wrong_pixel(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ziggurat, "consolidate", lambda path: "nothing done", raising=False)
    code, _, err = run("demo", tmp_path / "new")
    assert (code, err.count("\n")) == (1, 1)
    assert "level 1" in err
    assert "differs from its reference" in err


def test_config_says_where_each_setting_comes_from(tmp_path):
    file = tmp_path / "mine.json"
    file.write_text('{"dask": {"max_tasks": 77}}')
    environment = {**os.environ, "ZIGGURAT_CONFIG_PATH": str(file)}

    def run(*arguments):
        command = [sys.executable, "-m", "ziggurat.cli", "config", *arguments]
        return subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout

    lines = {line.split()[0]: line for line in run().splitlines()}
    assert "77" in lines["dask.max_tasks"] and str(file) in lines["dask.max_tasks"]
    assert lines["consolidation.numpy_max_bytes"].endswith("default")
    assert json.loads(run("--json"))["dask.max_tasks"] == {"value": 77, "origin": f"file {file}"}
    assert "dask" in json.loads(run("--schema"))["properties"]
