"""ROI maps on the cortical surface that nilearn ships (fsaverage5), seen from four sides."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any

import numpy as np

from bnt.plotting._style import signed_colours, styled

if TYPE_CHECKING:
    from matplotlib.figure import Figure

BOX = np.array([[2.0, 0, 0, -98], [0, 2, 0, -134], [0, 0, 2, -90], [0, 0, 0, 1]])  # around the whole surface, 2 mm
BOX_SHAPE = (99, 117, 105)
SIDES = (("left", "lateral"), ("left", "medial"), ("right", "medial"), ("right", "lateral"))


@styled
def surface_map(image: Any, label: str, signed: bool = True) -> Figure:
    """Draw a brain image on both hemispheres, from outside and from inside.

    Parameters
    ----------
    image : 3D image in MNI space
    label : str
        What its values are, beside the colour bar.
    signed : bool
        Whether values may be negative: orange is positive, blue negative.

    Examples
    --------
    >>> import nibabel as nib
    >>> import numpy as np
    >>> from bnt.plotting import surface_map
    >>> values = np.random.default_rng(0).normal(size=(10, 12, 10)).astype("float32")
    >>> affine = np.array([[18.0, 0, 0, -81], [0, 18, 0, -115], [0, 0, 18, -72], [0, 0, 0, 1]])
    >>> figure = surface_map(nib.Nifti1Image(values, affine), "score")
    """
    from matplotlib.cm import ScalarMappable
    from matplotlib.colors import Normalize
    from matplotlib.figure import Figure
    from nilearn.datasets import load_fsaverage, load_fsaverage_data
    from nilearn.image import resample_img
    from nilearn.plotting import plot_surf_stat_map
    from nilearn.surface import SurfaceImage

    meshes = load_fsaverage("fsaverage5")
    relief = load_fsaverage_data(mesh="fsaverage5", data_type="sulcal")
    figure = Figure(figsize=(7.0, 2.2))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        image = resample_img(image, BOX, BOX_SHAPE, interpolation="nearest", copy_header=True, force_resample=True)
        # An ROI map is constant within its ROIs: the value of the nearest voxel, never a mean over a border.
        found = SurfaceImage.from_volume(meshes["pial"], image, interpolation="nearest_most_frequent")
        values = np.concatenate([np.ravel(part) for part in found.data.parts.values()])
        span = float(np.nanmax(np.abs(values), initial=0.0)) or 1.0
        colours = signed_colours("#DDDDDD") if signed else "viridis"  # an ROI near 0 is not white on white
        low = -span if signed else 0.0
        for i, (hemisphere, view) in enumerate(SIDES):
            axes = figure.add_axes((0.22 * i, 0.02, 0.22, 0.9), projection="3d")
            plot_surf_stat_map(
                surf_mesh=meshes["inflated"],
                stat_map=found,
                bg_map=relief,
                hemi=hemisphere,
                view=view,
                cmap=colours,
                vmin=low,
                vmax=span,
                threshold=1e-9 * span,
                colorbar=False,
                axes=axes,
                figure=figure,
            )
            for collection in axes.collections:
                collection.set_rasterized(True)  # 20,000 triangles as vectors take minutes and megabytes
            axes.set_title(f"{hemisphere}, {view}", fontsize=7, y=0.95)
    bar = figure.add_axes((0.9, 0.2, 0.012, 0.6))
    figure.colorbar(ScalarMappable(Normalize(low, span), colours), cax=bar, label=label)
    return figure
