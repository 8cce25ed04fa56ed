"""Rules that a transcript of the gold set keeps: what is expected of a judge must be possible."""

from __future__ import annotations

from automedbench.judge.evidence import collect_evidence, quote_exists
from automedbench.judge.gold import GoldTranscript
from automedbench.judge.rubric import Rubric


def gold_problems(gold: GoldTranscript, rubric: Rubric) -> list[str]:
    """What is wrong with the expectations, one line each: a criterion, its level, its evidence."""
    asked = {rule.id: rule for rule in rubric.judged(gold.tier)}
    evidence = collect_evidence(gold.conversation)
    problems = [f"{gold.id}: {name}: no expected verdict" for name in asked if name not in gold.expected]
    for name, wanted in gold.expected.items():
        where = f"{gold.id}: {name}"
        if name not in asked:
            problems.append(f"{where}: is not judged in the {gold.tier} tier")
            continue
        if wanted.verdict not in asked[name].values:
            problems.append(f"{where}: {wanted.verdict:g} is no level")
        needed = gold.expected.get(asked[name].needs or "")
        if wanted.verdict > 0 and needed is not None and needed.verdict == 0:
            problems.append(f"{where}: must be 0, because {asked[name].needs} is")
        if wanted.verdict > 0 and not wanted.evidence:
            problems.append(f"{where}: earned without evidence")
        problems += [
            f"{where}: evidence is not in the transcript: '{quote[:60]}'"
            for quote in wanted.evidence
            if not quote_exists(evidence, quote, wanted.turn)
        ]
    return problems
