"""Data: from upstream to staged cases.

In: a card's data set. Out: raw data with a receipt, public and private cases, a manifest.
Fills data.raw, data.public, data.private, data.manifests.
"""


rule fetch_dataset:
    """Get a data set from the first of its sources that works, with a receipt of every file."""
    output:
        receipt=f"{CAMPAIGN.settings.data.raw}/{{dataset}}/receipt.json",
    log:
        "logs/fetch_dataset/{dataset}.log",
    conda:
        "../envs/host.yaml"
    params:
        card=CAMPAIGN.dataset_card,
        version=CAMPAIGN.source_version,
        raw=subpath(output.receipt, parent=True),
        path=CAMPAIGN.path_option,
    shell:
        "python scripts/fetch_dataset.py --card {params.card:q} {params.path} --raw {params.raw:q}"
        + fetch_options(CAMPAIGN.settings.fetch)
        + " > {log:q} 2>&1"


rule preflight:
    """Make sure that the scorer of a task has its checkpoints and word lists, before any agent runs."""
    input:
        images=ancient(CAMPAIGN.images),
    output:
        record=f"{CAMPAIGN.settings.results}/preflight/{{task}}.json",
    log:
        "logs/preflight/{task}.log",
    conda:
        "../envs/host.yaml"
    params:
        card=CAMPAIGN.card,
        version=CAMPAIGN.preflight_version,
    shell:
        "python scripts/preflight.py --card {params.card:q}"
        + CAMPAIGN.preflight_options
        + " --out {output.record:q} > {log:q} 2>&1"


rule stage_task:
    """Turn raw data into public and private cases with opaque ids and a manifest of hashes."""
    input:
        receipt=CAMPAIGN.receipt,
    output:
        manifest=f"{CAMPAIGN.settings.data.manifests}/{{task}}.json",
    log:
        "logs/stage_task/{task}.log",
    conda:
        "../envs/host.yaml"
    threads: 1  # cases at a time, each in memory; more in the profiles
    params:
        card=CAMPAIGN.card,
        raw=subpath(input.receipt, parent=True),
        version=CAMPAIGN.staging_version,
        excerpt=CAMPAIGN.excerpt_option,
    shell:
        "python scripts/stage_task.py --card {params.card:q} --raw {params.raw:q} {params.excerpt}"
        + CAMPAIGN.staging_options
        + " --workers {threads} --manifest {output.manifest:q} > {log:q} 2>&1"
