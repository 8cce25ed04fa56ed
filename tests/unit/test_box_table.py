"""Tables of boxes: rows without a box, resized copies, and every way a table can be wrong."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

import pytest
from PIL import Image
from toys import with_options
from toys.detection import make_card

from automedbench.base.errors import AutoMedBenchError, ConfigError, InfrastructureError, MissingDataError
from automedbench.datasets.forms.sources import SourceBox
from automedbench.datasets.readers.boxes import box_table

HEADER = "image_id,class_name,x_min,y_min,x_max,y_max"


card = functools.partial(with_options, make_card(), reader="box_table", table="boxes.csv", images="test/{id}")


def write(raw: Path, *rows: str) -> Path:
    (raw / "test").mkdir(parents=True, exist_ok=True)
    for name in "ab":
        Image.new("L", (40, 30), 90).save(raw / f"test/{name}.png")
    (raw / "boxes.csv").write_text("\n".join([HEADER, *rows]) + "\n")
    return raw


def test_reads_in_the_order_of_the_table(tmp_path: Path) -> None:
    """A row of nothing makes an image without boxes; classes are renamed; corners are 0-based pixels."""
    rows = ["b,Edema,1,2,10.5,20", "a,No finding,,,,", "b,Nodule/Mass,0,0,50,10"]
    first, second = box_table(write(tmp_path, *rows), card(rename={"Edema": "Other lesion"}))
    assert first.boxes == (SourceBox("Other lesion", 1, 2, 10.5, 20, "Edema"), SourceBox("Nodule/Mass", 0, 0, 40, 10))
    assert (second.id, second.boxes, second.dropped, second.annotation) == ("a", (), 0, tmp_path / "boxes.csv")


def test_a_copy_whose_size_is_not_known_is_refused(tmp_path: Path) -> None:
    write(tmp_path, "a,ILD,100,60,300,150")
    with pytest.raises(InfrastructureError, match=r"outside of image a .* is it a resized copy"):
        box_table(tmp_path, card())


def test_images_of_the_next_suffix(tmp_path: Path) -> None:
    """A JPEG where there is no PNG."""
    write(tmp_path, "c,ILD,1,1,5,5")
    Image.new("L", (40, 30)).save(tmp_path / "test/c.jpg")
    assert box_table(tmp_path, card())[0].image.name.endswith("c.jpg")


@pytest.mark.parametrize(
    ("rows", "options", "error", "why"),
    [
        pytest.param(["z,ILD,1,1,5,5"], {}, MissingDataError, "z.dicom .image that boxes.csv", id="no image"),
        pytest.param(["../a,ILD,1,1,5,5"], {}, InfrastructureError, "row 2 names", id="image outside"),
        pytest.param([",ILD,1,1,5,5"], {}, InfrastructureError, "row 2 names", id="no name"),
        pytest.param(["a,ILD,1,1,5,"], {}, InfrastructureError, "row 2 holds ''", id="corner missing"),
        pytest.param(["a,ILD,1,1,5,nan"], {}, InfrastructureError, "row 2 holds 'nan'", id="not a number"),
        pytest.param([], {}, InfrastructureError, "has no rows", id="no rows"),
        pytest.param(["a,ILD,1,1,5,5"], {"table": "x.csv"}, MissingDataError, "x.csv", id="no table"),
        pytest.param(["a,ILD,1,1,5,5"], {"images": "test"}, ConfigError, "must hold {id} once", id="pattern"),
        pytest.param(["a,ILD,1,1,5,5"], {"renames": {}}, ConfigError, "did you mean 'rename'", id="misspelt option"),
        pytest.param(['a,"ILD,1,1,5,5'], {}, InfrastructureError, "CSV", id="quote left open"),
    ],
)
def test_bad_tables(
    tmp_path: Path, rows: list[str], options: dict[str, Any], error: type[AutoMedBenchError], why: str
) -> None:
    with pytest.raises(error, match=why) as caught:
        box_table(write(tmp_path, *rows), card(**options))
    assert len(str(caught.value).splitlines()) <= 3
