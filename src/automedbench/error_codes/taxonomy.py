"""Taxonomy of the five codes, in one place: the page, ``automedbench explain`` and the docs take words from here.

Names and meanings follow tables 6, 15 and 16 of the paper, in our words. The public code of April 2026 uses the same
labels for other things (E1 hallucination, E2 resource, E3 logic, E4 code, E5 format): never put both into one table.
"""

from __future__ import annotations

from dataclasses import dataclass

from automedbench.base.records import Stage

TAXONOMY = "cause-v2"
CODES_VERSION = 2
"""Raised when a run could get other codes: its numbers are then put together again, and nothing else is repeated."""
KNOWLEDGE = "E1"
"""The one code of missing knowledge; the others are of engineering."""


@dataclass(frozen=True)
class CodeText:
    """One code: a short title, what it means, what it says in the stages where it occurs, and examples per track."""

    code: str
    title: str
    meaning: str
    stages: dict[Stage, str]
    examples: dict[str, str]


CODES: dict[str, CodeText] = {
    "E1": CodeText(
        "E1",
        "Understanding",
        "The agent solved another problem than the one it was given, chose a method that cannot produce what was asked "
        "for, or made up a requirement. A matter of knowledge; only a judge gives it.",
        {
            "S1": "The plan aims at another result, or at a method that cannot give it.",
            "S4": "What was produced answers another question.",
        },
        {
            "segmentation": "One diagnosis per scan where a mask was wanted.",
            "enhancement": "The noise is removed, though twice the resolution was asked for.",
            "vqa": "A free text where one of the given options had to be named.",
            "report_generation": "A caption of one line instead of the sections of a report.",
            "detection": "The class of the whole image instead of boxes.",
            "classification": "Codes of the source data set as labels, or a regression.",
            "synthesis": "Organ masks, or the input moved onto another scan.",
        },
    ),
    "E2": CodeText(
        "E2",
        "Data or model set-up",
        "The task was understood, but data, a model, a package, an interface, time, memory or disk was not to be had "
        "or could not be loaded, and no way around it was found.",
        {
            "S2": "Packages, weights or data could not be found, fetched, installed or loaded.",
            "S3": "A resource ran out while one case was tried.",
            "S4": "A resource ran out in the full run: the time limit, memory, disk.",
            "S5": "Time ran out before submit_results was called.",
        },
        {
            "segmentation": "A checkpoint that does not load, a volume that no reader opens.",
            "enhancement": "The package of the restoration model cannot be installed.",
            "vqa": "The model is gated or its tokenizer is missing.",
            "report_generation": "Neither the model nor the list of studies is where the code looks.",
            "detection": "Weights or the list of their classes are missing.",
            "classification": "A checkpoint whose head has another number of classes.",
            "synthesis": "Weights for another region of the body, or their configuration is missing.",
        },
    ),
    "E3": CodeText(
        "E3",
        "Verification",
        "Something showed that an intermediate or a final output was bad, and it was not noticed or not repaired.",
        {
            "S3": "No code read an output back and checked it, or a check failed and nothing was changed.",
            "S4": "The final outputs are bad in a way that a look at them shows: empty, blank, alike, off the scale.",
            "S5": "The answer to submit_results named bad outputs, and they were submitted as they were.",
        },
        {
            "segmentation": "Empty masks, or masks beside the organ, were taken as they came.",
            "enhancement": "Blank, cut off or unchanged images were taken for restored ones.",
            "vqa": "The same answer to every question, or a stand-in for the model's output.",
            "report_generation": "One and the same text for every study, or an empty one.",
            "detection": "Boxes beside the image, or all with the score 0.",
            "classification": "One class for every case, or right less often than by chance.",
            "synthesis": "Values left between 0 and 1 where HU were wanted, or a copy of the input.",
        },
    ),
    "E4": CodeText(
        "E4",
        "Implementation",
        "The pipeline was sound, but its code failed while it ran, or broke off after a part, and was not repaired.",
        {
            "S1": "Code failed before any set-up, and nothing later made an output.",
            "S2": "Code failed during set-up for a reason of its own.",
            "S3": "The attempt at a single case failed and was given up.",
            "S4": "The full run failed or broke off after some cases.",
            "S5": "The last repair before the submission failed.",
        },
        {
            "segmentation": "Shapes, orientation or the sliding window do not fit together.",
            "enhancement": "Putting tiles together or undoing the normalisation fails.",
            "vqa": "Batches or prompts that the model does not take.",
            "report_generation": "Decoding fails, or texts and studies get out of step.",
            "detection": "Non-maximum suppression or the way back to pixels fails.",
            "classification": "Images of several modes and sizes that do not fit into one batch.",
            "synthesis": "Axes in another order than the network expects.",
        },
    ),
    "E5": CodeText(
        "E5",
        "Submission",
        "Outputs exist or could exist, but they are missing, incomplete, under another name, at another place, of "
        "another form than asked for, or were never submitted.",
        {
            "S4": "Outputs are missing, malformed, misnamed or misplaced.",
            "S5": "submit_results was never called, or never accepted.",
        },
        {
            "segmentation": "Another file name, voxel size or layout than asked for.",
            "enhancement": "Another file type or size, or another folder.",
            "vqa": "Keys that the file must have are missing, or the id is another question's.",
            "report_generation": "Reports of some studies are missing, or lie under another id.",
            "detection": "Corners as centre and size instead of two corners.",
            "classification": "A table without its header, or with file names for ids.",
            "synthesis": "Another name, grid or affine than that of the input.",
        },
    ),
}
