"""Series from fMRIPrep's images: the numbers of nilearn called by hand, whatever is interrupted."""

from __future__ import annotations

import nibabel as nib
import numpy as np
import pandas as pd
import pytest

from bnt.errors import BadInput
from bnt.sources import _extract
from bnt.sources._atlas import find_atlas
from bnt.sources._extract import Denoising, Extraction, Images, extract, find_images
from bnt.sources._names import list_files
from fmriprep_files import (
    NAMES,
    NUMBERS,
    T_R,
    label_values,
    write_atlas,
    write_dense,
    write_dlabel,
    write_maps,
    write_run,
    write_surfaces,
    write_tree,
)

pytestmark = pytest.mark.filterwarnings("ignore")


def images_of(folder, **more) -> list[Images]:
    return find_images(list_files(folder), folder, cifti=False, **more)[0]


@pytest.mark.parametrize("strategy", ["simple", "scrubbing", "compcor", "none"])
def test_series_are_those_of_nilearns_masker_called_by_hand(tmp_path, monkeypatch, strategy):
    from nilearn.interfaces.fmriprep import load_confounds, load_confounds_strategy
    from nilearn.maskers import NiftiLabelsMasker

    file = write_run(tmp_path, "sub-01", seed=0)
    atlas = find_atlas(str(write_atlas(tmp_path / "six.nii.gz")))
    mask = str(file).replace("desc-preproc_bold", "desc-brain_mask")
    if strategy == "none":
        confounds, kept = load_confounds(str(file), strategy=())
    else:
        confounds, kept = load_confounds_strategy(str(file), denoise_strategy=strategy)
    masker = NiftiLabelsMasker(
        str(tmp_path / "six.nii.gz"),
        mask_img=mask,
        t_r=T_R,
        low_pass=0.1,
        high_pass=0.02,
        detrend=True,
        standardize="zscore_sample",
    )
    by_hand = masker.fit_transform(str(file), confounds=confounds, sample_mask=kept)
    monkeypatch.setattr(_extract, "CHUNK_BYTES", 8 * 1200 * 7)  # seven volumes at a time
    (found,) = extract(images_of(tmp_path)[0], [atlas], Denoising(strategy, high_pass=0.02))
    assert len(found) == {"scrubbing": 77}.get(strategy, 78)  # two before the steady state, one with motion
    np.testing.assert_allclose(found, by_hand, atol=1e-6)


def test_images_cleaned_by_ica_aroma_are_read_as_nilearn_reads_them(tmp_path):
    from nilearn.interfaces.fmriprep import load_confounds_strategy
    from nilearn.maskers import NiftiLabelsMasker

    plain = write_run(tmp_path, "sub-01", seed=0)
    cleaned = plain.with_name("sub-01_task-rest_space-MNI152NLin6Asym_desc-smoothAROMAnonaggr_bold.nii.gz")
    data = np.random.default_rng(9).normal(1000, 20, nib.load(plain).shape).astype(np.float32)
    nib.Nifti1Image(data, nib.load(plain).affine).to_filename(cleaned)
    cleaned.with_name(cleaned.name.replace(".nii.gz", ".json")).write_text(f'{{"RepetitionTime": {T_R}}}')
    confounds, kept = load_confounds_strategy(str(cleaned), denoise_strategy="ica_aroma")
    atlas = write_atlas(tmp_path / "six.nii.gz")
    masker = NiftiLabelsMasker(str(atlas), t_r=T_R, low_pass=0.1, detrend=True, standardize="zscore_sample")
    by_hand = masker.fit_transform(str(cleaned), confounds=confounds, sample_mask=kept)
    (images,) = images_of(tmp_path, aroma=True)
    assert images.file == cleaned
    (found,) = extract(images, [find_atlas(str(atlas))], Denoising("ica_aroma"))
    np.testing.assert_allclose(found, by_hand, atol=1e-6)


def test_ica_aroma_without_its_images_names_what_is_missing(tmp_path):
    write_run(tmp_path, "sub-01", seed=0)
    with pytest.raises(BadInput, match="smoothAROMAnonaggr"):
        images_of(tmp_path, aroma=True)


def test_maps_are_read_as_nilearns_masker_reads_them(tmp_path):
    from nilearn.interfaces.fmriprep import load_confounds_strategy
    from nilearn.maskers import NiftiMapsMasker

    file = write_run(tmp_path, "sub-01", seed=0)
    maps = write_maps(tmp_path / "three.nii.gz")
    confounds, kept = load_confounds_strategy(str(file), denoise_strategy="simple", global_signal="basic")
    mask = str(file).replace("desc-preproc_bold", "desc-brain_mask")
    masker = NiftiMapsMasker(str(maps), mask_img=mask, t_r=T_R, low_pass=0.1, standardize="zscore_sample", detrend=True)
    by_hand = masker.fit_transform(str(file), confounds=confounds, sample_mask=kept)
    (found,) = extract(images_of(tmp_path)[0], [find_atlas(str(maps))], Denoising(global_signal=True))
    np.testing.assert_allclose(found, by_hand, atol=1e-6)


