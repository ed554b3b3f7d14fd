"""Stand-in for `jax.extend.ifrt_programs`: programs for plugins, available in Pathways."""

from __future__ import annotations

from typing import Any, NoReturn


class _Programs:
    def __getattr__(self, name: str) -> Any:
        if not name.startswith("make_"):
            raise AttributeError(name)

        def reject(*args: Any, **kwargs: Any) -> NoReturn:
            raise NotImplementedError(
                f"jax.extend.ifrt_programs.ifrt_programs.{name}: plugin programs are not "
                "supported. Only Pathways has them."
            )

        return reject


ifrt_programs = _Programs()
