"""Catch the module as it is after the last Relax pass, on its way through ``tvm.compile``."""

from __future__ import annotations

from typing import Any


class Capture:
    """Holds the lowered module once a pipeline from :meth:`after` has run."""

    def __init__(self) -> None:
        self.lowered: Any = None
        """``tvm.IRModule``; None before the compile."""

    def after(self, pipeline: Any) -> Any:
        """*pipeline*, which leaves its result here, as ``tvm.compile`` takes it.

        Args:
            pipeline: a module pass, or the name of one of TVM's pipelines.
        """
        import tvm

        inner = tvm.relax.get_pipeline(pipeline) if isinstance(pipeline, str) else pipeline

        @tvm.transform.module_pass(opt_level=0, name="adt.Capture")  # type: ignore[untyped-decorator]
        def capture(module: Any, _context: Any) -> Any:
            self.lowered = inner(module)
            return self.lowered

        return capture
