"""fMRIPrep's folders to cohorts: one atlas and several, sessions, interruptions, atlases of every form."""

from __future__ import annotations

import nibabel as nib
import numpy as np
import pandas as pd
import pytest

import bnt
from bnt.cli._main import main
from bnt.errors import BadInput
from bnt.sources import Denoising, _extract, read_cohort
from bnt.sources._atlas import find_atlas
from bnt.sources._roi_tables import read_lut
from fmriprep_files import (
    AFFINE,
    NAMES,
    NUMBERS,
    label_values,
    write_atlas,
    write_dense,
    write_dlabel,
    write_maps,
    write_run,
    write_tree,
)

pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.fixture(scope="module")
def tree(tmp_path_factory):
    """Three participants, the first with two sessions; an atlas of labels and one of maps beside them."""
    root = tmp_path_factory.mktemp("bids")
    out = write_tree(root, n=3)
    for file in (out / "sub-01" / "func").iterdir():
        file.unlink()
    for session in (1, 2):
        write_run(out, f"sub-01_ses-{session}", seed=10 + session)
    write_atlas(root / "six.nii.gz")
    write_maps(root / "three.nii.gz")
    return root


@pytest.fixture(scope="module")
def both(tree, tmp_path_factory):
    """A cohort of both atlases, made on the command line."""
    out = tmp_path_factory.mktemp("cohorts") / "both"
    words = ["import", str(tree / "derivatives" / "fmriprep"), str(out), "--jobs", "1"]
    assert main([*words, "--atlas", str(tree / "six.nii.gz"), f"maps={tree / 'three.nii.gz'}"]) == 0
    return out


def test_a_cohort_of_fmriprep_has_the_table_of_its_bids_folder_and_the_atlas_rois(both):
    cohort = bnt.load_cohort(both)
    assert cohort.ids.tolist() == ["sub-01", "sub-02", "sub-03"]
    assert cohort.labels("diagnosis").tolist() == [0, 1, 0]
    assert cohort.rois["label"].tolist() == list(NAMES)
    assert cohort.rois["network"].tolist() == ["Visual", "Somatomotor", "Default"] * 2
    assert cohort.participants["n_volumes"].tolist() == [156, 78, 78]
    assert cohort.source["denoising"]["confounds_strategy"] == "simple"


def test_coordinates_are_the_centres_of_the_atlas_regions(both):
    rois = bnt.load_cohort(both).rois
    for number, place in zip(NUMBERS, rois[["x", "y", "z"]].to_numpy()):
        voxels = np.argwhere(label_values() == number)
        centre = nib.affines.apply_affine(AFFINE, voxels.mean(axis=0))
        np.testing.assert_allclose(place, centre, atol=6)  # nilearn rounds to a voxel


def test_the_connectome_is_that_of_the_extracted_series(tree, both):
    atlas = find_atlas(str(tree / "six.nii.gz"))
    folder = tree / "derivatives" / "fmriprep" / "sub-02"
    images, _ = _extract.find_images(_extract_names(folder), folder, cifti=False)
    (series,) = _extract.extract(images[0], [atlas], Denoising())
    matrix = np.corrcoef(series.astype(float), rowvar=False)
    expected = [matrix[i, j] for j in range(6) for i in range(j)]
    np.testing.assert_allclose(bnt.load_cohort(both).connectomes[1], expected, atol=1e-6)


def _extract_names(folder):
    from bnt.sources._names import list_files

    return list_files(folder)


def test_several_atlases_share_one_table_and_the_same_rows(both):
    first, second = bnt.load_cohort(both), bnt.load_cohort(both, atlas="maps")
    assert first.atlases == second.atlases == ("six", "maps")
    assert (first.n_rois, second.n_rois) == (6, 3)
    assert not (both / "atlas-maps" / "participants.tsv").exists()
    assert second.labels("diagnosis").tolist() == first.labels("diagnosis").tolist()
    assert second.scans.tolist() != first.scans.tolist()
    assert bnt.load_cohort(both / "atlas-maps").ids.tolist() == first.ids.tolist()
    view = first.select(["sub-03", "sub-01"]).with_atlas("maps")
    np.testing.assert_array_equal(view.edges([0, 1]), second.edges([2, 0]))


def test_several_atlases_hold_what_each_import_alone_holds(tree, both, tmp_path):
    source = tree / "derivatives" / "fmriprep"
    alone = bnt.import_cohort(source, tmp_path / "maps", atlas=str(tree / "three.nii.gz"), jobs=1)
    np.testing.assert_array_equal(alone.connectomes, bnt.load_cohort(both, "maps").connectomes)


def test_selecting_subjects_keeps_every_atlas(both, tmp_path):
    assert main(["select", str(both), str(tmp_path / "some"), "--where", "diagnosis=0"]) == 0
    some = bnt.load_cohort(tmp_path / "some", "maps")
    assert some.ids.tolist() == ["sub-01", "sub-03"]
    np.testing.assert_array_equal(some.connectomes, bnt.load_cohort(both, "maps").edges([0, 2]))


