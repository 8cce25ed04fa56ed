"""Tables of boxes: rows without a box, several readers, resized copies, and every way a table can be wrong."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from PIL import Image
from toys.detection import with_reader

from automedbench.base.cards import TaskCard
from automedbench.base.errors import AutoMedBenchError, ConfigError, InfrastructureError, MissingDataError
from automedbench.datasets.forms.sources import SourceBox
from automedbench.datasets.readers.boxes import box_table

HEADER = "image_id,class_name,x_min,y_min,x_max,y_max"
READERS = "image_id,rad_id,class_name,x_min,y_min,x_max,y_max"


def card(**options: Any) -> TaskCard:
    return with_reader("box_table", {"table": "boxes.csv", "images": "test/{id}"} | options)


def write(raw: Path, *rows: str, header: str = HEADER, names: str = "ab") -> Path:
    (raw / "test").mkdir(parents=True, exist_ok=True)
    for name in names:
        Image.new("L", (40, 30), 90).save(raw / f"test/{name}.png")
    (raw / "boxes.csv").write_text("\n".join([header, *rows]) + "\n")
    return raw


def test_reads_in_the_order_of_the_table(tmp_path: Path) -> None:
    """A row of nothing makes an image without boxes; classes are renamed; corners are 0-based pixels."""
    rows = ["b,Edema,1,2,10.5,20", "a,No finding,,,,", "b,Nodule/Mass,0,0,50,10"]
    first, second = box_table(write(tmp_path, *rows), card(rename={"Edema": "Other lesion"}))
    assert first.boxes == (SourceBox("Other lesion", 1, 2, 10.5, 20, "Edema"), SourceBox("Nodule/Mass", 0, 0, 40, 10))
    assert (second.id, second.boxes, second.dropped, second.annotation) == ("a", (), 0, tmp_path / "boxes.csv")


def test_resized_copies(tmp_path: Path) -> None:
    """Annotated at 400 × 300, stored at 40 × 30: a tenth."""
    columns = {"width": "w", "height": "h"}
    write(tmp_path, "a,ILD,100,60,300,150,400,300", header=f"{HEADER},w,h")
    assert box_table(tmp_path, card(columns=columns))[0].boxes == (SourceBox("ILD", 10, 6, 30, 15),)


def test_a_copy_whose_size_is_not_known_is_refused(tmp_path: Path) -> None:
    write(tmp_path, "a,ILD,100,60,300,150")
    with pytest.raises(InfrastructureError, match=r"outside of image a .* is it a resized copy"):
        box_table(tmp_path, card())


def test_several_readers(tmp_path: Path) -> None:
    """Rows without a box count as well: three readers of one image would give it boxes twice."""
    write(tmp_path, "b,R8,No finding,,,,", "a,R8,Effusion,10,10,20,20", "a,R9,Effusion,10,10,20,18", header=READERS)
    with pytest.raises(InfrastructureError, match="several readers of image a; one is needed"):
        box_table(tmp_path, card(columns={"reader": "rad_id"}))


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
        pytest.param(["a,ILD,1,1,5,5"], {"columns": {"label": "kind"}}, InfrastructureError, "kind", id="no column"),
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


def test_sizes_that_disagree(tmp_path: Path) -> None:
    write(tmp_path, "a,ILD,1,1,5,5,40,30", "a,ILD,1,1,5,5,80,60", header=f"{HEADER},w,h")
    with pytest.raises(InfrastructureError, match="several sizes of image a"):
        box_table(tmp_path, card(columns={"width": "w", "height": "h"}))
