"""Output on the terminal: aligned, cleaned, drawn only where somebody watches."""

from __future__ import annotations

import io
import os
import pty
import subprocess
import sys
import termios

import pytest

from orchestrator.cli import output
from orchestrator.cli.show import cell_text
from tests.orchestrator.cli.records import cell, partly

HOSTILE = "a\x1b[2J\x1b]0;owned\x07\u202eb\u200bc\x00[red]d[/red]"


@pytest.mark.parametrize("character", ["\x1b", "\x07", "\x00", "\u202e", "\u200b", "\x9b", "\r", "\u2028"])
def test_hidden_characters_become_visible(character: str) -> None:
    assert character not in output.clean(f"a{character}b")
    assert output.clean("plain ü ±") == "plain ü ±"


def test_a_line_break_in_a_name_stays_on_its_line() -> None:
    assert output.clean("a\nb") == "a b"
    assert output.clean("a\nb", keep_lines=True) == "a\nb"


def test_no_line_of_a_text_is_a_workflow_command() -> None:
    assert output.clean("why\n::error::no\n\u00a0 ::warning::no", keep_lines=True) == (
        "why\n⟨U+003A⟩:error::no\n\u00a0 ⟨U+003A⟩:warning::no"
    )
    assert output.clean(" ::error::no") == " ⟨U+003A⟩:error::no"
    assert output.clean("why\n::error::no") == "why ::error::no"
    assert output.clean("std::swap, a: b") == "std::swap, a: b"


def test_a_plain_table_is_aligned_and_may_have_lines_in_cells() -> None:
    names = ("name", "n")
    assert output.aligned(names, [["a", "1"], ["long", "10"]], "n") == ["name   n", "a      1", "long  10"]
    assert output.aligned(names, [["a\nb", "1"]]) == ["name  n", "", "a     1", "b"]
    assert "\x1b" not in output.aligned(["\x1b[31mred"], [])[0]


def on_a_terminal(code: str) -> str:
    """Return a program's output on a terminal of 80 columns."""
    own, theirs = pty.openpty()
    environment = os.environ | {"TERM": "xterm", "COLUMNS": "80"}
    environment.pop("NO_COLOR", None)
    with subprocess.Popen([sys.executable, "-c", code], stdout=theirs, stderr=theirs, env=environment) as run:
        os.close(theirs)
        written = b""
        while True:
            try:
                part = os.read(own, 65536)
            except OSError:
                break
            if not part:
                break
            written += part
        assert run.wait() == 0, written
    os.close(own)
    return written.decode()


def test_a_drawn_table_shows_hostile_names_as_text() -> None:
    code = f"from orchestrator.cli import output\noutput.table(['model'], [[{HOSTILE!r}]])\n"
    written = on_a_terminal(code)
    assert "[red]d[/red]" in written
    for hidden in ("\x1b[2J", "\x1b]0", "\x07", "\u202e", "\u200b", "\x00"):
        assert hidden not in written


def test_the_status_line_is_redrawn_on_a_terminal_and_silent_elsewhere(
    capfd: pytest.CaptureFixture[str],
) -> None:
    code = (
        "from orchestrator.cli.output import StatusLine\n"
        "with StatusLine() as status:\n"
        f"    status.update('working on ' + {HOSTILE!r} + 'x' * 200)\n"
        "    status.event('one cell done')\n"
        "    status.update('working still')\n"
    )
    written = on_a_terminal(code)
    assert "working on" in written
    assert "one cell done" in written
    assert written.endswith("\r\x1b[2K")
    assert "\x1b[2J" not in written
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert (done.stdout, done.stderr) == ("", "one cell done\n")


def test_a_closed_pipe_is_no_error() -> None:
    code = "from orchestrator.cli import run; import sys; sys.exit(run(['--help']))"
    reader, writer = os.pipe()
    os.close(reader)
    done = subprocess.run(
        [sys.executable, "-u", "-c", code], stdout=writer, stderr=subprocess.PIPE, text=True, check=False
    )
    os.close(writer)
    assert done.stderr == ""


def test_a_terminal_with_a_small_alphabet_gets_escapes_instead_of_an_error() -> None:
    code = (
        "from orchestrator.cli import output\noutput.tolerate_any_text()\n"
        f"output.line('caf\u00e9 {chr(0x27E8)}')\n"
    )
    environment = os.environ | {"PYTHONIOENCODING": "latin-1"}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, check=True)
    assert done.stdout == b"caf\xe9 \\u27e8\n"


def test_json_hides_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    output.emit_json({"name": HOSTILE})
    written = capsys.readouterr().out
    assert written.isascii()
    assert all(c.isprintable() or c == "\n" for c in written)
    with pytest.raises(ValueError, match="Out of range float"):
        output.emit_json({"value": float("nan")})


def test_a_cell_in_full_names_every_fallback_and_the_missing_figures() -> None:
    text = cell_text(partly("net"), [])
    assert "CUMSUM (7): no such kernel" in text
    assert "none: 90 samples; p99 needs 662" in text
    assert "partial: 69 of 70 operators in 2 partition(s)" in text


def test_a_struck_out_cell_in_full_shows_no_latency() -> None:
    text = cell_text(cell(p50=0.777, verdict="fail"), [])
    assert "struck out" in text
    assert "0.777" not in text
    assert "rel l2 2e-07" in text
    assert "farm model bisect FILE --delegate" in text
    assert "bisect" not in cell_text(cell(p50=0.777), [])


@pytest.mark.parametrize(
    ("stated", "columns"), [(None, 120), ("200", 200), ("80", 80), ("3", 40), ("many", 120), ("-5", 120)]
)
def test_a_pipe_has_the_width_that_is_stated(
    stated: str | None, columns: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stdout", io.StringIO())
    monkeypatch.delenv("COLUMNS", raising=False)
    if stated is not None:
        monkeypatch.setenv("COLUMNS", stated)
    assert output.width() == columns


def test_a_terminal_has_its_own_width() -> None:
    code = "from orchestrator.cli import output; print('wide', output.width())"
    own, theirs = pty.openpty()
    termios.tcsetwinsize(theirs, (24, 97))
    done = subprocess.run([sys.executable, "-c", code], stdout=theirs, env=os.environ, check=True)
    os.close(theirs)
    assert (done.returncode, os.read(own, 99).decode().split()) == (0, ["wide", "97"])
    os.close(own)


def test_a_terminal_is_recognised() -> None:
    assert not output.is_terminal(io.StringIO())
