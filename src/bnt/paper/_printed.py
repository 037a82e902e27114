"""The numbers printed in the paper (Kan et al., NeurIPS 2022), as plain data: mean and SD, in per cent for scores.

They are kept as printed, misprints included; what is known to be wrong with them is said where they are shown.
"""

from __future__ import annotations

Value = tuple[float, float]  # mean, SD
NAN = float("nan")
NOTHING: Value = (NAN, NAN)
DATASETS = ("ABIDE", "ABCD")
METRICS = ("auroc", "accuracy", "sensitivity", "specificity")
N_RUNS = 5

# Table 1: method -> AUROC, accuracy, sensitivity, specificity.
TABLE1: dict[str, dict[str, tuple[Value, Value, Value, Value]]] = {
    "ABIDE": {
        "SAN": ((71.3, 2.1), (65.3, 2.9), (55.4, 9.2), (68.3, 7.5)),
        "Graphormer": ((63.5, 3.7), (60.8, 2.7), (78.7, 22.3), (36.7, 23.5)),
        "VanillaTF": ((76.4, 1.2), (65.2, 1.2), (66.4, 11.4), (71.1, 12.0)),
        "BrainGNN": ((62.4, 3.5), (59.4, 2.3), (36.7, 24.0), (70.7, 19.3)),
        "BrainGB": ((69.7, 3.3), (63.6, 1.9), (63.7, 8.3), (60.4, 10.1)),
        "BrainNetCNN": ((74.9, 2.4), (67.8, 2.7), (63.8, 9.7), (71.0, 10.2)),
        "FBNETGNN": ((75.6, 1.2), (68.0, 1.4), (64.7, 8.7), (62.4, 9.2)),
        "BrainNetGNN": ((55.3, 1.9), (51.2, 5.4), (67.7, 37.5), (33.9, 34.2)),
        "DGM": ((52.7, 3.8), (60.7, 12.6), (53.8, 41.2), (51.1, 40.9)),
        "BrainNetTF": ((80.2, 1.0), (71.0, 1.2), (72.5, 5.2), (69.3, 6.5)),
    },
    "ABCD": {
        "SAN": ((90.1, 1.2), (81.0, 1.3), (84.9, 3.5), (77.5, 4.1)),
        "Graphormer": ((89.0, 1.4), (80.2, 1.3), (81.8, 11.6), (82.4, 7.4)),
        "VanillaTF": ((94.3, 0.7), (85.9, 1.4), (87.7, 2.4), (82.6, 3.9)),
        "BrainGNN": (NOTHING, NOTHING, NOTHING, NOTHING),  # out of memory
        "BrainGB": ((91.9, 0.3), (83.1, 0.5), (84.6, 4.3), (81.5, 3.9)),
        "BrainNetCNN": ((93.5, 0.3), (85.7, 0.8), (87.9, 3.4), (83.0, 4.4)),
        "FBNETGNN": ((94.5, 0.7), (87.2, 1.2), (87.0, 2.5), (86.7, 2.8)),
        "BrainNetGNN": ((75.3, 5.2), (67.5, 4.7), (67.7, 5.7), (68.0, 6.5)),
        "DGM": ((76.8, 19.0), (68.6, 8.1), (40.5, 29.7), (95.6, 4.2)),
        "BrainNetTF": ((96.2, 0.3), (88.4, 0.4), (89.4, 2.6), (88.4, 1.5)),
    },
}

# Table 2: readout -> AUROC with SAN, Graphormer, VanillaTF.
BACKBONES = ("SAN", "Graphormer", "VanillaTF")
TABLE2: dict[str, dict[str, tuple[Value, Value, Value]]] = {
    "ABIDE": {
        "MEAN": ((63.7, 2.4), (50.1, 1.1), (73.4, 1.4)),
        "MAX": ((61.9, 2.5), (54.5, 3.6), (75.6, 1.4)),
        "SUM": ((62.0, 2.3), (54.1, 1.3), (70.3, 1.6)),
        "SortPooling": ((68.7, 2.3), (51.3, 2.2), (72.4, 1.3)),
        "DiffPool": ((57.4, 5.2), (50.5, 4.7), (62.9, 7.3)),
        "CONCAT": ((71.3, 2.1), (63.5, 3.7), (76.4, 1.2)),
        "OCRead": ((70.6, 2.4), (64.9, 2.7), (80.2, 1.0)),
    },
    "ABCD": {
        "MEAN": ((88.5, 0.9), (87.6, 1.3), (91.3, 0.7)),
        "MAX": ((87.4, 1.1), (81.6, 0.8), (94.4, 0.6)),
        "SUM": ((84.2, 0.8), (71.5, 0.9), (91.6, 0.6)),
        "SortPooling": ((84.6, 1.1), (86.7, 1.0), (89.9, 0.6)),
        "DiffPool": ((78.1, 1.5), (70.0, 1.9), (83.9, 1.3)),
        "CONCAT": ((90.1, 1.2), (89.0, 1.4), (94.3, 0.7)),
        "OCRead": ((91.2, 0.7), (90.2, 0.7), (96.2, 0.4)),
    },
}

# Appendix B: AUROC of VanillaTF with different node features.
FEATURES: dict[str, dict[str, Value]] = {
    "ABIDE": {"profile": (76.4, 1.2), "identity": (75.4, 1.9), "eigen": (75.9, 2.1)},
    "ABCD": {"profile": (94.3, 0.7), "identity": (94.5, 0.6), "eigen": (94.0, 0.8)},
}

# Appendix D: minutes of training on an NVIDIA Quadro RTX 8000.
RUNTIME: dict[str, dict[str, Value]] = {
    "ABIDE": {
        "SAN": (93.01, 0.96),
        "Graphormer": (133.52, 0.54),
        "VanillaTF": (2.32, 0.10),
        "BrainNetTF": (1.98, 0.04),
    },
    "ABCD": {
        "SAN": (908.05, 3.6),
        "Graphormer": (4089.86, 5.7),
        "VanillaTF": (36.26, 2.12),
        "BrainNetTF": (30.31, 1.16),
    },
}

# Appendix E: parameters, as printed ("57.7M6" included) on ABIDE (200 ROIs) and ABCD (360 ROIs).
PARAMETERS: dict[str, tuple[str, str]] = {
    "BrainNetCNN": ("0.93M", "0.93M"),
    "BrainGB": ("1.08M", "1.49M"),
    "FBNetGen": ("0.55M", "1.18M"),
    "SAN": ("57.7M6", "186.7M"),
    "Graphormer": ("1.23M", "1.66M"),
    "VanillaTF": ("15.6M", "32.7M"),
    "BrainNetTF": ("4.0M", "11.2M"),
}

# Appendix H: difference score of the assignments.
DIFFERENCE: dict[str, dict[str, Value]] = {
    "ABIDE": {"random": (0.067, 0.016), "orthonormal": (0.085, 0.015)},
    "ABCD": {"random": (0.125, 0.010), "orthonormal": (0.142, 0.014)},
}

# Section 4.3.2: numbers of clusters of Figure 3a; Figure 4 has K = 4. Its values are printed as a picture only.
CLUSTERS = (2, 3, 4, 5, 10, 50, 100)
FIGURE4_CLUSTERS = 4


def show(value: Value, digits: int = 1) -> str:
    """Return ``71.3 ± 2.1``, or a dash where nothing is printed."""
    mean, sd = value
    if mean != mean:
        return "–"
    return f"{mean:.{digits}f}" + ("" if sd != sd else f" ± {sd:.{digits}f}")
