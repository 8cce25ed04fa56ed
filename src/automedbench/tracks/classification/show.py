"""Classification's pictures: the image, its true class and the predicted one."""

from __future__ import annotations

from automedbench.base.records import CaseScore
from automedbench.base.views import ViewText
from automedbench.tracks import Drawing, ScoringInputs
from automedbench.tracks.common.pictures import photo_frame


def show(inputs: ScoringInputs, case: CaseScore) -> Drawing:
    """The image with both labels; the contract of the track has no probabilities."""
    frame = photo_frame("image", inputs.given(case.case) / inputs.card.inputs[0].file)
    texts = [ViewText(side="reference", title="True class", text=case.detail["reference"])]
    if case.detail["predicted"] is not None:
        texts.insert(0, ViewText(side="prediction", title="Predicted class", text=case.detail["predicted"]))
    return Drawing(frames=[frame], texts=texts)
