"""Containers: the images that agent code and scorers run in.

In: definitions, pinned lists, a base. Out: images and what they hold. Fills containers.folder.
"""


rule build_image:
    """Build one image from its definition and its pinned list, unless it is there; its record says what it holds.

    The image itself is no output: Snakemake would delete a working one before it is known whether a new one can be made.
    """
    input:
        definition=get_definition,
        requirements=get_requirements,
    output:
        record=f"{SETTINGS.containers.folder}/{{image}}.json",
    log:
        "logs/build_image/{image}.log",
    conda:
        "../envs/host.yaml"
    params:
        campaign=get_campaign,
        base=get_base,
    shell:
        "python scripts/build_image.py --campaign {params.campaign:q} --image {wildcards.image} > {log:q} 2>&1"
