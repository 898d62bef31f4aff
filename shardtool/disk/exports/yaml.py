"""The few words of YAML that exports need."""

from __future__ import annotations


def quoted(text: str) -> str:
    """A double-quoted scalar in ASCII, whatever the text."""
    return '"' + "".join(map(_character, text)) + '"'


def _character(one: str) -> str:
    if one in '"\\':
        return f"\\{one}"
    return one if " " <= one <= "~" else f"\\U{ord(one):08X}"


def listed(texts: list[str]) -> str:
    """A list on one line."""
    return "[" + ", ".join(map(quoted, texts)) + "]"
