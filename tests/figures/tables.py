"""Tables of cosines, and what a drawn figure says, for the tests of this folder."""

import pandas as pd

from workbench.directions.similarity import COSINES

BANDS = {"isotropic, 95% of largest of 4": 0.1, "split-half, 95% of largest of 4": 0.3}


def rows(cosines, layers=(3,), first=("p", "q"), second=("a", "b", "c", "d"), seeds=3):
    made = []
    for layer in layers:
        for null, band in BANDS.items():
            for i, name in enumerate(first):
                for j, other in enumerate(second):
                    value = cosines[i][j]
                    made.append(
                        (
                            name, other, layer, value, value - 0.05, value + 0.05, seeds, "seed",
                            "95% t over seeds", null, band, 500, "draw", 0.5, abs(value) > band,
                        )
                    )  # fmt: skip
    return pd.DataFrame(made, columns=list(COSINES))


def notes(figure):
    from bokeh.models import Title

    found = [part.text.replace("\n", " ") for part in figure.above if isinstance(part, Title)]
    return found[::-1]


def labels(figure):
    return [item.label.value for item in figure.legend[0].items]


def cells(figure):
    return next(r.data_source.data for r in figure.renderers if "hatch" in r.data_source.data)