def test_info_verifies_every_atlas_folder(both):
    assert main(["info", str(both / "atlas-maps"), "--verify"]) == 0


def test_an_unknown_atlas_names_those_there_are(both):
    with pytest.raises(BadInput, match="six, maps"):
        bnt.load_cohort(both, atlas="aal")


def test_a_person_without_a_scan_of_one_atlas_is_named(tmp_path):
    from source_files import series, write_participants, write_xcpd_series

    for who, atlases in (("sub-01", ("Gordon", "Tian")), ("sub-02", ("Gordon",))):
        for i, atlas in enumerate(atlases):
            write_xcpd_series(tmp_path / "xcpd", f"{who}_task-rest", series(i), atlas=atlas)
    write_participants(tmp_path / "people.tsv", participant_id=["sub-01", "sub-02"])
    with pytest.raises(BadInput, match=r"sub-02.*Gordon.*Tian"):
        bnt.import_cohort(
            tmp_path / "xcpd", tmp_path / "out", atlas=["Gordon", "Tian"], participants=tmp_path / "people.tsv"
        )
    assert not (tmp_path / "out").exists()


def test_an_interrupted_import_leaves_no_cohort_and_resumes_from_what_was_extracted(
    tree, tmp_path, monkeypatch, capsys
):
    source, out = tree / "derivatives" / "fmriprep", tmp_path / "cohort"
    real, calls = _extract.extract, []

    def stops(images, *more):
        if len(calls) == 2:
            raise KeyboardInterrupt
        calls.append(images)
        return real(images, *more)

    monkeypatch.setattr(_extract, "extract", stops)
    words = ["import", str(source), str(out), "--atlas", str(tree / "six.nii.gz"), "--jobs", "1"]
    assert main(words) == 130
    assert not out.exists()
    monkeypatch.setattr(_extract, "extract", real)
    assert main(words) == 0
    assert "2 of 4 runs" in capsys.readouterr().err
    assert [p.name for p in tmp_path.iterdir()] == ["cohort"]


def test_dense_files_are_read_with_a_label_file(tmp_path):
    for i in (1, 2):
        write_dense(tmp_path / "fmriprep", f"sub-0{i}", seed=i)
    atlas = write_dlabel(tmp_path / "parcels.dlabel.nii")
    cohort = bnt.import_cohort(tmp_path / "fmriprep", tmp_path / "out", atlas=str(atlas), jobs=1)
    assert cohort.rois["label"].tolist() == ["LH_Vis_1", "LH_Default_1", "RH_Vis_1", "RH_Default_1", "Thalamus"]


def test_new_scans_are_read_as_the_cohort_was(tree, both):
    new = read_cohort(tree / "derivatives" / "fmriprep" / "sub-03", like=both)
    np.testing.assert_array_equal(new.connectomes[0], bnt.load_cohort(both).connectomes[2])


def test_images_without_an_atlas_are_refused_with_the_option(tree, tmp_path, capsys):
    assert main(["import", str(tree / "derivatives" / "fmriprep"), str(tmp_path / "out")]) == 2
    assert "--atlas" in capsys.readouterr().err


def test_an_atlas_that_cannot_be_downloaded_says_why_and_what_to_do(tmp_path, monkeypatch):
    import nilearn.datasets
    from requests.exceptions import ConnectionError

    def offline(**_):
        raise ConnectionError("Max retries exceeded with url")

    monkeypatch.setattr(nilearn.datasets, "fetch_atlas_schaefer_2018", offline)
    with pytest.raises(BadInput, match=r"schaefer_2018:400.*no connection.*FILE.nii.gz") as caught:
        find_atlas("schaefer_2018:400")
    assert caught.value.parameter == "atlas"


def test_an_atlas_of_nilearn_has_its_names_and_networks(tmp_path, monkeypatch):
    import nilearn.datasets
    from sklearn.utils import Bunch

    file = write_atlas(tmp_path / "schaefer.nii.gz", table=False)
    lut = pd.DataFrame({"index": [0, *NUMBERS], "name": ["Background", *NAMES], "color": "#000000"})
    asked = {}

    def fetch(**given):
        asked.update(given)
        return Bunch(maps=str(file), lut=lut, labels=["Background", *NAMES])

    monkeypatch.setattr(nilearn.datasets, "fetch_atlas_schaefer_2018", fetch)
    atlas = find_atlas("schaefer_2018:400", data_dir=tmp_path)
    assert (asked["n_rois"], asked["data_dir"]) == (400, str(tmp_path))
    assert (atlas.name, atlas.labels) == ("schaefer_2018-400", NAMES)


def test_an_unknown_name_lists_the_atlases(tmp_path):
    with pytest.raises(BadInput, match="schaefer_2018"):
        find_atlas("schaeffer")


