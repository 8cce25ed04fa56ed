"""Mirror and index in the real container: first from outside into the cache, then sealed and from the cache alone."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from unprivileged import IMAGES, as_user, user_folder, why_not
from upstreams import FakeHub, FakeIndex, WebServer, hub_with_store

from automedbench.sandbox.boxes import ApptainerSandbox
from automedbench.sandbox.container.process import CodeResult
from automedbench.sandbox.egress import Egress
from automedbench.sandbox.egress.dial import Upstreams
from automedbench.sandbox.egress.rules import EgressSettings, parse_index_url

pytestmark = pytest.mark.apptainer

CODE = """
set -e
pip install -q --no-cache-dir --target here alpha
PYTHONPATH=here python3 -c 'import alpha, beta; print(alpha.VALUE + beta.VALUE)'
python3 - <<'END'
import hashlib, os, urllib.request
place = os.environ["HF_ENDPOINT"] + "/acme/tiny-model/resolve/main/model.bin"
print(hashlib.sha256(urllib.request.urlopen(place).read()).hexdigest()[:8], "HTTPS_PROXY" in os.environ)
END
"""


def test_sealed_code_gets_from_the_cache_what_a_proxied_run_fetched() -> None:
    if reason := why_not("light"):
        pytest.skip(reason)
    hub = FakeHub({"model.bin": b"w" * 3_000_000}, large={"model.bin"})
    index = FakeIndex({"alpha": ["beta"], "beta": []})
    with user_folder() as folder:
        as_user(lambda: [(folder / name).mkdir() for name in ("public", "workspace", "log", "services")])

        def run(settings: EgressSettings, network: Any, upstreams: Upstreams) -> tuple[CodeResult, bool]:
            cache = (folder / "cache", 10**12)
            with Egress(
                settings, folder / "egress.jsonl", folder / "services", cache=cache, upstreams=upstreams
            ) as egress:
                box = ApptainerSandbox(
                    image=IMAGES / "light.sif",
                    public=folder / "public",
                    workspace=folder / "workspace",
                    network=network,
                    egress=egress,
                )
                with box:
                    egress.set_call(1, 1)
                    return box.run_code(
                        "bash", CODE, call=1, turn=1, log=folder / "log", timeout_s=120
                    ), box.enforced.from_cache

        with hub_with_store(hub) as (front, store), WebServer(index.answer) as web:
            place = parse_index_url(f"{web.url}/simple")
            settings = EgressSettings(allow=place.hosts, hub=front.url, index=place, cached=True)
            upstreams = Upstreams({}, {"store.example:80": store.place})
            fetched, alone = as_user(lambda: run(settings, "proxied", upstreams))
            assert (fetched.stdout.split()[0], fetched.stdout.split()[-1], alone) == ("82", "True", False), (
                fetched.stderr
            )
        settings = replace(settings, offline=True, sealed=True)
        stored, alone = as_user(lambda: run(settings, "sealed", Upstreams()))
        assert (stored.stdout.split()[:2], stored.stdout.split()[-1], alone) == (
            fetched.stdout.split()[:2],
            "False",
            True,
        ), stored.stderr
