"""Checkpoints of lite routes with random weights: same repositories, files and forms as the published ones, but tiny.

A program for the research image: ``python3 tiny_checkpoints.py FOLDER`` writes ``FOLDER/<repository>/<file>``.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import torch

KITS = "KagglingFace/nnUNet-KiTS19-3d-lowres-50epochs"
SWIN2SR = "caidas/swin2SR-classical-sr-x2-64"
LLAVA = "microsoft/llava-med-v1.5-mistral-7b"
BLIP = "Salesforce/blip-image-captioning-base"
YOLO = "keremberke/yolov8m-blood-cell-detection"
VIT = "gulsmyigit/vit-base-patch16-224-finetuned-Brain-Tumor-Classification"
PLAIN_CNN = "Roldbach/autoencoder_ct_3d_super_resolution"
WORDS = "a histopathology image of tissue cells with small large dark pale left right yes no the is in"
TINY = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}


def kits(folder: Path) -> None:
    """An nnU-Net v2 of two stages: plans, data set, one fold."""
    from dynamic_network_architectures.architectures.unet import PlainConvUNet

    architecture = {
        "n_stages": 2, "features_per_stage": [4, 8], "kernel_sizes": [[3] * 3] * 2, "strides": [[1] * 3, [2] * 3],
        "n_conv_per_stage": [1, 1], "n_conv_per_stage_decoder": [1], "conv_bias": True,
        "norm_op_kwargs": {"affine": True}, "nonlin_kwargs": {"inplace": True},
    }  # fmt: skip
    kinds = {"conv_op": "torch.nn.modules.conv.Conv3d", "norm_op": "torch.nn.modules.instancenorm.InstanceNorm3d"}
    kinds |= {"nonlin": "torch.nn.LeakyReLU"}
    classes = {"conv_op": torch.nn.Conv3d, "norm_op": torch.nn.InstanceNorm3d, "nonlin": torch.nn.LeakyReLU}
    network = PlainConvUNet(input_channels=1, num_classes=3, deep_supervision=False, **architecture, **classes)
    resample: dict[str, Any] = {"is_seg": False, "order": 1, "order_z": 0, "force_separate_z": None}
    configuration = {
        "data_identifier": "nnUNetPlans_3d_lowres", "preprocessor_name": "DefaultPreprocessor", "batch_size": 2,
        "patch_size": [16, 16, 16], "median_image_size_in_voxels": [16.0] * 3, "spacing": [4.0] * 3,
        "normalization_schemes": ["CTNormalization"], "use_mask_for_norm": [False], "batch_dice": False,
        "resampling_fn_data": "resample_data_or_seg_to_shape", "resampling_fn_data_kwargs": resample,
        "resampling_fn_seg": "resample_data_or_seg_to_shape", "resampling_fn_seg_kwargs": resample | {"is_seg": True},
        "resampling_fn_probabilities": "resample_data_or_seg_to_shape", "resampling_fn_probabilities_kwargs": resample,
        "architecture": {
            "network_class_name": "dynamic_network_architectures.architectures.unet.PlainConvUNet",
            "arch_kwargs": architecture | kinds | {"dropout_op": None, "dropout_op_kwargs": None},
            "_kw_requires_import": ["conv_op", "norm_op", "dropout_op", "nonlin"],
        },
    }  # fmt: skip
    numbers = {"mean": 100.0, "std": 80.0, "percentile_00_5": -80.0, "percentile_99_5": 300.0}
    plans = {
        "dataset_name": "Dataset040_KiTS", "plans_name": "nnUNetPlans", "image_reader_writer": "SimpleITKIO",
        "transpose_forward": [0, 1, 2], "transpose_backward": [0, 1, 2], "configurations": {"3d_lowres": configuration},
        "original_median_spacing_after_transp": [4.0] * 3, "original_median_shape_after_transp": [16] * 3,
        "experiment_planner_used": "ExperimentPlanner", "label_manager": "LabelManager",
        "foreground_intensity_properties_per_channel": {"0": numbers},
    }  # fmt: skip
    labels = {"background": 0, "kidney": 1, "tumor": 2}
    dataset = {"channel_names": {"0": "CT"}, "labels": labels, "numTraining": 1, "file_ending": ".nii.gz"}
    root = folder / "nnUNetTrainer__nnUNetPlans__3d_lowres"
    (root / "fold_1").mkdir(parents=True)
    (root / "plans.json").write_text(json.dumps(plans))
    (root / "dataset.json").write_text(json.dumps(dataset))
    checkpoint = {"network_weights": network.state_dict(), "trainer_name": "nnUNetTrainer"}
    checkpoint |= {"init_args": {"configuration": "3d_lowres"}, "inference_allowed_mirroring_axes": (0, 1, 2)}
    torch.save(checkpoint, root / "fold_1/checkpoint_final.pth")


def swin2sr(folder: Path) -> None:
    """Swin2SR of one layer, with its image processor."""
    from transformers import Swin2SRConfig, Swin2SRForImageSuperResolution, Swin2SRImageProcessor

    config = Swin2SRConfig(image_size=32, embed_dim=12, depths=[1], num_heads=[2], window_size=8, upscale=2)
    Swin2SRForImageSuperResolution(config).save_pretrained(folder)
    Swin2SRImageProcessor().save_pretrained(folder)


def tokenizer(folder: Path) -> int:
    """A BERT vocabulary; gives its size."""
    from transformers import BertTokenizerFast

    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *WORDS.split()]
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "vocab.txt").write_text("\n".join(words))
    BertTokenizerFast(str(folder / "vocab.txt")).save_pretrained(folder)
    return len(words)


def blip(folder: Path) -> None:
    """BLIP of one layer for each side, with its processor."""
    from transformers import (
        BertTokenizerFast,
        BlipConfig,
        BlipForConditionalGeneration,
        BlipImageProcessor,
        BlipProcessor,
    )

    size = tokenizer(folder)
    text = TINY | {"vocab_size": size, "encoder_hidden_size": 16, "projection_dim": 16, "bos_token_id": 2}
    text |= {"eos_token_id": 3, "sep_token_id": 3, "pad_token_id": 0, "max_position_embeddings": 128}
    vision = TINY | {"image_size": 32, "patch_size": 16, "projection_dim": 16}
    BlipForConditionalGeneration(BlipConfig(text_config=text, vision_config=vision)).save_pretrained(folder)
    images = BlipImageProcessor(size={"height": 32, "width": 32})
    BlipProcessor(images, BertTokenizerFast.from_pretrained(folder)).save_pretrained(folder)


def llava(folder: Path) -> None:
    """What the stand-in of LLaVA-Med's code loads (test_lite_routes): BLIP for questions, of one layer."""
    from transformers import BlipConfig, BlipForQuestionAnswering

    size = tokenizer(folder)
    text = TINY | {
        "vocab_size": size,
        "encoder_hidden_size": 16,
        "bos_token_id": 2,
        "eos_token_id": 3,
        "pad_token_id": 0,
    }
    vision = TINY | {"image_size": 32, "patch_size": 16}
    BlipForQuestionAnswering(BlipConfig(text_config=text, vision_config=vision)).save_pretrained(folder)


