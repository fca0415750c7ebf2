"""What `subbit.fine_tune` returns."""

from __future__ import annotations

from pathlib import Path

from subbit.export.module_folder import Saved, save_module
from subbit.runtime.run_result import Result


class TunedResult(Result):
    """The result of `subbit.fine_tune`, which can be saved."""

    def save(self, folder: str | Path, *, client: int | None = None, merge: bool = True) -> Saved:
        """Write the trained network to a new folder, as `subbit export --module` does.

        A module of transformers becomes a folder for `from_pretrained`, any other `model.safetensors` with its state
        dict; `subbit.load_module(folder, module)` reads both. LoRA is merged into the weights, unless `merge=False`.
        With a method that gives every client a network of its own, `client` says whose.
        """
        if client is not None:
            return save_module(self.networks.network(client), folder, merge=merge)
        if self.trained.personal is not None:
            self.trained.personal.refuse_common(self.numbers.method)
        return save_module(self.trained.network, folder, merge=merge)
