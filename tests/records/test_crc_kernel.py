"""CRC-32C inside kernels, by instruction and by tables, is that of everyone else."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
from crc32c import crc32c as crc32c_of_package
from hypothesis import given, settings
from hypothesis import strategies as st

from tidelog.records.crc_kernel import INSTRUCTION, crc32c


@given(st.binary(max_size=200), st.integers(0, 20), st.integers(0, 20))
@settings(deadline=None)
def test_the_crc_of_any_range_is_that_of_the_package(data: bytes, start: int, less: int) -> None:
    start = min(start, len(data))
    end = max(len(data) - less, start)
    expected = crc32c_of_package(data[start:end])
    assert crc32c(np.frombuffer(data, np.uint8), start, end) == expected
    assert crc32c(np.frombuffer(bytearray(data), np.uint8), start, end) == expected


def test_the_crc_of_a_large_buffer_is_that_of_the_package() -> None:
    data = np.random.default_rng(1).integers(0, 256, 1_000_003, np.uint8)
    for end in (len(data), 3072, 3073, 3071, 6145, 20_000):
        assert crc32c(data, 1, end) == crc32c_of_package(data[1:end].tobytes())


TABLES = """
import numpy as np
from crc32c import crc32c as expected
from tidelog.records.crc_kernel import INSTRUCTION, crc32c
data = np.random.default_rng(1).integers(0, 256, 9999, np.uint8)
assert INSTRUCTION is None
for start in range(20):
    for end in (*range(start, 999, 7), 3072, 3072 + start, 9216 + start, 9999):
        assert crc32c(data, start, end) == expected(data[start:end].tobytes())
print("equal")
"""


def test_tables_do_it_where_the_code_generator_may_not_use_the_instruction() -> None:
    environment = os.environ | {"NUMBA_CPU_NAME": "generic", "NUMBA_CPU_FEATURES": ""}
    command = [sys.executable, "-c", TABLES]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    assert done.stdout == "equal\n"


def test_the_instruction_is_found_on_common_machines() -> None:
    assert INSTRUCTION in (None, "llvm.x86.sse42.crc32.64.64", "llvm.aarch64.crc32cx")
    if os.uname().machine == "x86_64" and "sse4_2" in Path("/proc/cpuinfo").read_text():
        assert INSTRUCTION is not None
