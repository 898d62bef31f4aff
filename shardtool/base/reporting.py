"""How a job talks to whoever runs it, without knowing who that is."""

from __future__ import annotations


class Reporter:
    """Base of all reporters, and the silent one: keeps the warnings, shows nothing.

    A job calls `stage` when a stage of known size begins, `advance` as it goes, and `warn` once per fact.
    """

    def __init__(self) -> None:
        self.warnings: list[str] = []

    def warn(self, text: str) -> None:
        """One fact that the user should know; the same text is kept once."""
        if text not in self.warnings:
            self.warnings.append(text)
            self.show_warning(text)

    def show_warning(self, text: str) -> None:
        """Where a warning goes at once."""

    def note(self, text: str) -> None:
        """Something worth a line, no warning: which files were ignored, that there is nothing to do."""

    def stage(self, label: str, total: int, unit: str) -> None:
        """A stage begins: `total` units of `unit` ('B', 'samples', 'shards') lie ahead."""

    def advance(self, count: int) -> None:
        """`count` more units of the present stage are done."""

    def finish(self) -> None:
        """The present stage is over."""
