"""Denoising settings for fMRIPrep images; separate because the command line imports them and must start fast."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args, get_type_hints

from bnt.errors import BadInput


@dataclass(frozen=True)
class Denoising:
    """How time series of fMRIPrep images are denoised; see :func:`bnt.import_cohort`.

    Examples
    --------
    >>> from bnt.sources import Denoising
    >>> Denoising("scrubbing", fd_threshold=0.3).described()
    'confounds scrubbing, volumes above FD 0.3 mm or DVARS 1.5 dropped, low-pass 0.1 Hz'
    """

    confounds_strategy: Literal["simple", "scrubbing", "compcor", "ica_aroma", "none"] = "simple"
    """nilearn's strategy for fMRIPrep's confounds: simple, scrubbing, compcor, ica_aroma, or none. Non-steady-state
    volumes are always dropped."""
    global_signal: bool = False
    """Remove the global signal too."""
    fd_threshold: float = 0.5
    """Of scrubbing: framewise displacement, in mm, above which a volume is dropped."""
    dvars_threshold: float = 1.5
    """Of scrubbing: standardised DVARS above which a volume is dropped."""
    low_pass: float = 0.1
    """Remove what is faster than this, in Hz; 0 keeps it."""
    high_pass: float = 0.0
    """Remove what is slower than this, in Hz; 0 leaves it to the cosines among fMRIPrep's confounds."""

    def __post_init__(self) -> None:
        allowed = get_args(get_type_hints(Denoising)["confounds_strategy"])
        if self.confounds_strategy not in allowed:
            raise BadInput(
                f"confounds_strategy is {self.confounds_strategy!r}: choose one of {', '.join(allowed)}.",
                "confounds_strategy",
            )
        for name in ("fd_threshold", "dvars_threshold", "low_pass", "high_pass"):
            if not getattr(self, name) >= 0:
                raise BadInput(f"{name} is {getattr(self, name)}: give 0 or more.", name)
        if self.low_pass and self.high_pass >= self.low_pass:
            raise BadInput(
                f"high_pass is {self.high_pass} and low_pass is {self.low_pass}: give high < low.", "high_pass"
            )

    def described(self) -> str:
        """Return what is done, in words."""
        words = [f"confounds {self.confounds_strategy}"]
        words += ["global signal"] if self.global_signal else []
        if self.confounds_strategy == "scrubbing":
            words.append(f"volumes above FD {self.fd_threshold:g} mm or DVARS {self.dvars_threshold:g} dropped")
        words += [f"{n} {v:g} Hz" for n, v in (("low-pass", self.low_pass), ("high-pass", self.high_pass)) if v]
        return ", ".join(words)


SIMPLE = Denoising()
