"""Readers by form of data, never by data set.

Each is a function ``<name>(raw, card)`` that turns raw files into typed source records (``datasets.forms``), in the
module that ``MODULES`` names. Adding one is adding a function and a word there: ``staging.reader`` of a card names it.
"""

MODULES = {
    **dict.fromkeys(("class_folders", "hdf5_images", "label_table"), "images"),
    **dict.fromkeys(("box_table", "coco_boxes", "pascal_voc", "yolo_boxes"), "boxes"),
    **dict.fromkeys(("dicom_slices", "image_files", "kspace_volumes", "volume_slices"), "slices"),
    **dict.fromkeys(("label_maps", "mask_folders", "nifti_volumes", "paired_volumes"), "volumes"),
    **dict.fromkeys(("mimic_reports", "openi_reports", "report_folders"), "reports"),
    **dict.fromkeys(("case_arrays", "case_boxes", "case_pictures", "case_questions"), "case_folders"),
    **dict.fromkeys(("case_reports", "case_volumes"), "case_folders"),
    "question_files": "question_files",
}
"""Reader → the module that it is in."""
