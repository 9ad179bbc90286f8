"""What the app of an APK measures, and what its results are called."""

from __future__ import annotations

from adt.errors import ConfigError
from adt.integrate.bench_plan import PlannedModel
from adt.integrate.describe import EntryApi, ModelApi, Project

RESULTS = "adt-bench"
"""Directory below the app's external files."""
ERROR = "error.json"
"""Instead of all results, when the app could not begin."""


def result_file(stem: str) -> str:
    """The file of one model's result."""
    return f"{stem}.json"


def planned_models(project: Project) -> tuple[PlannedModel, ...]:
    """Each model with the entry that is measured: ``main``, else its first.

    Raises:
        ConfigError: that entry has an input whose shape is not fixed.
    """
    planned = []
    for model in project.models:
        entry = next((one for one in model.api.entries if one.name == "main"), model.api.entries[0])
        _check_shapes(model.api, entry)
        planned.append(PlannedModel(model.api.stem, f"lib{model.api.library}.so", entry.name))
    return tuple(planned)


def _check_shapes(model: ModelApi, entry: EntryApi) -> None:
    for tensor in entry.inputs:
        if not tensor.static:
            shape = ", ".join(map(str, tensor.shape))
            raise ConfigError(
                f"the input {tensor.name!r} of {model.name} has no fixed shape ([{shape}]): the app cannot "
                "make up data for it",
                remedy=f"Compile the model with --shape {tensor.name}:EXTENTS.",
            )
