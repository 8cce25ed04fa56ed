"""Data: from upstream to staged cases.

In: a card's data set. Out: raw data with a receipt, public and private cases, a manifest; the cache of models.
Fills data.raw, data.public, data.private, data.manifests, sandbox.egress.cache.
"""


rule fetch_dataset:
    """Get a data set from the first of its sources that works, with a receipt of every file."""
    output:
        receipt=f"{SETTINGS.data.raw}/{{dataset}}/receipt.json",
    log:
        "logs/fetch_dataset/{dataset}.log",
    conda:
        "../envs/host.yaml"
    params:
        campaign=get_campaign,
        card=get_dataset_card,
        version=get_source_version,
        place=get_place,
    shell:
        "python scripts/fetch_dataset.py --campaign {params.campaign:q} --dataset {wildcards.dataset:q} > {log:q} 2>&1"


rule preflight:
    """Make sure that the scorer of a task has its checkpoints and word lists, before any agent runs."""
    input:
        images=ancient(targets.images(CAMPAIGN, ["scorer"])),
    output:
        record=f"{SETTINGS.results}/preflight/{{task}}.json",
    log:
        "logs/preflight/{task}.log",
    conda:
        "../envs/host.yaml"
    params:
        campaign=get_campaign,
        version=get_preflight_version,
    shell:
        "python scripts/preflight.py --campaign {params.campaign:q} --task {wildcards.task:q} > {log:q} 2>&1"


rule fill_cache:
    """Get lite checkpoints, and the models and packages of sandbox.egress, into the cache that all runs share."""
    output:
        record=f"{SETTINGS.results}/cache.json",
    log:
        "logs/fill_cache.log",
    conda:
        "../envs/host.yaml"
    params:
        campaign=get_campaign,
        tasks=targets.lite_tasks(CAMPAIGN),
        version=versions.cache_version(CAMPAIGN),
    shell:
        "python scripts/fill_cache.py --campaign {params.campaign:q} --tasks {params.tasks:q} > {log:q} 2>&1"


rule stage_task:
    """Turn raw data into public and private cases with opaque ids and a manifest of hashes."""
    input:
        receipt=get_receipt,
    output:
        manifest=f"{SETTINGS.data.manifests}/{{task}}.json",
    log:
        "logs/stage_task/{task}.log",
    conda:
        "../envs/host.yaml"
    threads: 1  # cases at a time, each in memory; more in the profiles
    resources:
        **needs.STAGING,
    params:
        campaign=get_campaign,
        card=get_card,
        version=get_staging_version,
        excerpt=get_excerpt,
    shell:
        "python scripts/stage_task.py --campaign {params.campaign:q} --task {wildcards.task:q} --workers {threads}"
        " > {log:q} 2>&1"
