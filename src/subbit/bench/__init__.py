"""Benchmarks that come with the library: `subbit bench codecs`."""

from subbit.bench.codecs import DEFAULT_SIZES as DEFAULT_SIZES
from subbit.bench.codecs import benchmark_table as benchmark_table
from subbit.bench.codecs import run_codec_benchmark as run_codec_benchmark
from subbit.bench.codecs import targets_table as targets_table
