"""Matrix and ranking of cosines: what chance explains is marked, and nothing is left uncounted."""

import numpy as np
import pytest
from tables import cells, labels, notes, rows

from workbench.figures import DARK, LIGHT, cosine_matrix, cosine_ranking
from workbench.figures.cosine import widest_band
from workbench.figures.heat import diverging
from workbench.figures.theme import contrast

TABLE = rows([[0.05, 0.2, -0.4, 0.9], [0.0, 0.31, 0.29, -0.1]])


def test_a_cell_is_hatched_where_the_widest_band_explains_it():
    data = cells(cosine_matrix(TABLE))
    found = dict(zip(zip(data["y"], data["x"], strict=True), data["hatch"], strict=True))
    assert [found["p", name] for name in "abcd"] == ["/", "/", " ", " "]
    assert [found["q", name] for name in "abcd"] == ["/", " ", "/", "/"]


def test_the_matrix_counts_what_is_beyond_and_names_every_band_interval_and_n():
    assert notes(cosine_matrix(TABLE)) == [
        "3 of 8 cosines beyond every band",
        "interval: 95% t over seeds, n = 3 seeds",
        "band 0.100: isotropic, 95% of largest of 4, from 500 draws",
        "band 0.300: split-half, 95% of largest of 4, from 500 draws",
    ]


def test_a_table_without_seeds_or_items_says_that_it_has_no_interval():
    bare = rows([[0.1] * 4, [0.2] * 4], seeds=1)
    assert "no interval: one direction a side, without seeds or items" in notes(cosine_matrix(bare))


def test_a_direction_with_itself_counts_for_nothing_and_sets_no_color():
    table = rows([[1.0, 0.4], [0.4, 1.0]], first=("a", "b"), second=("a", "b"))
    figure = cosine_matrix(table)
    assert notes(figure)[0] == "2 of 2 cosines beyond every band"
    assert labels(figure) == ["+0.40", "-0.40", "within a band"]
    assert not widest_band(rows([[0.4]], first=("a",), second=("a",)))["own"].any()


def test_a_large_bank_is_cut_to_its_largest_and_the_rest_counted():
    names = tuple(f"role{i:03d}" for i in range(40))
    values = np.linspace(0.01, 0.4, 40)
    values[::2] *= -1
    figure = cosine_matrix(rows([values], first=("p",), second=names), most=5)
    assert sorted(figure.x_range.factors) == list(names[-5:])
    assert notes(figure)[0].endswith("; the 5 largest of 40 shown")
    ranking = cosine_ranking(rows([values], first=("p",), second=names), most=5)
    assert len(ranking.y_range.factors) == 5
    assert notes(ranking)[0].endswith("; the 5 largest of 40 shown")


def test_a_ranking_is_in_order_of_the_cosine_with_all_bands_on_both_sides():
    from bokeh.models import Span

    figure = cosine_ranking(TABLE[TABLE["first"] == "p"])
    assert figure.y_range.factors == ["c", "a", "b", "d"]
    spans = sorted(part.location for part in figure.center if isinstance(part, Span))
    assert spans == pytest.approx([-0.3, -0.1, 0, 0.1, 0.3])
    assert labels(figure) == [
        "beyond every band", "within a band", "band: isotropic", "band: split-half",
    ]  # fmt: skip
    drawn = [r.data_source.data["second"] for r in figure.renderers if hasattr(r.glyph, "marker")]
    assert [sorted(names) for names in drawn] == [["c", "d"], ["a", "b"]]


def test_several_layers_or_directions_at_once_are_refused():
    two = rows([[0.1] * 4, [0.2] * 4], layers=(3, 5))
    with pytest.raises(ValueError, match=r"layers \[3, 5\]; choose one"):
        cosine_matrix(two)
    assert cosine_matrix(two, layer=5).title.text == "Cosines at layer 5"
    with pytest.raises(ValueError, match="no layer 4"):
        cosine_matrix(two, layer=4)
    with pytest.raises(ValueError, match="one direction is ranked"):
        cosine_ranking(TABLE)


@pytest.mark.parametrize("look", [LIGHT, DARK], ids=["light", "dark"])
def test_the_color_grows_from_the_page_and_its_sides_can_be_told_apart(look):
    assert diverging(look, 0) == look.surface
    strength = [contrast(diverging(look, share), look.surface) for share in (0.2, 0.5, 1.0)]
    assert strength == sorted(strength)
    assert diverging(look, 1) == look.palette[1]
    assert diverging(look, -1) == look.palette[0]


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("draw", [cosine_matrix, lambda t, **k: cosine_ranking(t[:4], **k)])
def test_a_figure_speaks_and_wears_its_page(theme, draw):
    figure = draw(TABLE, theme=theme)
    assert figure.html_attributes["role"] == "img"
    assert len(figure.html_attributes["aria-label"]) > 20
    assert figure.background_fill_color == (LIGHT if theme == "light" else DARK).surface


def test_an_empty_table_is_refused():
    with pytest.raises(ValueError, match="layers"):
        cosine_matrix(TABLE.iloc[:0])
