"""Containers: the images that agent code and scorers run in.

In: definitions, pinned lists, a base. Out: images. Fills containers.folder.
"""


rule build_image:
    """Build one image from its definition and its pinned list."""
    input:
        definition="containers/{image}.def",
        requirements=get_requirements,
    output:
        image=f"{SETTINGS.containers.folder}/{{image}}.sif",
    log:
        "logs/build_image/{image}.log",
    conda:
        "../envs/host.yaml"
    params:
        campaign=get_campaign,
        base=SETTINGS.containers.base,
    shell:
        "python scripts/build_image.py --campaign {params.campaign:q} --image {wildcards.image} > {log:q} 2>&1"
