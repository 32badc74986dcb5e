"""Reports: what they must say, and that the page is one file that needs nothing else."""

from __future__ import annotations

import json
from html.parser import HTMLParser

from chaos.drills.history import Header, History, Step
from chaos.drills.page import page
from chaos.drills.report import as_json, as_markdown
from chaos.drills.timeline import draw
from chaos.drills.verdict import judge
from tests.support.histories import green


class Parsed(HTMLParser):
    """Tags in pairs, and where they point to."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.seen: list[str] = []
        self.links: list[str] = []

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.seen.append(tag)
        self.links += [value or "" for name, value in attributes if name in ("src", "href")]
        if tag != "meta":
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.seen.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def parsed(history: History) -> Parsed:
    found = Parsed()
    found.feed(page(history, judge(history)))
    return found


def test_the_page_is_whole_and_needs_nothing_else() -> None:
    found = parsed(green())
    assert found.open == []
    assert found.links == []
    assert "script" not in found.seen
    assert found.seen.count("svg") == len(draw(green()).lanes)


def test_what_the_history_says_is_not_taken_for_html() -> None:
    history = green()
    step = Step(500, "fault", "<script>alert(1)</script> & more")
    text = page(History(history.header, (*history.events, step)), judge(history))
    assert "<script>" not in text
    assert "&lt;script&gt;" in text


def test_the_timeline_has_a_lane_for_everything() -> None:
    timeline = draw(green())
    titles = {lane.title: lane.scale for lane in timeline.lanes}
    assert titles["Partition 0: leader"] == "101 → 102"
    assert titles["Partition 0: size of the ISR"] == "2, 3"
    assert titles["Active controller"] == "1 → 2"
    assert [mark.number for mark in timeline.marks] == [1, 2, 3, 4, 5]


def test_an_empty_history_is_drawn_too() -> None:
    history = History(green().header, ())
    assert not judge(history).green
    assert parsed(history).open == []
    assert as_markdown(history, judge(history)).startswith("# Made up: RED")


def test_markdown_names_checks_costs_and_setting() -> None:
    text = as_markdown(green(), judge(green()))
    assert text.startswith("# Made up: green")
    assert "| ok | no acknowledged record is lost | 0 of 20 acknowledged |" in text
    assert "| write outage | 0.30 s (0: 0.30 s, 1: 0.30 s) |" in text
    assert "| 0.30 s | fault | kill -9 broker 101 |" in text


def test_json_is_plain_and_whole() -> None:
    told = json.loads(json.dumps(as_json(green(), judge(green()))))
    assert told["green"] is True
    assert told["findings"]["lost"] == []
    assert told["times"]["recovered_ms"] == 150.0
    assert set(told["header"]) == set(Header.__dataclass_fields__)