def test_a_label_that_the_table_lacks_is_named(tmp_path):
    file = write_atlas(tmp_path / "six.nii.gz")
    table = tmp_path / "six.tsv"
    table.write_text(table.read_text().replace("13\t", "14\t"))
    with pytest.raises(BadInput, match="label 13"):
        find_atlas(str(file))


@pytest.mark.parametrize(
    "text",
    [
        "1 LH_Vis_1 120 18 131 0\n2 RH_Default_2 10 18 131 0\n",
        "index\tname\tcolor\n1\tLH_Vis_1\tred\n2\tRH_Default_2\tblue\n",
        "roi,label,network\n1,LH_Vis_1,Vis\n2,RH_Default_2,Default\n",
        "id,region,community_yeo\n1,LH_Vis_1,Vis\n2,RH_Default_2,Default\n",
    ],
)
def test_tables_of_every_kind_give_numbers_names_and_networks(tmp_path, text):
    file = tmp_path / ("atlas.csv" if "," in text else "atlas.txt" if "index" not in text else "atlas.tsv")
    file.write_text(text)
    table = read_lut(file)
    assert table["roi"].tolist() == [1, 2]
    assert table["label"].tolist() == ["LH_Vis_1", "RH_Default_2"]
    assert table["network"].tolist() == ["Visual", "Default"]


def test_templateflow_is_asked_for_the_space_of_the_images(tmp_path, monkeypatch):
    import sys
    from types import SimpleNamespace

    file = write_atlas(tmp_path / "tpl-MNI152NLin6Asym_res-02_atlas-Six_desc-6Parcels_dseg.nii.gz", table=False)
    table = tmp_path / "tpl-MNI152NLin6Asym_atlas-Six_desc-6Parcels_dseg.tsv"
    pd.DataFrame({"index": NUMBERS, "name": NAMES}).to_csv(table, sep="\t", index=False)
    asked = []

    def get(space, **query):
        asked.append((space, query["atlas"], query["desc"]))
        return table if query["extension"] == ".tsv" else file

    monkeypatch.setitem(sys.modules, "templateflow", SimpleNamespace(api=SimpleNamespace(get=get)))
    atlas = find_atlas("templateflow:Six:6Parcels", space="MNI152NLin6Asym")
    assert set(asked) == {("MNI152NLin6Asym", "Six", "6Parcels")}
    assert (atlas.name, atlas.labels) == ("Six-6Parcels", NAMES)
    monkeypatch.setitem(sys.modules, "templateflow", None)  # not installed
    with pytest.raises(BadInput, match="pip install templateflow"):
        find_atlas("templateflow:Six:6Parcels")


def test_info_names_the_other_atlases(both, capsys):
    assert main(["info", str(both)]) == 0
    assert "atlas-maps" in capsys.readouterr().out


def test_two_atlases_of_xcpd_are_one_cohort(tmp_path):
    from source_files import series, write_participants, write_xcpd_series

    for i, who in enumerate(("sub-01", "sub-02")):
        for j, atlas in enumerate(("Gordon", "Tian")):
            write_xcpd_series(tmp_path / "xcpd", f"{who}_task-rest", series(2 * i + j), atlas=atlas)
    write_participants(tmp_path / "people.tsv", participant_id=["sub-01", "sub-02"], diagnosis=[0, 1])
    words = ["import", str(tmp_path / "xcpd"), str(tmp_path / "out"), "--atlas", "Gordon", "Tian"]
    assert main([*words, "--participants", str(tmp_path / "people.tsv")]) == 0
    tian = bnt.load_cohort(tmp_path / "out", "Tian")
    np.testing.assert_allclose(tian.timeseries[1], series(3), rtol=1e-5)
    assert tian.labels("diagnosis").tolist() == [0, 1]


@pytest.mark.parametrize("which", ["image", "atlas"])
def test_a_compressed_image_with_a_changed_bit_is_refused(tmp_path, which):
    """nibabel stops reading before the checksum at the end of the file."""
    out = write_tree(tmp_path, n=1)
    atlas = write_atlas(tmp_path / "six.nii.gz")
    file = atlas if which == "atlas" else next(out.rglob("*_bold.nii.gz"))
    data = bytearray(file.read_bytes())
    data[-6] ^= 1  # of the checksum: everything before it can be read
    file.write_bytes(bytes(data))
    with pytest.raises(BadInput, match=file.name):
        read_cohort(out, atlas=str(atlas))


def test_a_table_of_rois_whose_header_is_not_first_is_refused(tmp_path):
    file = tmp_path / "rois.tsv"
    file.write_text("1\tone\tVis\nindex\tname\tnetwork\n2\ttwo\tVis\n")
    with pytest.raises(BadInput, match=r"rois\.tsv"):
        read_lut(file)
    file.write_text("index\tname\n1\tone\n2\t\n")
    with pytest.raises(BadInput, match="row 2"):
        read_lut(file)
    file.write_text("\tlabe")  # a header with an empty name, cut off
    with pytest.raises(BadInput, match=r"rois\.tsv"):
        read_lut(file)
