"""What `shardtool verify` shows."""

from __future__ import annotations

from ..base.errors import FindingError
from ..base.units import plural, show_seconds, show_size
from ..jobs.verify import Report
from .console import Console


def show(console: Console, report: Report) -> None:
    """Findings and counts; raises FindingError when there is a finding."""
    console.result(report.facts())
    for finding in report.findings:
        console.print(str(finding))
    if report.findings_total > len(report.findings):
        console.print(f"... and {report.findings_total - len(report.findings):,} more")
    if report.findings:
        console.print()
    rows = [
        ("checked", f"{plural(report.shards, 'shard')}, {plural(report.samples, 'sample')}, {show_size(report.bytes)} "
                    f"in {show_seconds(report.seconds)}"),
        ("against", _against(report)),
        *((f"read by {name} {facts['release']}", _reader(facts)) for name, facts in report.readers.items()),
        ("findings", f"{report.findings_total:,}" if report.findings_total else "none"),
    ]  # fmt: skip
    console.table(("", ""), [row for row in rows if row[1]], left=2)
    if report.findings_total:
        raise FindingError(
            f"{plural(report.findings_total, 'finding')}, the first: {report.findings[0]}",
            remedy="fetch or write again what is damaged; a repack run again with --overwrite writes all anew",
        )


def _against(report: Report) -> str:
    about = report.against
    if about is None:
        return ""
    if about["equal"]:
        return f"the same {plural(about['samples'], 'sample')} as in {plural(about['sources'], 'file')}"
    return f"{about['missing']:,} missing, {about['extra']:,} extra"


def _reader(facts: dict[str, object]) -> str:
    if facts["differences"]:
        return f"{facts['samples']:,} samples, {facts['differences']:,} differ"
    return f"{facts['samples']:,} samples, all equal"