def test_a_dense_file_gives_the_mean_over_each_parcel(tmp_path):
    from nilearn.interfaces.fmriprep import load_confounds_strategy
    from nilearn.signal import clean

    file = write_dense(tmp_path, "sub-01", seed=3)
    atlas = find_atlas(str(write_dlabel(tmp_path / "parcels.dlabel.nii")))
    images, space = find_images(list_files(tmp_path), tmp_path, cifti=True)
    assert (space, [i.file for i in images]) == ("fsLR", [file])
    data = np.asarray(nib.load(file).dataobj, dtype=float)
    # The runs have vertices 2-13 on the left and 0-11 on the right; vertex 3 has no label.
    members = {1: [0, *range(2, 8)], 2: range(8, 12), 3: range(12, 22), 4: range(22, 24), 9: range(24, 32)}
    raw = np.stack([np.mean([data[:, j] for j in columns], axis=0) for columns in members.values()], axis=1)
    confounds, kept = load_confounds_strategy(str(file), denoise_strategy="simple")
    by_hand = clean(raw, confounds=confounds, sample_mask=kept, t_r=T_R, low_pass=0.1, standardize="zscore_sample")
    (found,) = extract(images[0], [atlas], Denoising())
    np.testing.assert_allclose(found, by_hand, atol=1e-5)
    assert atlas.rois["network"].tolist() == ["Visual", "Default", "Visual", "Default", ""]


def test_rois_of_a_label_file_lie_at_the_mean_of_their_vertices_and_voxels(tmp_path, capsys):
    file = write_dlabel(tmp_path / "parcels.dlabel.nii")
    voxels = [[2 * x, 2 * y, 2 * z] for x in (1, 2) for y in (1, 2) for z in (1, 2)]
    without = find_atlas(str(file)).rois
    assert without["x"].isna().tolist() == [True] * 4 + [False]
    assert "4 of 5 ROIs" in capsys.readouterr().err
    np.testing.assert_allclose(without.loc[4, ["x", "y", "z"]].astype(float), np.mean(voxels, axis=0))
    write_surfaces(tmp_path, "inflated", shift=50)
    write_surfaces(tmp_path, "pial", n=21, shift=50)  # of another mesh
    surfaces = write_surfaces(tmp_path)
    rois = find_atlas(str(file)).rois
    left, right = surfaces["L"], surfaces["R"]
    expected = [left[[0, 1, 2, *range(4, 10)]], left[10:], right[:10], right[10:]]  # vertex 3 has no label
    np.testing.assert_allclose(rois[["x", "y", "z"]][:4], [one.mean(axis=0) for one in expected], atol=0.006)
    assert capsys.readouterr().err == ""


def test_an_roi_outside_the_mask_is_missing_and_the_others_keep_their_places(tmp_path):
    file = write_run(tmp_path, "sub-01", seed=0)
    mask = file.with_name(file.name.replace("desc-preproc_bold", "desc-brain_mask"))
    inside = np.isin(label_values(), (0, 3, 5, 7, 13)).astype(np.uint8)
    nib.Nifti1Image(inside, nib.load(file).affine).to_filename(mask)
    (found,) = extract(images_of(tmp_path)[0], [find_atlas(str(write_atlas(tmp_path / "six.nii.gz")))], Denoising())
    assert [n for n, missing in zip(NUMBERS, np.isnan(found).all(axis=0)) if missing] == [2, 11]


def test_what_was_extracted_before_an_interruption_is_used_and_what_is_damaged_is_made_again(tmp_path, monkeypatch):
    tree = write_tree(tmp_path, n=3)
    atlas = find_atlas(str(write_atlas(tmp_path / "six.nii.gz")))
    work = tmp_path / "work"
    whole = Extraction(tuple(images_of(tree)), (atlas,), Denoising())
    made = []

    def slowly(images, *more):
        if len(made) == 2:
            raise KeyboardInterrupt
        made.append(images.participant)
        return extract(images, *more)

    monkeypatch.setattr(_extract, "extract", slowly)
    with pytest.raises(KeyboardInterrupt):
        whole.carry_out(work, jobs=1)
    assert made == ["sub-01", "sub-02"]
    first = next(work.glob("sub-01--*.npy"))
    first.write_bytes(first.read_bytes()[:-8])
    made.clear()
    whole.carry_out(work, jobs=1)
    assert made == ["sub-01", "sub-03"]
    monkeypatch.undo()
    for images, scan in zip(whole.images, whole.scans(atlas, work)):
        np.testing.assert_array_equal(scan.read().series, extract(images, [atlas], Denoising())[0])


