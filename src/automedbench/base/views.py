"""Cases of a run as a reader sees them: pictures, boxes and texts of input, prediction and reference."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from automedbench.base.records import Model, Number, RunId, Score

Side = Literal["input", "prediction", "reference", "difference"]
Picture = Annotated[str, Field(pattern=r"^data:image/(png|jpeg|webp);base64,[A-Za-z0-9+/=]+$")]
Colour = Annotated[str, Field(pattern=r"^#[0-9a-f]{6}$")]


class ViewLayer(Model):
    """One picture; overlays are transparent but for what they mark, and lie above the others."""

    side: Side
    picture: Picture
    overlay: bool = False


class Box(Model):
    """A box on a picture; corners as shares of width and height."""

    side: Literal["prediction", "reference"]
    label: str = Field(max_length=100)
    x0: Score
    y0: Score
    x1: Score
    y1: Score
    score: Score | None = None
    matched: bool | None = Field(None, description="has a counterpart on the other side")


class Frame(Model):
    """A slice of a volume, or an image, with its layers in drawing order."""

    title: str = Field(max_length=100)
    width: int = Field(ge=1, description="pixels of every layer")
    height: int = Field(ge=1)
    layers: list[ViewLayer]
    boxes: list[Box] = Field(default_factory=list)


class ViewText(Model):
    """A text beside the pictures: a question, an answer, a report."""

    side: Literal["input", "prediction", "reference"]
    title: str = Field(max_length=100)
    text: str = Field(max_length=20_000)


class LegendItem(Model):
    """Meaning of a colour of an overlay."""

    name: str = Field(max_length=100)
    colour: Colour


class CaseView(Model):
    """One case."""

    case: str
    status: Literal["valid", "malformed", "missing"]
    why: str = Field(max_length=100, description="why this case is shown, for example: lowest dice of 40")
    frames: list[Frame] = Field(default_factory=list)
    texts: list[ViewText] = Field(default_factory=list)
    legend: list[LegendItem] = Field(default_factory=list)
    metrics: dict[str, Number | None] = Field(default_factory=dict)


class CaseViews(Model):
    """``D/case_views.json``: some cases of a run, with their answers; never within reach of an agent."""

    schema_: Literal["automedbench/case-views/1"] = Field("automedbench/case-views/1", alias="schema")
    run: RunId
    n_cases: int
    cases: list[CaseView]
    note: str = Field("", description="why none or fewer are shown")
