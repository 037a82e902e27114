"""The bibliography of a study: BibTeX of the models (by the catalogue's ``paper`` field), statistics and tools."""

from __future__ import annotations

from collections.abc import Iterable

NEURIPS = "Advances in Neural Information Processing Systems"

# What the catalogue calls a paper, or what a test or tool is called here: kind of entry and fields.
REFERENCES: dict[str, tuple[str, dict[str, str]]] = {
    "Kan 2022": (
        "inproceedings",
        {
            "author": "Kan, Xuan and Dai, Wei and Cui, Hejie and Zhang, Zilong and Guo, Ying and Yang, Carl",
            "title": "Brain Network Transformer",
            "booktitle": NEURIPS,
            "volume": "35",
            "pages": "25586--25599",
        },
    ),
    "Kreuzer 2021": (
        "inproceedings",
        {
            "author": "Kreuzer, Devin and Beaini, Dominique and Hamilton, William L. and L{\\'e}tourneau, Vincent and "
            "Tossou, Prudencio",
            "title": "Rethinking Graph Transformers with Spectral Attention",
            "booktitle": NEURIPS,
            "volume": "34",
            "pages": "21618--21629",
        },
    ),
    "Ying 2021": (
        "inproceedings",
        {
            "author": "Ying, Chengxuan and Cai, Tianle and Luo, Shengjie and Zheng, Shuxin and Ke, Guolin and He, Di "
            "and Shen, Yanming and Liu, Tie-Yan",
            "title": "Do Transformers Really Perform Badly for Graph Representation?",
            "booktitle": NEURIPS,
            "volume": "34",
            "pages": "28877--28888",
        },
    ),
    "Cui 2022": (
        "article",
        {
            "author": "Cui, Hejie and Dai, Wei and Zhu, Yanqiao and Kan, Xuan and Gu, Antonio Aodong Chen and "
            "Lukemire, Joshua and Zhan, Liang and He, Lifang and Guo, Ying and Yang, Carl",
            "title": "{BrainGB}: A Benchmark for Brain Network Analysis with Graph Neural Networks",
            "journal": "IEEE Transactions on Medical Imaging",
            "volume": "42",
            "number": "2",
            "pages": "493--506",
            "doi": "10.1109/TMI.2022.3218745",
        },
    ),
    "Kawahara 2017": (
        "article",
        {
            "author": "Kawahara, Jeremy and Brown, Colin J. and Miller, Steven P. and Booth, Brian G. and Chau, Vann "
            "and Grunau, Ruth E. and Zwicker, Jill G. and Hamarneh, Ghassan",
            "title": "{BrainNetCNN}: Convolutional Neural Networks for Brain Networks; Towards Predicting "
            "Neurodevelopment",
            "journal": "NeuroImage",
            "volume": "146",
            "pages": "1038--1049",
            "doi": "10.1016/j.neuroimage.2016.09.046",
        },
    ),
    "Li 2021": (
        "article",
        {
            "author": "Li, Xiaoxiao and Zhou, Yuan and Dvornek, Nicha and Zhang, Muhan and Gao, Siyuan and Zhuang, "
            "Juntang and Scheinost, Dustin and Staib, Lawrence H. and Ventola, Pamela and Duncan, James S.",
            "title": "{BrainGNN}: Interpretable Brain Graph Neural Network for {fMRI} Analysis",
            "journal": "Medical Image Analysis",
            "volume": "74",
            "pages": "102233",
            "doi": "10.1016/j.media.2021.102233",
        },
    ),
    "Kan 2022b": (
        "inproceedings",
        {
            "author": "Kan, Xuan and Cui, Hejie and Lukemire, Joshua and Guo, Ying and Yang, Carl",
            "title": "{FBNetGen}: Task-aware {GNN}-based {fMRI} Analysis via Functional Brain Network Generation",
            "booktitle": "Medical Imaging with Deep Learning",
            "series": "PMLR",
            "volume": "172",
            "pages": "618--637",
        },
    ),
    "Mahmood 2021": (
        "article",
        {
            "author": "Mahmood, Usman and Fu, Zening and Calhoun, Vince D. and Plis, Sergey",
            "title": "A Deep Learning Model for Data-Driven Discovery of Functional Connectivity",
            "journal": "Algorithms",
            "volume": "14",
            "number": "3",
            "pages": "75",
            "doi": "10.3390/a14030075",
        },
    ),
    "Kazi 2023": (
        "article",
        {
            "author": "Kazi, Anees and Cosmo, Luca and Ahmadi, Seyed-Ahmad and Navab, Nassir and Bronstein, Michael M.",
            "title": "Differentiable Graph Module ({DGM}) for Graph Convolutional Networks",
            "journal": "IEEE Transactions on Pattern Analysis and Machine Intelligence",
            "volume": "45",
            "number": "2",
            "pages": "1606--1617",
            "doi": "10.1109/TPAMI.2022.3170249",
        },
    ),
    "Bannadabhavi 2023": (
        "misc",
        {
            "author": "Bannadabhavi, Anushree and Lee, Soojin and Deng, Wenlong and Li, Xiaoxiao",
            "title": "Community-Aware Transformer for Autism Prediction in {fMRI} Connectome",
            "note": "arXiv:2307.10181, accepted at MICCAI 2023",
        },
    ),
    "Yu 2024": (
        "inproceedings",
        {
            "author": "Yu, Shuo and Jin, Shan and Li, Ming and Sarwar, Tabinda and Xia, Feng",
            "title": "Long-range Brain Graph Transformer",
            "booktitle": NEURIPS,
            "volume": "37",
            "pages": "24472--24495",
        },
    ),
    "Yang 2025": (
        "inproceedings",
        {
            "author": "Yang, Liang and Liu, Yuwei and Zhuo, Jiaming and Jin, Di and Wang, Chuan and Wang, Zhen and "
            "Cao, Xiaochun",
            "title": "Do We Really Need Message Passing in Brain Network Modeling?",
            "booktitle": "International Conference on Machine Learning",
            "series": "PMLR",
            "volume": "267",
            "pages": "70873--70887",
        },
    ),
    "Han 2025": (
        "misc",
        {
            "author": "Han, Keqi and Su, Yao and He, Lifang and Zhan, Liang and Plis, Sergey and Calhoun, Vince and "
            "Yang, Carl",
            "title": "Rethinking Functional Brain Connectome Analysis: Do Graph Deep Learning Models Help?",
            "note": "arXiv:2501.17207",
        },
    ),
    "Popov 2024": (
        "article",
        {
            "author": "Popov, Pavel and Mahmood, Usman and Fu, Zening and Yang, Carl and Calhoun, Vince and "
            "Plis, Sergey",
            "title": "A Simple but Tough-to-Beat Baseline for {fMRI} Time-Series Classification",
            "journal": "NeuroImage",
            "volume": "303",
            "pages": "120909",
            "doi": "10.1016/j.neuroimage.2024.120909",
        },
    ),
    "Bedel 2023": (
        "article",
        {
            "author": "Bedel, Hasan A. and Sivgin, Irmak and Dalmaz, Onat and Dar, Salman U. H. and {\\c{C}}ukur, "
            "Tolga",
            "title": "{BolT}: Fused Window Transformers for {fMRI} Time Series Analysis",
            "journal": "Medical Image Analysis",
            "volume": "88",
            "pages": "102841",
            "doi": "10.1016/j.media.2023.102841",
        },
    ),
    "Hou 2025": (
        "misc",
        {
            "author": "Hou, Jiacheng and Song, Zhenjie and Kuruoglu, Ercan Engin",
            "title": "{BrainNetMLP}: An Efficient and Effective Baseline for Functional Brain Network Classification",
            "note": "arXiv:2505.11538",
        },
    ),
    "Said 2023": (
        "inproceedings",
        {
            "author": "Said, Anwar and Bayrak, Roza G. and Derr, Tyler and Shabbir, Mudassir and Moyer, Daniel and "
            "Chang, Catie and Koutsoukos, Xenofon",
            "title": "{NeuroGraph}: Benchmarks for Graph Machine Learning in Brain Connectomics",
            "booktitle": NEURIPS,
            "volume": "36",
            "pages": "6509--6531",
        },
    ),
    "Cortes 1995": (
        "article",
        {
            "author": "Cortes, Corinna and Vapnik, Vladimir",
            "title": "Support-Vector Networks",
            "journal": "Machine Learning",
            "volume": "20",
            "number": "3",
            "pages": "273--297",
            "doi": "10.1007/BF00994018",
        },
    ),
    "Hoerl 1970": (
        "article",
        {
            "author": "Hoerl, Arthur E. and Kennard, Robert W.",
            "title": "Ridge Regression: Biased Estimation for Nonorthogonal Problems",
            "journal": "Technometrics",
            "volume": "12",
            "number": "1",
            "pages": "55--67",
            "doi": "10.1080/00401706.1970.10488634",
        },
    ),
    "Varoquaux 2010": (
        "inproceedings",
        {
            "author": 'Varoquaux, Ga{\\"e}l and Baronnet, Flore and Kleinschmidt, Andreas and Fillard, Pierre and '
            "Thirion, Bertrand",
            "title": "Detection of Brain Functional-Connectivity Difference in Post-Stroke Patients Using Group-Level "
            "Covariance Modeling",
            "booktitle": "Medical Image Computing and Computer Assisted Intervention",
            "series": "Lecture Notes in Computer Science",
            "volume": "6361",
            "pages": "200--208",
            "doi": "10.1007/978-3-642-15705-9_25",
        },
    ),
    "Shen 2017": (
        "article",
        {
            "author": "Shen, Xilin and Finn, Emily S. and Scheinost, Dustin and Rosenberg, Monica D. and Chun, "
            "Marvin M. and Papademetris, Xenophon and Constable, R. Todd",
            "title": "Using Connectome-Based Predictive Modeling to Predict Individual Behavior from Brain "
            "Connectivity",
            "journal": "Nature Protocols",
            "volume": "12",
            "number": "3",
            "pages": "506--518",
            "doi": "10.1038/nprot.2016.178",
        },
    ),
    "He 2020": (
        "article",
        {
            "author": "He, Tong and Kong, Ru and Holmes, Avram J. and Nguyen, Minh and Sabuncu, Mert R. and Eickhoff, "
            "Simon B. and Bzdok, Danilo and Feng, Jiashi and Yeo, B. T. Thomas",
            "title": "Deep Neural Networks and Kernel Regression Achieve Comparable Accuracies for Functional "
            "Connectivity Prediction of Behavior and Demographics",
            "journal": "NeuroImage",
            "volume": "206",
            "pages": "116276",
            "doi": "10.1016/j.neuroimage.2019.116276",
        },
    ),
    "Nadeau 2003": (
        "article",
        {
            "author": "Nadeau, Claude and Bengio, Yoshua",
            "title": "Inference for the Generalization Error",
            "journal": "Machine Learning",
            "volume": "52",
            "number": "3",
            "pages": "239--281",
            "doi": "10.1023/A:1024068626366",
        },
    ),
    "Holm 1979": (
        "article",
        {
            "author": "Holm, Sture",
            "title": "A Simple Sequentially Rejective Multiple Test Procedure",
            "journal": "Scandinavian Journal of Statistics",
            "volume": "6",
            "number": "2",
            "pages": "65--70",
        },
    ),
    "DeLong 1988": (
        "article",
        {
            "author": "DeLong, Elizabeth R. and DeLong, David M. and Clarke-Pearson, Daniel L.",
            "title": "Comparing the Areas under Two or More Correlated Receiver Operating Characteristic Curves: A "
            "Nonparametric Approach",
            "journal": "Biometrics",
            "volume": "44",
            "number": "3",
            "pages": "837--845",
            "doi": "10.2307/2531595",
        },
    ),
    "Phipson 2010": (
        "article",
        {
            "author": "Phipson, Belinda and Smyth, Gordon K.",
            "title": "Permutation {P}-values Should Never Be Zero: Calculating Exact {P}-values When Permutations Are "
            "Randomly Drawn",
            "journal": "Statistical Applications in Genetics and Molecular Biology",
            "volume": "9",
            "number": "1",
            "pages": "Article 39",
            "doi": "10.2202/1544-6115.1585",
        },
    ),
    "Kingma 2015": (
        "inproceedings",
        {
            "author": "Kingma, Diederik P. and Ba, Jimmy",
            "title": "Adam: A Method for Stochastic Optimization",
            "booktitle": "International Conference on Learning Representations",
        },
    ),
    "Loshchilov 2019": (
        "inproceedings",
        {
            "author": "Loshchilov, Ilya and Hutter, Frank",
            "title": "Decoupled Weight Decay Regularization",
            "booktitle": "International Conference on Learning Representations",
        },
    ),
    "Zhang 2018": (
        "inproceedings",
        {
            "author": "Zhang, Hongyi and Cisse, Moustapha and Dauphin, Yann N. and Lopez-Paz, David",
            "title": "mixup: Beyond Empirical Risk Minimization",
            "booktitle": "International Conference on Learning Representations",
        },
    ),
    "Paszke 2019": (
        "inproceedings",
        {
            "author": "Paszke, Adam and others",
            "title": "{PyTorch}: An Imperative Style, High-Performance Deep Learning Library",
            "booktitle": NEURIPS,
            "volume": "32",
            "pages": "8024--8035",
        },
    ),
    "Collins 2024": (
        "article",
        {
            "author": "Collins, Gary S. and others",
            "title": "{TRIPOD+AI} Statement: Updated Guidance for Reporting Clinical Prediction Models That Use "
            "Regression or Machine Learning Methods",
            "journal": "BMJ",
            "volume": "385",
            "pages": "e078378",
            "doi": "10.1136/bmj-2023-078378",
        },
    ),
}


def key(name: str) -> str:
    """Return the BibTeX key of a reference: ``Kan2022b`` of ``Kan 2022b``."""
    return name.replace(" ", "")


def bibtex(names: Iterable[str]) -> str:
    """Return the entries of these references, each once, in the order of their keys."""
    entries = []
    for name in sorted(set(names)):
        kind, fields = REFERENCES[name]
        lines = [f"  {field} = {{{value}}}," for field, value in {**fields, "year": name.split()[1][:4]}.items()]
        entries.append("\n".join([f"@{kind}{{{key(name)},", *lines, "}"]))
    return "\n\n".join(entries) + "\n"
