"""Commands are alike: how a campaign is named, and JSON; two campaigns at once are refused, others are hinted at."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml
from factories import ROOT, make_run, make_score

from automedbench.base.errors import ConfigError, MissingDataError
from automedbench.base.files import write_record
from automedbench.base.removed import COMMANDS
from automedbench.campaign.load import write_campaign
from automedbench.commands import list_commands, main, make_parser
from automedbench.commands._campaign import add_campaign_options, find_other_results, find_results, select_campaign

CAMPAIGN = {"--results", "--configfile", "--config"}
WITHOUT_CAMPAIGN = {"agents", "judge-eval"}
"""They read files that are named, or none."""
PARSERS = {place.strip(): parser for place, parser in list_commands(make_parser()) if place}


@pytest.mark.parametrize("place", sorted(PARSERS))
def test_every_command_has_the_options_of_its_kind(place: str) -> None:
    command, options = place.split()[0], PARSERS[place]._option_string_actions
    assert CAMPAIGN & options.keys() == (set() if command in WITHOUT_CAMPAIGN else CAMPAIGN)
    assert "--json" in options


@pytest.fixture
def planned(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Path]:
    """A function that plans a campaign of one run in a folder, with its one score; returns its configuration."""
    (tmp_path / "config").symlink_to(ROOT / "config")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "agents.yaml").write_text(
        yaml.safe_dump({"agents": {"agent": {"provider": "baseline", "baseline": "empty", "trusted": True}}})
    )

    def plan(results: str) -> Path:
        settings = {
            "agents_file": "agents.yaml",
            "matrix": {"agents": ["agent"], "tasks": ["bccd-det-task"], "tiers": ["lite"], "repeats": 1},
            "results": results,
            "sandbox": {"backend": "local", "network": "open"},
        }
        path = tmp_path / f"{results.replace('/', '-')}.yaml"
        path.write_text(yaml.safe_dump(settings))
        write_campaign(select_campaign(asked("--configfile", str(path))))
        score = make_score(make_run("agent"))
        write_record(Path(results, "runs", score.run.path, "score.json"), score)
        return path

    return plan


def asked(*words: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    add_campaign_options(parser)
    return parser.parse_args(words)


def test_one_campaign_by_each_of_its_names(planned: Callable[[str], Path]) -> None:
    file = planned("results/mine")
    names = (["--results", "results/mine"], ["--configfile", str(file)])
    found = [select_campaign(asked(*words)) for words in (*names, names[0] + names[1])]
    assert all(
        (each.config, each.cards, each.runs) == (found[0].config, found[0].cards, found[0].runs) for each in found
    )
    assert {find_results(asked(*words)) for words in names} == {Path("results/mine")}


def test_two_campaigns_are_refused(planned: Callable[[str], Path], tmp_path: Path) -> None:
    planned("results/mine")
    other = planned("results/other")
    mine = ["--results", "results/mine"]
    for read in (select_campaign, find_results):
        with pytest.raises(ConfigError, match=r"two campaigns are given: results/mine, and .* results/other"):
            read(asked(*mine, "--configfile", str(other)))


def test_a_copy_is_read_where_it_lies(planned: Callable[[str], Path]) -> None:
    """Its record says where the campaign was; nothing of that folder counts, also when it is still there."""
    planned("results/mine")
    Path("results/mine").rename("copy")
    planned("results/mine")
    assert select_campaign(asked("--results", "copy")).config.results == "copy"
    Path("copy/campaign.json").unlink()
    assert find_results(asked("--results", "copy")) == Path("copy")
    with pytest.raises(MissingDataError, match=r"no campaign was planned there\.\nCampaigns are in: results/mine; "):
        select_campaign(asked("--results", "copy"))


def test_a_wrong_record_is_told_by_its_file(planned: Callable[[str], Path]) -> None:
    planned("results/mine")
    path = Path("results/mine/campaign.json")
    record = json.loads(path.read_text())
    record["settings"]["matrix"]["agents"] = ["agnet"]
    path.write_text(json.dumps(record))
    with pytest.raises(ConfigError, match=r"^results/mine/campaign\.json: matrix\.agents: unknown agent 'agnet'"):
        select_campaign(asked("--results", "results/mine"))


@pytest.mark.parametrize("words", [["spending"], ["compare", "a", "b"], ["explain", "E1"], ["prune"]])
def test_the_one_other_campaign_is_hinted_at(planned: Callable[[str], Path], words: list[str]) -> None:
    Path("results").mkdir()
    planned("results/demo")
    with pytest.raises(MissingDataError, match=r"There are some in results/demo: add --results results/demo$"):
        main(words)
    planned("results/second")  # which of the two is meant cannot be told
    assert find_other_results(Path("results")) is None


def test_status_names_the_other_campaign(planned: Callable[[str], Path], capsys: pytest.CaptureFixture[str]) -> None:
    planned("results/demo")
    main([])
    assert "Another campaign is in results/demo: automedbench --results results/demo\n" in capsys.readouterr().out
    main(["--results", "results/demo"])
    out = capsys.readouterr().out
    assert "results/demo: 1 run of 1 agent on 1 task: 1 scored." in out
    assert "Next: automedbench verify --all --results results/demo (" in out


@pytest.mark.parametrize("word", sorted(COMMANDS))
def test_a_removed_command_says_what_to_do_instead(word: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert word not in PARSERS
    with pytest.raises(SystemExit) as stopped:
        main([word, "an argument of before"])
    assert stopped.value.code == 2
    assert capsys.readouterr().err == f"automedbench: error: `{word}` was removed: {COMMANDS[word]}\n"
