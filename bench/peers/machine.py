"""What a reader must know of the machine to judge figures from it."""

import os
import platform
import re
import subprocess
from pathlib import Path
from typing import Any

INSTRUCTION_SETS = ("avx2", "fma", "avx_vnni", "avx512f", "avx512_vnni", "avx512_bf16", "amx_bf16", "asimd", "sve",
                    "bf16")


def first_line(*command: str) -> str:
    try:
        out = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
    return out.splitlines()[0] if out else "unknown"


def cpu_field(text: str, *names: str) -> str:
    for name in names:
        found = re.search(rf"^{name}\s*:\s*(.*)$", text, re.MULTILINE)
        if found:
            return found.group(1)
    return ""


def memory_gib() -> float:
    found = re.search(r"^MemTotal:\s*(\d+) kB", Path("/proc/meminfo").read_text(), re.MULTILINE)
    return round(int(found.group(1)) / 2**20, 1) if found else 0.0


def describe() -> dict[str, Any]:
    cpu = Path("/proc/cpuinfo").read_text()
    flags = cpu_field(cpu, "flags", "Features").split()
    return {
        "cpu": cpu_field(cpu, "model name", "CPU part") or platform.machine(),
        "cores": len(os.sched_getaffinity(0)),
        "virtual": "hypervisor" in flags,
        "instruction_sets": [name for name in INSTRUCTION_SETS if name in flags],
        "memory_gib": memory_gib(),
        "kernel": platform.release(),
        "compiler": first_line(os.environ.get("CC", "cc"), "--version"),
        "load": os.getloadavg()[0],
    }
