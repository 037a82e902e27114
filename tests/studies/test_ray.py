"""A real Ray cluster of two nodes on this machine; one is killed while it works."""

from __future__ import annotations

import os
import re
import socket
from pathlib import Path

import pytest
from small_studies import LOGISTIC, make_study, tiny, weights

from bnt.cohort._files import holder
from bnt.errors import BadInput
from bnt.studies import _engine as engine
from bnt.studies._engine import last_line
from bnt.studies._job import Job, lock_of


def parent_of(process: int) -> int:
    """The parent of a process, from the kernel's table."""
    try:
        text = Path(f"/proc/{process}/stat").read_text()
    except OSError:
        return 0
    return int(text.rpartition(")")[2].split()[1])


def process_of(job: Job) -> int:
    found = re.search(r"process (\d+)", holder(lock_of(job)))
    return int(found.group(1)) if found else 0


@pytest.fixture(scope="module")
def two_nodes():
    """Two nodes of one CPU each, on the loopback address."""
    ray = pytest.importorskip("ray", reason="Ray is not installed (extra [cluster])")
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    from ray.cluster_utils import Cluster

    # Without what these tests do not look at: processes started before there is work, logs of workers, autoscaling.
    sparing = {"prestart_worker_first_driver": False, "enable_worker_prestart": False}
    # Ray takes 127.0.0.1 for "this machine's outer address" and leaves other loopback addresses as they are.
    small = {"num_cpus": 1, "object_store_memory": 80 * 1024**2}
    cluster = Cluster(
        initialize_head=True,
        head_node_args={
            **small,
            "node_ip_address": "127.0.0.2",
            "include_dashboard": False,
            "include_log_monitor": False,
            "no_monitor": True,
            "_system_config": {"health_check_period_ms": 500, "health_check_timeout_ms": 2000, **sparing},
        },
    )
    cluster.add_node(**small, node_ip_address="127.0.0.3")
    yield cluster
    ray.shutdown()
    cluster.shutdown()


def test_a_lost_node_does_not_change_the_numbers(two_nodes, cohort, whole, tmp_path, monkeypatch):
    monkeypatch.setattr(engine, "POLL_SECONDS", 0.05)
    (second,) = two_nodes.worker_nodes
    raylet = second.all_processes["raylet"][0].process.pid
    study = make_study(tmp_path / "study", cohort, [tiny()])
    lost = []

    def lose_the_node(running, done, total, failures):
        for job in running:
            if not lost and last_line(job).get("epoch", 0) >= 3 and parent_of(process_of(job)) == raylet:
                two_nodes.remove_node(second, allow_graceful=False)
                lost.append(job.name)

    assert study.run(engine="ray", address=two_nodes.address, watch=lose_the_node) == {}
    assert lost, "no network was trained on the second node"
    assert len(weights(study.folder)) == 2
    assert weights(study.folder).items() <= weights(whole).items()


def test_without_ray_the_engine_says_how_to_install_it(cohort, tmp_path, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "ray", None)
    with pytest.raises(BadInput, match=r"Ray is not installed: pip install"):
        make_study(tmp_path / "study", cohort, [LOGISTIC], n_splits=1).run(engine="ray")


def test_an_address_where_no_one_answers_is_refused_at_once(cohort, tmp_path):
    pytest.importorskip("ray", reason="Ray is not installed (extra [cluster])")
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    with pytest.raises(BadInput, match=f"no Ray cluster at 127.0.0.1:{port}"):
        make_study(tmp_path / "study", cohort, [LOGISTIC], n_splits=1).run(engine="ray", address=f"127.0.0.1:{port}")
