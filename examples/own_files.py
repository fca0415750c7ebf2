"""A data set on disk, ten times larger than the memory that the run may take: `python examples/own_files.py`.

Any data set with `__len__` and `__getitem__` will do. It is read batch by batch, and nothing of it is kept.
"""

import tempfile
from dataclasses import dataclass
from resource import RUSAGE_SELF, getrusage

import numpy as np
from torch import nn

from subbit import fine_tune

SCANS, SIDE, LIMIT_MB = 16_000, 128, 100  # A scan takes 66 kB, all of them 1049 MB.


@dataclass
class Scans:
    file: str
    numbers: range

    def __len__(self) -> int:
        return len(self.numbers)

    def __getitem__(self, place: int) -> tuple[np.ndarray, int]:
        number, size = self.numbers[place], SIDE * SIDE
        return np.fromfile(self.file, np.float32, size, offset=4 * size * number).reshape(1, SIDE, SIDE), number % 2


if __name__ == "__main__":
    with tempfile.NamedTemporaryFile() as file:
        stored = np.memmap(file.name, np.float32, "w+", shape=(SCANS, SIDE * SIDE))
        stored[1::2, :SIDE] = 1  # Those of class 1 have a bright first row.
        *clients, test = (Scans(file.name, range(start, start + 4000)) for start in range(0, SCANS, 4000))
        module, before = nn.Sequential(nn.AvgPool2d(8), nn.Flatten(), nn.Linear(256, 2)), getrusage(RUSAGE_SELF)
        result = fine_tune(module, clients, test, method="fedavg", rounds=1, batch_size=32, evaluation_batch=32)
    taken = (getrusage(RUSAGE_SELF).ru_maxrss - before.ru_maxrss) / 1000
    print(f"accuracy {result.accuracy_before:.2f} -> {result.accuracy:.2f} with {taken:.0f} MB of memory")
    assert min(result.accuracy - 0.9, LIMIT_MB - taken) > 0