def yolo(folder: Path) -> None:
    """The smallest YOLOv8 with the three classes."""
    from ultralytics import YOLO as Network

    folder.mkdir(parents=True)
    network = Network("yolov8n.yaml")
    network.model.names = dict(enumerate(["Platelets", "RBC", "WBC"]))
    network.model.model[-1].nc = 3
    description = folder / "three.yaml"
    description.write_text(json.dumps(network.model.yaml | {"nc": 3}, default=str))
    network = Network(str(description), task="detect")
    network.model.names = dict(enumerate(["Platelets", "RBC", "WBC"]))
    network.save(str(folder / "best.pt"))
    description.unlink()
    (folder / "config.json").write_text("{}")


def vit(folder: Path) -> None:
    """ViT of one layer with the four classes, and its image processor."""
    from transformers import ViTConfig, ViTForImageClassification, ViTImageProcessor

    names = dict(enumerate(["glioma", "meningioma", "no_tumor", "pituitary"]))
    config = ViTConfig(**TINY, image_size=32, patch_size=16, id2label=names, label2id={v: k for k, v in names.items()})
    ViTForImageClassification(config).save_pretrained(folder)
    ViTImageProcessor(size={"height": 32, "width": 32}).save_pretrained(folder)


def plain_cnn(folder: Path) -> None:
    """The published layers of PlainCNN, near zero."""
    shapes = {"_block_in": (64, 1), **{f"_block_middle_iter.{n}": (64, 64) for n in range(10)}, "_block_out": (1, 64)}
    state = {}
    for name, (outside, inside) in shapes.items():
        state[f"{name}._layer.0.weight"] = torch.randn(outside, inside, 3, 3, 3) * 0.01
        state[f"{name}._layer.0.bias"] = torch.zeros(outside)
    (folder / "weight").mkdir(parents=True)
    torch.save(state, folder / "weight/PlainCNN_trilinear_interpolation_x4.pth")
    (folder / "model").mkdir()
    (folder / "model/PlainCNN.py").write_text("# the network, to compare with\n")


MADE = {KITS: kits, SWIN2SR: swin2sr, LLAVA: llava, BLIP: blip, YOLO: yolo, VIT: vit, PLAIN_CNN: plain_cnn}


def main(folder: Path) -> None:
    """Write all of them."""
    for name, make in MADE.items():
        torch.manual_seed(7)
        make(folder / name)
        print(name, sum(path.stat().st_size for path in (folder / name).rglob("*") if path.is_file()), flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
