"""The page of results and the README agree with the kept results, and these with the kept runs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from syrupy.assertion import SnapshotAssertion

from benchmarks.marks import put
from lab.study.reproduce.claims import NAMES, load
from tools import results

ROOT = Path(__file__).parents[3]
RUN = "20260101-0000-async-aaaa"


KEPT = results.kept()


def test_the_page_and_the_readme_show_the_results() -> None:
    text = (ROOT / "README.md").read_text()
    assert put(text, "results", f"{results.sentences(KEPT.values())}\n") == text
    assert (ROOT / "docs/explanation/results.md").read_text() == results.page(KEPT)


def rounded(value: Any) -> Any:
    """Round all numbers to 12 digits: the last ones of a mean differ between processors."""
    if isinstance(value, dict):
        return {key: rounded(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [rounded(each) for each in value]
    return float(f"{value:.12g}") if isinstance(value, float) else value


@pytest.mark.parametrize("name", KEPT)
def test_the_kept_runs_have_the_kept_verdicts_on_the_present_claims(name: str) -> None:
    assert rounded(results.judged(name)) == rounded(KEPT[name])
    present = [(c.id, c.text, c.kind, c.where, c.value) for c in load(name).claims]
    fields = ("claim", "text", "kind", "where", "printed")
    assert [tuple(each[field] for field in fields) for each in KEPT[name]["claims"]] == present


def claim(kind: str, verdict: str, **fields: Any) -> dict[str, Any]:
    return {
        "claim": "c", "text": "a claim", "kind": kind, "where": "the text", "printed": None,
        "ours": None, "interval": None, "unit": "", "verdict": verdict, "why": "a reason", **fields,
    }  # fmt: skip


def result(*claims: Any) -> dict[str, Any]:
    return {
        "name": "staleness", "source": "a source", "summary": "a summary", "claims": claims,
        "runs": {"whole": {"1": RUN}}, "excluded": {"a-run": "it is a copy"},
        "fitted": {"late": ["the start"]},
    }  # fmt: skip


FOUND = {
    "book-async": result(
        claim("measured", "REPRODUCED", printed=0.5, ours=0.6, interval={"low": 0.4, "high": 0.8}),
        claim("qualitative", "INCONCLUSIVE", ours=0.25, unit="of the steps"),
        claim("fitted", "NOT_REPRODUCED"),
        claim("check", "FAILED"),
    ),
    "staleness": result(claim("qualitative", "NOT_REPRODUCED"), claim("setting", "OK")),
}


def test_only_counted_claims_are_counted(snapshot: SnapshotAssertion) -> None:
    shown = results.section(FOUND)
    counts = shown.replace(" in the sources", "")
    assert "1 measured number, 1 is reproduced, none is inconclusive and none is not" in counts
    assert "2 statements, none is reproduced, 1 is inconclusive and 1 is not reprod" in counts
    assert [*shown.splitlines(), *results.page(FOUND).splitlines()] == snapshot


def test_equal_runs_make_equal_archives(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(results, "KEPT", tmp_path)
    (tmp_path / RUN / "tasks").mkdir(parents=True)
    (tmp_path / RUN / "tasks/worker-0.jsonl").write_text("{}\n")
    (tmp_path / RUN / "run.json").write_text('{"provenance": {"interpreter": "/opt/bin/python3"}}')
    (tmp_path / RUN / "summary.json").write_text("{}\n")
    (tmp_path / RUN / "model.npz").write_text("not kept")
    packed = set()
    for _ in range(2):
        results.pack("staleness", [tmp_path / RUN])
        packed.add(results.archive("staleness").read_bytes())
        (tmp_path / RUN / "tasks/worker-0.jsonl").touch()
    assert len(packed) == 1
    results.unpack("staleness", tmp_path / "again")
    kept = tmp_path / "again" / RUN
    files = sorted(str(path.relative_to(kept)) for path in kept.rglob("*") if path.is_file())
    assert files == ["run.json", "summary.json", "tasks/worker-0.jsonl"]
    assert json.loads((kept / "run.json").read_text())["provenance"] == {"interpreter": "python3"}


def test_unknown_sources_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        results.main(["book"])
    assert f"unknown: book; use {', '.join(NAMES)}" in capsys.readouterr().err
