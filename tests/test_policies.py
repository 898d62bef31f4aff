"""docs/policies.md has every option that decides what becomes of odd input, and none that does not exist."""

import pathlib
import re

from shardtool.cli.options import _RULE_FIELDS, _SOURCE_FIELDS, _source_options
from shardtool.cli.repack import command

PAGE = (pathlib.Path(__file__).resolve().parent.parent / "docs" / "policies.md").read_text(encoding="utf-8")


def source_flags():
    """The options on how SRC is read, hidden ones left out."""

    def bare():
        pass

    for option in _source_options():
        bare = option(bare)
    return {flag for one in bare.__click_params__ if not one.hidden for flag in one.opts}


def test_every_policy_is_on_the_page():
    flags = source_flags()
    assert len(flags) > 12 and len(_RULE_FIELDS) + len(_SOURCE_FIELDS) == len(flags)
    for flag in [*sorted(flags), "--keys", "--overwrite"]:
        assert re.search(rf"`{flag}\b", PAGE), f"{flag} is not on the page"


def test_every_option_of_the_page_exists():
    known = {flag: one for one in command.params for flag in one.opts}
    for flag, value in re.findall(r"`(--[a-z-]+)(?: ([a-z,]+))?`", PAGE):
        assert flag in known, flag
        choices = getattr(known[flag].type, "choices", None)
        if choices and value:
            assert value in choices, f"{flag} {value}"
