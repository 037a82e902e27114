"""Models pushed to a hub and pulled from it: against a small hub of our own, with the real client."""

from __future__ import annotations

import base64
import json
import re
import sys
from hashlib import sha1
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest

import bnt
from bnt.cli._main import main
from bnt.errors import BadInput
from bnt.training._trained import local_model, repository


class Hub(BaseHTTPRequestHandler):
    """What the client asks of a hub to make a repository, commit files to it, list and download them."""

    files: dict[str, dict[str, bytes]]
    private: dict[str, bool]

    @property
    def commit(self) -> str:
        """The commit of all repositories together: another one whenever a file changes."""
        return sha1(
            repr(sorted((name, sorted(files.items())) for name, files in self.files.items())).encode()
        ).hexdigest()

    def log_message(self, *_):
        """Say nothing."""

    def answer(self, data: object = None, code: int = 200, body: bytes | None = None, **headers: str) -> None:
        content = json.dumps(data).encode() if body is None else body
        self.send_response(code)
        for name, value in {"Content-Length": str(len(content)), **headers}.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)

    def do_POST(self):
        sent = self.rfile.read(int(self.headers["Content-Length"]))
        if self.path == "/api/repos/create":
            asked = json.loads(sent)
            name = f"{asked['organization']}/{asked['name']}"
            self.files.setdefault(name, {})
            self.private[name] = asked.get("private", asked.get("visibility") == "private")
            self.answer({"url": f"http://{self.headers['Host']}/{name}"})
        elif self.path == "/api/validate-yaml":
            text = json.loads(sent)["content"]
            self.answer({"errors": [] if text.startswith("---\n") else [{"message": "no metadata"}], "warnings": []})
        elif "/preupload/" in self.path:
            asked = json.loads(sent)["files"]
            kept = {"uploadMode": "regular", "shouldIgnore": False, "oid": None}
            self.answer({"files": [{"path": file["path"], **kept} for file in asked]})
        elif found := re.match(r"/api/models/(.+?)/commit/", self.path):
            for line in map(json.loads, sent.splitlines()):
                if line["key"] == "file":
                    self.files[found[1]][line["value"]["path"]] = base64.b64decode(line["value"]["content"])
            self.answer(
                {
                    "commitUrl": f"http://{self.headers['Host']}/{found[1]}/commit/{self.commit}",
                    "commitOid": self.commit,
                }
            )
        else:
            self.answer({"error": f"unknown {self.path}"}, 404)

    def do_GET(self):
        if found := re.match(r"/api/models/([^/]+/[^/]+)(/revision/[^/?]+)?(\?.*)?$", self.path):
            name = found[1]
            if name not in self.files:
                self.answer({"error": "Repository not found"}, 404, X_Error_Code="RepoNotFound")
                return
            listed = [{"rfilename": file} for file in self.files[name]]
            self.answer({"id": name, "sha": self.commit, "siblings": listed, "tags": []})
        elif found := re.match(r"/api/models/([^/]+/[^/]+)/tree/", self.path):
            rows = self.files[found[1]].items()
            self.answer([{"type": "file", "path": n, "size": len(d), "oid": sha1(d).hexdigest()} for n, d in rows])
        elif found := re.match(r"/([^/]+/[^/]+)/resolve/[^/]+/(.+)$", self.path):
            data = self.files[found[1]][found[2]]
            self.answer(body=data, ETag=f'"{sha1(data).hexdigest()}"', X_Repo_Commit=self.commit)
        else:
            self.answer({"error": f"unknown {self.path}"}, 404)

    do_HEAD = do_GET


@pytest.fixture
def hub(tmp_path, monkeypatch):
    """A running hub; commands that are started now talk to it."""
    pytest.importorskip("huggingface_hub")
    kind = type("FreshHub", (Hub,), {"files": {}, "private": {}})
    server = ThreadingHTTPServer(("127.0.0.1", 0), kind)
    thread = Thread(target=server.serve_forever, daemon=True)
    thread.start()
    monkeypatch.setenv("HF_ENDPOINT", f"http://127.0.0.1:{server.server_port}")
    monkeypatch.setenv("HF_HOME", str(tmp_path / "hf"))
    monkeypatch.setenv("HF_TOKEN", "hf_none")
    monkeypatch.setenv("HF_HUB_DISABLE_XET", "1")
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    for name in [name for name in sys.modules if name.partition(".")[0] == "huggingface_hub"]:
        monkeypatch.delitem(sys.modules, name)  # the client reads its address when it is imported
    yield kind
    server.shutdown()
    thread.join()
    server.server_close()


def test_a_model_is_pushed_privately_pulled_and_predicts_the_same(hub, tmp_path, capsys):
    cohort, run = tmp_path / "cohort", tmp_path / "run"
    bnt.simulate_cohort(n_subjects=40, n_rois=16, n_sites=2, seed=0, series=False).save(cohort)
    assert main(["train", str(cohort), "--model", "ridge", "--out", str(run)]) == 0

    assert main(["export", str(run), str(tmp_path / "shared"), "--hub", "hf://lab/model"]) == 0
    assert hub.private == {"lab/model": True}
    assert sorted(hub.files["lab/model"]) == ["README.md", "config.json", "model.safetensors"]

    hub.files["lab/model"]["evil.py"] = b"raise SystemExit('run')"
    tables = []
    for name in ("hf://lab/model", str(tmp_path / "shared")):
        capsys.readouterr()
        assert main(["predict", name, str(cohort)]) == 0
        tables.append(capsys.readouterr().out)
    assert tables[0] == tables[1]
    assert len(tables[0].splitlines()) == 41
    assert list((tmp_path / "hf").rglob("evil.py")) == []

    hub.files["lab/model"]["model.safetensors"] = hub.files["lab/model"]["model.safetensors"][:-1] + b"?"
    assert main(["predict", "hf://lab/model", str(cohort)]) == 2
    assert "model.safetensors" in capsys.readouterr().err


def test_a_model_that_the_hub_does_not_have_is_named(hub, tmp_path, capsys):
    assert main(["predict", "hf://lab/nobody", str(tmp_path)]) == 2
    said = capsys.readouterr().err
    assert "hf://lab/nobody" in said
    assert len(said.strip().splitlines()) == 1


@pytest.mark.parametrize("word", ["hf://lab", "hf://lab/a/b", "hf://lab/../x", "hf://"])
def test_a_word_that_names_no_model_on_a_hub_is_refused(word):
    with pytest.raises(BadInput, match="owner/name"):
        repository(word)


def test_a_path_is_left_as_it_is():
    assert local_model("runs/one") == Path("runs/one")


def test_without_the_package_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    with pytest.raises(BadInput, match=r"\[hub\]"):
        local_model("hf://lab/model")
