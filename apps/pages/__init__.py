"""One module a page: a runs root in, a Panel page out; each call is one browser session."""

from workbench_apps.pages import (
    activation_map,
    dose,
    emotions,
    overview,
    persona,
    probe,
    trust,
    truth,
)

BUILDERS = {
    "/": overview.build,
    "/map": activation_map.build,
    "/truth": truth.build,
    "/dose": dose.build,
    "/probe": probe.build,
    "/persona": persona.build,
    "/emotions": emotions.build,
    "/trust": trust.build,
}
"""Address -> page."""

__all__ = ["BUILDERS"]
