"""Commands that print what agents or judges wrote: nothing that a terminal would act on."""

from __future__ import annotations

from pathlib import Path

import pytest
from factories import make_recipe, make_run, make_score, make_scores, write_campaign

from automedbench.commands import judge_eval, main
from automedbench.judge.gold import Disagreement

ESCAPES = "\x1b]0;owned\x07\x1b[2J\u202egnp\u200b\x9b31m"
BAD = ("\x1b", "\x07", "\u202e", "\u200b", "\x9b")


def test_compare(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    agents = [f"one{ESCAPES}", "two"]
    scores = [
        make_score(make_run(agent, repeat=repeat), make_scores(), recipe=make_recipe(judge=f"{ESCAPES}{agent}"))
        for agent in agents
        for repeat in (1, 2, 3)
    ]
    write_campaign(tmp_path, scores)
    main(["compare", *agents, "--results", str(tmp_path)])
    printed = capsys.readouterr().out
    assert "one⟨U+001B⟩]0;owned⟨U+0007⟩" in printed
    assert [character for character in BAD if character in printed] == []


def test_judge_eval(monkeypatch: pytest.MonkeyPatch, root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    said = Disagreement(
        transcript="t", criterion="s3", expected=0, given=1, gold_reason="", reason=ESCAPES, quote=ESCAPES, turn=1
    )
    real = judge_eval.disagreement_lines
    monkeypatch.setattr(judge_eval, "disagreement_lines", lambda found: real([*found, said]))
    gold, rubrics = str(root / "config/gold"), str(root / "config/rubrics")
    main(["judge-eval", "--gold", gold, "--rubrics", rubrics, "--track", "vqa", "--verbose"])
    printed = capsys.readouterr().out
    assert "judge: ⟨U+001B⟩]0;owned" in printed
    assert [character for character in BAD if character in printed] == []