def test_two_processes_extract_the_same_series_as_one(tmp_path):
    tree = write_tree(tmp_path, n=2)
    atlas = find_atlas(str(write_atlas(tmp_path / "six.nii.gz")))
    whole = Extraction(tuple(images_of(tree)), (atlas,), Denoising())
    whole.carry_out(tmp_path / "one", jobs=1)
    whole.carry_out(tmp_path / "two", jobs=2)
    files = sorted(p.name for p in (tmp_path / "one").glob("*.npy"))
    assert files == sorted(p.name for p in (tmp_path / "two").glob("*.npy"))
    for name in files:
        assert (tmp_path / "one" / name).read_bytes() == (tmp_path / "two" / name).read_bytes()


def test_other_settings_make_the_series_again(tmp_path):
    (images,) = images_of(write_tree(tmp_path, n=1))
    atlas = find_atlas(str(write_atlas(tmp_path / "six.nii.gz")))
    places = [
        Extraction((images,), (atlas,), how).place(tmp_path, images, atlas)
        for how in (Denoising(), Denoising("none"), Denoising(low_pass=0.08))
    ]
    images.file.touch()
    places.append(Extraction((images,), (atlas,), Denoising()).place(tmp_path, images, atlas))
    assert len(set(places)) == 4


def test_the_repetition_time_is_of_the_sidecar_then_of_the_header(tmp_path):
    file = write_run(tmp_path, "sub-01", seed=0)
    (images,) = images_of(tmp_path)
    assert _extract.repetition_time(images, nib.load(file)) == T_R
    file.with_name(file.name.replace(".nii.gz", ".json")).unlink()
    assert _extract.repetition_time(images, nib.load(file)) == 1.0
    broken = nib.load(file)
    broken.header["pixdim"][4] = 0
    with pytest.raises(BadInput, match="RepetitionTime"):
        _extract.repetition_time(images, broken)


def test_one_standard_space_is_taken_and_native_images_are_refused(tmp_path, capsys):
    file = write_run(tmp_path, "sub-01", seed=0)
    native = file.with_name(file.name.replace("space-MNI152NLin2009cAsym", "space-T1w"))
    native.write_bytes(file.read_bytes())
    assert [i.file for i in images_of(tmp_path)] == [file]
    assert "T1w" in capsys.readouterr().err
    file.unlink()
    with pytest.raises(BadInput, match="--output-spaces"):
        images_of(tmp_path)


def test_missing_confounds_name_the_run_and_the_strategy(tmp_path):
    file = write_run(tmp_path, "sub-01", seed=0)
    (images,) = images_of(tmp_path)
    atlas = find_atlas(str(write_atlas(tmp_path / "six.nii.gz")))
    table = next(file.parent.glob("*confounds_timeseries.tsv"))
    pd.read_csv(table, sep="\t").filter(regex="^(?!csf)").to_csv(table, sep="\t", index=False)
    with pytest.raises(BadInput, match="sub-01.*'simple'.*csf") as caught:
        extract(images, [atlas], Denoising())
    assert caught.value.parameter == "confounds_strategy"
    table.unlink()
    with pytest.raises(BadInput, match="confound"):
        extract(images, [atlas], Denoising("none"))


def test_a_truncated_image_is_named(tmp_path):
    file = write_run(tmp_path, "sub-01", seed=0)
    file.write_bytes(file.read_bytes()[:5000])
    atlas = find_atlas(str(write_atlas(tmp_path / "six.nii.gz")))
    with pytest.raises(BadInput, match="sub-01_task-rest"):
        extract(images_of(tmp_path)[0], [atlas], Denoising())


@pytest.mark.parametrize(
    ("settings", "parameter"),
    [
        ({"confounds_strategy": "best"}, "confounds_strategy"),
        ({"high_pass": 0.2}, "high_pass"),
        ({"low_pass": -1}, "low_pass"),
    ],
)
def test_settings_that_cannot_be_are_refused(settings, parameter):
    with pytest.raises(BadInput) as caught:
        Denoising(**settings)
    assert caught.value.parameter == parameter


def test_names_come_from_the_table_in_the_order_of_the_image(tmp_path):
    atlas = find_atlas(str(write_atlas(tmp_path / "six.nii.gz")))
    assert atlas.labels == NAMES
    assert atlas.rois["roi"].tolist() == list(NUMBERS)
