"""Reports, invented: findings and impressions, and chest X-rays with metadata that must not reach an agent."""

from __future__ import annotations

from automedbench_rehearsal.making.pictures import jpeg

FINDINGS = (
    "The lungs are clear and the heart is of normal size.",
    "A small left pleural effusion is seen, with atelectasis above it.",
    "The heart is enlarged, and the vessels are congested.",
    "There is a patchy opacity in the right lower lung.",
    "A tube ends 4 cm above the carina; no pneumothorax.",
    "The lungs are hyperinflated and the diaphragm is flat.",
    "A nodule of 8 mm lies in the left upper lobe.",
    "The right hemidiaphragm is raised, without a consolidation.",
)
IMPRESSIONS = ("No acute disease.", "Small effusion.", "Mild congestion.", "Possible pneumonia.")


def findings(number: int) -> str:
    """Invented findings, different for each of the first hundred numbers."""
    return f"{FINDINGS[number % len(FINDINGS)]} Rib {1 + number // len(FINDINGS)} shows an old fracture."


def impression(number: int) -> str:
    """An invented impression."""
    return IMPRESSIONS[number % len(IMPRESSIONS)]


def chest_jpeg(*words: object, colours: int = 1) -> bytes:
    """A JPEG of 40×32 pixels that names a patient."""
    return jpeg((40, 32), *words, colours=colours, about=f"ImageDescription {words}", comment=b"PatientName Doe^Jane")
