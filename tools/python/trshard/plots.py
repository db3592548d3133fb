# SPDX-License-Identifier: BSD-3-Clause
"""The pictures of plot_run.py and plot_plan.py, for notebooks and programs.

    trshard.plots.run(trshard.run("-options_file run.opts"))        # the last line of a cell shows the picture
    trshard.plots.run(["one.h5", "two.h5"], labels=["sgd", "adam"]).save("compare.png")
    trshard.plots.plan(ebc.plan)
"""
import io
import json
import os
import tempfile
from typing import Any, Dict, Mapping, Optional, Sequence

from . import _use_tools
from .results import Result


def _modules() -> Any:
    """The tools' modules for pictures."""
    import matplotlib.pyplot  # first, so that the program's backend stays

    _use_tools()
    import trscurves
    import trsfigures
    import trsread

    return trscurves, trsfigures, trsread


class Picture:
    """A picture that a notebook shows. `figure` is matplotlib's."""

    def __init__(self, figure: Any) -> None:
        self.figure = figure
        import matplotlib.pyplot

        matplotlib.pyplot.close(figure)  # otherwise a notebook shows it twice

    def _repr_png_(self) -> bytes:
        content = io.BytesIO()
        self.figure.savefig(content, format="png", dpi=80)
        return content.getvalue()

    def save(self, path: Any) -> None:
        """Write a .png, .svg or .pdf file."""
        self.figure.savefig(os.fspath(path), dpi=110)

    def __repr__(self) -> str:
        return f"Picture({', '.join(axes.get_title(loc='left') for axes in self.figure.axes if axes.get_title(loc='left'))})"


def _read(trsread: Any, of: Any, folder: str) -> Any:
    if isinstance(of, Result):
        if not of.output and not len(of):
            raise ValueError("the run has no results to draw: it has no step, evaluation or prediction")
        of = of.output or of.save(os.path.join(folder, "run.h5"))
    return trsread.read_run(os.fspath(of))


def run(runs: Any, labels: Optional[Sequence[str]] = None, window: Optional[int] = None, panels: Optional[Sequence[str]] = None) -> Picture:
    """Loss, metrics, learning rates, speed and memory of a run or several: results of trshard.run(), or files of -output.

    labels: a name for each run; window: steps of the smoothed loss; panels: titles of the panels to draw, such as "AUC" (default: all)
    """
    trscurves, _, trsread = _modules()
    runs = [runs] if isinstance(runs, (str, os.PathLike, Result)) else list(runs)
    names = [str(getattr(of, "output", of) or f"run {i + 1}") for i, of in enumerate(runs)]
    names = list(labels or []) + [os.path.splitext(os.path.basename(name))[0] for name in names[len(labels or []):]]
    with tempfile.TemporaryDirectory(prefix="trshard_plots_") as folder:
        try:
            read = [_read(trsread, of, folder) for of in runs]
        except trsread.Unreadable as problem:
            raise ValueError(str(problem)) from None
    styles = trscurves.styles_of(names)
    drawn = trscurves.curve_panels(read, styles, window) + trscurves.cost_panels(read, styles)
    if not drawn:
        raise ValueError(f"{names[0]} has no step, evaluation or prediction to draw")
    figure = trscurves.compose(drawn)
    if panels is not None:
        titles = [axes.get_title(loc="left") for axes in figure.axes]
        unknown = sorted(set(panels) - set(titles))
        if unknown:
            raise ValueError(f"there is no panel {unknown[0]!r}, expected some of {', '.join(titles)}")
        figure = trscurves.compose([panel for panel, title in zip(drawn, titles) if title in panels])
    return Picture(figure)


def plan(plan: Any, name: str = "plan", order: str = "rank", top: int = 10) -> Picture:
    """Memory and time of each rank: a collection's plan, a Result, or a file of -plan_output. order: rank, memory or time."""
    _, trsfigures, trsread = _modules()
    found: Optional[Mapping[str, Any]] = plan.plan if isinstance(plan, Result) else plan if isinstance(plan, Dict) else None
    with tempfile.TemporaryDirectory(prefix="trshard_plots_") as folder:
        path = os.path.join(folder, "plan.json") if found is not None else os.fspath(plan)
        if found is not None:
            with open(path, "w", encoding="utf-8") as file:
                json.dump(found, file)
        try:
            return Picture(trsfigures.figure_of_plan(trsread.read_plan(path), name, order, top))
        except trsread.Unreadable as problem:
            raise ValueError(str(problem)) from None
