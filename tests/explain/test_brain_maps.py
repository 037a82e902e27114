"""Edge maps as brain images: the same numbers in nilearn's and nibabel's hands."""

from __future__ import annotations

import json

import nibabel as nib
import numpy as np
import pytest

import bnt
from bnt.cli._main import main
from bnt.cohort import square
from bnt.errors import BadInput
from bnt.explain._writing import roi_values, write_brain_maps
from bnt.sources._atlas import atlas_of, find_atlas
from bnt.sources._readers import read_cifti
from fmriprep_files import write_atlas, write_dlabel, write_maps

pytestmark = pytest.mark.filterwarnings("ignore")


def score(n_rois: int) -> np.ndarray:
    return np.random.default_rng(0).normal(size=n_rois * (n_rois - 1) // 2)


def test_strength_and_balance_are_sums_over_the_edges_of_an_roi():
    edges = np.array([1.0, -2.0, 4.0])  # 0-1, 0-2, 1-2
    values = roi_values(edges)
    assert values["strength"].tolist() == [3, 5, 6]
    assert values["balance"].tolist() == [-1, 5, 2]


def test_roi_maps_of_labels_are_those_that_nilearn_paints(tmp_path):
    from nilearn.maskers import NiftiLabelsMasker

    file = write_atlas(tmp_path / "six.nii.gz")
    write_brain_maps(score(6), find_atlas(str(file)), tmp_path)
    masker = NiftiLabelsMasker(str(file)).fit()
    for name, values in roi_values(score(6)).items():
        painted = masker.inverse_transform(values[None].astype(np.float32))
        found = nib.load(tmp_path / f"roi_{name}.nii.gz")
        np.testing.assert_allclose(found.get_fdata(), painted.get_fdata()[..., 0], atol=1e-6)
        np.testing.assert_array_equal(found.affine, painted.affine)


def test_roi_maps_of_maps_are_those_that_nilearn_paints(tmp_path):
    from nilearn.maskers import NiftiMapsMasker

    file = write_maps(tmp_path / "three.nii.gz")
    write_brain_maps(score(3), find_atlas(str(file)), tmp_path)
    values = roi_values(score(3))["balance"]
    painted = NiftiMapsMasker(str(file)).fit().inverse_transform(values[None].astype(np.float32))
    np.testing.assert_allclose(
        nib.load(tmp_path / "roi_balance.nii.gz").get_fdata(), np.squeeze(painted.get_fdata()), atol=1e-5
    )


def test_a_seed_map_has_the_edges_of_one_roi(tmp_path):
    file = write_atlas(tmp_path / "six.nii.gz")
    atlas = find_atlas(str(file))
    write_brain_maps(score(6), atlas, tmp_path)
    labels, volumes = nib.load(file).get_fdata(), nib.load(tmp_path / "seed_maps.nii.gz").get_fdata()
    strongest = int(np.argmax(roi_values(score(6))["strength"]))
    for i, number in enumerate(atlas.rois["roi"]):
        assert volumes[labels == number][0, 0] == pytest.approx(square(score(6), 0.0)[strongest, i], abs=1e-6)


@pytest.mark.parametrize("form", ["labels", "cifti"])
def test_the_cifti_matrix_opens_as_the_edges_with_their_names(tmp_path, form):
    file = write_atlas(tmp_path / "six.nii.gz") if form == "labels" else write_dlabel(tmp_path / "five.dlabel.nii")
    atlas = find_atlas(str(file))
    edges = score(len(atlas.rois))
    write_brain_maps(edges, atlas, tmp_path)
    found = read_cifti(tmp_path / "edges.pconn.nii")
    np.testing.assert_allclose(found.matrix, square(edges, 0.0), atol=1e-6)
    assert found.labels == atlas.labels


def test_a_dense_map_has_the_value_of_its_parcel_at_every_grayordinate(tmp_path):
    atlas = find_atlas(str(write_dlabel(tmp_path / "five.dlabel.nii")))
    write_brain_maps(score(5), atlas, tmp_path)
    image = nib.load(tmp_path / "rois.dscalar.nii")
    keys = np.asarray(nib.load(atlas.file).dataobj)[0]
    values = roi_values(score(5))["balance"]
    for key, found in zip(keys, np.asarray(image.dataobj)[1]):
        expected = values[atlas.rois["roi"].tolist().index(key)] if key else 0.0
        assert found == pytest.approx(expected, abs=1e-5)


def test_an_atlas_of_another_size_is_refused(tmp_path):
    cohort = bnt.simulate_cohort(n_subjects=10, n_rois=8, n_sites=1, n_modules=2, seed=0)
    with pytest.raises(BadInput, match=r"6 ROIs.*8") as caught:
        atlas_of(cohort, str(write_atlas(tmp_path / "six.nii.gz")))
    assert caught.value.parameter == "atlas"


@pytest.mark.usefixtures("undrawn")
def test_explain_writes_maps_and_a_surface_and_the_page_shows_it(tmp_path):
    cohort, run = str(tmp_path / "cohort"), str(tmp_path / "run")
    simulate = ["simulate", cohort, "--subjects", "60", "--rois", "6", "--modules", "3", "--sites", "2"]
    assert main(simulate) == 0
    assert main(["train", cohort, "--model", "svm", "--out", run]) == 0
    atlas = str(write_atlas(tmp_path / "six.nii.gz", table=False))
    assert main(["explain", run, cohort, "--out", f"{run}/explain", "--atlas", atlas, "--permutations", "10"]) == 0
    names = {file.name for file in (tmp_path / "run" / "explain").iterdir()}
    assert {"roi_strength.nii.gz", "seed_maps.nii.gz", "edges.pconn.nii", "surface.png", "rois.csv"} <= names
    facts = json.loads((tmp_path / "run" / "explain" / "explain.json").read_text())
    assert facts["edges"]["brain_maps"]["atlas"] == atlas
    assert main(["report", run]) == 0
    assert "cortical surface" in (tmp_path / "run" / "report.html").read_text()
