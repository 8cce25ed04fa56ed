"""Containers: the images that agent code and scorers run in.

In: definitions, pinned lists, a base. Out: images. Fills containers.folder.
"""


rule build_image:
    """Build one image from its definition and its pinned list."""
    input:
        definition="containers/{image}.def",
        requirements=CAMPAIGN.requirements,
    output:
        image=f"{CAMPAIGN.settings.containers.folder}/{{image}}.sif",
    log:
        "logs/build_image/{image}.log",
    conda:
        "../envs/host.yaml"
    params:
        base=CAMPAIGN.settings.containers.base,
        wheels=f"{CAMPAIGN.settings.containers.folder}/wheels",
    shell:
        "python scripts/build_image.py --definition {input.definition:q} --requirements {input.requirements:q}"
        " --base {params.base:q} --wheels {params.wheels:q} --out {output.image:q} > {log:q} 2>&1"
