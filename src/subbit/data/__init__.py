"""Data: load examples, partition them over clients, and make batches."""

from subbit.data.batches import ClientDataset, ClientDatasets, Preprocess, as_examples, batches
from subbit.data.dataset import Dataset
from subbit.data.examples import Data, Examples
from subbit.data.load_dataset import load_dataset
from subbit.data.partition import PARTITIONS, partition
from subbit.data.split_summary import SplitSummary, summarise_split
from subbit.data.stored import StoredData
from subbit.sets.places import DatasetInfo, dataset_names

__all__ = [
    "PARTITIONS",
    "ClientDataset",
    "ClientDatasets",
    "Data",
    "Dataset",
    "DatasetInfo",
    "Examples",
    "Preprocess",
    "SplitSummary",
    "StoredData",
    "as_examples",
    "batches",
    "dataset_names",
    "load_dataset",
    "partition",
    "summarise_split",
]
