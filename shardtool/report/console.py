"""What a command shows: tables and JSON on stdout; warnings, notes and bars on stderr."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterable, Sequence
from typing import IO, TYPE_CHECKING, Any

from ..base.reporting import Reporter

if TYPE_CHECKING:
    from tqdm import tqdm

# In a log a bar would be thousands of lines; a line this often (seconds) says as much.
LOG_EVERY = 30.0


class Console(Reporter):
    """The reporter of the command line.

    progress   'auto' (bars when stderr is a terminal), 'always', 'never'
    """

    def __init__(self, *, as_json: bool, quiet: bool, progress: str, log_file: str | None) -> None:
        super().__init__()
        self.as_json = as_json
        self.quiet = quiet
        self._log: IO[str] | None = open(log_file, "a", encoding="utf-8") if log_file else None
        terminal = sys.stderr.isatty()
        self._bars = not quiet and (progress == "always" or (progress == "auto" and terminal))
        self._lines = not quiet and progress == "auto" and not terminal
        self._bar: tqdm[Any] | None = None
        self._label, self._total, self._done, self._unit, self._next_line = "", 0, 0, "", 0.0

    # -- lines ------------------------------------------------------------------------------------------------

    def show_warning(self, text: str) -> None:
        """Warnings are shown with --quiet too: what is ignored or odd is said once, always."""
        self._stderr(f"Warning: {text}")

    def note(self, text: str) -> None:
        if not self.quiet:
            self._stderr(text)
        elif self._log:
            self._to_log(text)

    def _stderr(self, text: str) -> None:
        self._to_log(text)
        if self._bar is not None:
            self._bar.clear()
        print(text, file=sys.stderr, flush=True)

    def _to_log(self, text: str) -> None:
        if self._log:
            self._log.write(f"{time.strftime('%Y-%m-%d %H:%M:%S')} {text}\n")
            self._log.flush()

    # -- results ----------------------------------------------------------------------------------------------

    def result(self, facts: dict[str, Any]) -> None:
        """With --json: the one object on stdout."""
        if self.as_json:
            print(json.dumps(facts, ensure_ascii=True, sort_keys=True, indent=1))

    def print(self, text: str = "") -> None:
        """A line of the human result on stdout; nothing with --json or --quiet."""
        if not self.as_json and not self.quiet:
            print(text)

    def table(
        self, columns: Sequence[str], rows: Iterable[Sequence[object]], *, title: str | None = None,
        left: int = 1, footer: Sequence[object] | None = None,
    ) -> None:  # fmt: skip
        """A table on stdout: the first `left` columns left-aligned, the others (numbers) right-aligned."""
        if self.as_json or self.quiet:
            return
        from rich import box
        from rich.console import Console as Rich
        from rich.table import Table
        from rich.text import Text

        terminal = sys.stdout.isatty()
        class Pipe(Rich):
            def on_broken_pipe(self) -> None:
                raise BrokenPipeError  # rich would end with status 1, which is for bugs

        # Not on a terminal: as wide as the content, so that nothing is cut or wrapped in a file or a pipe.
        rich = Pipe(width=None if terminal else 10_000, highlight=False, soft_wrap=False)
        made = Table(
            title=title, title_justify="left", box=box.SIMPLE_HEAD if terminal else None, pad_edge=False,
            show_footer=footer is not None, show_header=any(columns), padding=(0, 2, 0, 0),
        )  # fmt: skip
        for number, name in enumerate(columns):
            made.add_column(
                name, justify="left" if number < left else "right", no_wrap=not terminal,
                footer=Text(str(footer[number])) if footer else "",
            )  # fmt: skip
        for row in rows:
            made.add_row(*(Text(str(cell)) for cell in row))  # Text: brackets in names are no markup
        rich.print(made)

    # -- progress ---------------------------------------------------------------------------------------------

    def stage(self, label: str, total: int, unit: str) -> None:
        self.finish()
        self._label, self._total, self._done, self._unit = label, total, 0, unit
        self._next_line = time.monotonic() + LOG_EVERY
        if self._bars:
            from tqdm import tqdm

            tqdm.monitor_interval = 0  # no monitor thread: workers are forked
            self._bar = tqdm(
                total=total, desc=label, unit=unit, unit_scale=True, file=sys.stderr, leave=False,
                unit_divisor=1024 if unit == "B" else 1000, disable=False,
            )  # fmt: skip

    def advance(self, count: int) -> None:
        self._done += count
        if self._bar is not None:
            self._bar.update(count)
        elif self._lines and time.monotonic() >= self._next_line:
            self._next_line = time.monotonic() + LOG_EVERY
            share = 100 * self._done // self._total if self._total else 0
            self._stderr(f"{self._label}: {share} % of {self._total:,} {self._unit}")

    def finish(self) -> None:
        if self._bar is not None:
            self._bar.close()
            self._bar = None

    def close(self) -> None:
        """Ends the bar and the log."""
        self.finish()
        if self._log:
            self._log.close()
