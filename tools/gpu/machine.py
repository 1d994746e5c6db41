"""The machine's GPU and its libraries."""

import ctypes
import glob
import os
import shutil
import site
import subprocess
import sysconfig

# The libraries of CUDA 13. The run-time library is linked into the programs.
_LIBRARIES = ("libcublas.so.13", "libcublasLt.so.13", "libcudnn.so.9")


class MachineError(Exception):
    """The machine cannot run the check."""


def require_gpu():
    """Raises MachineError if the driver finds no GPU."""
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError:
        raise MachineError("this machine has no NVIDIA driver (libcuda.so.1)") from None
    code = driver.cuInit(0)
    count = ctypes.c_int(0)
    if code == 0:
        code = driver.cuDeviceGetCount(ctypes.byref(count))
    if code != 0 or count.value == 0:
        raise MachineError(f"the NVIDIA driver finds no GPU (CUDA error {code})")


def _tool(name, *folders):
    """Returns the path of a program of the driver or of CUDA, or None."""
    return shutil.which(name, path=os.pathsep.join([os.environ.get("PATH", ""), *folders]))


def nvidia_smi():
    return _tool("nvidia-smi", "/usr/local/nvidia/bin")


def compute_sanitizer():
    return _tool("compute-sanitizer", "/usr/local/cuda/bin", "/usr/local/cuda/compute-sanitizer")


def describe():
    """Describes the machine, as every report of measurements must."""
    found = {"processors": str(os.cpu_count())}
    with open("/proc/cpuinfo", encoding="utf-8") as file:
        for line in file:
            if line.startswith("model name"):
                found["processor"] = line.split(":", 1)[1].strip()
                break
    smi = nvidia_smi()
    if smi is None:
        return found
    fields = ("name", "driver_version", "memory.total", "clocks.max.sm", "power.limit")
    output = subprocess.run(
        [smi, f"--query-gpu={','.join(fields)}", "--format=csv,noheader"],
        stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, timeout=20, check=False,
    ).stdout.splitlines()
    if output:
        found.update(zip(("gpu", *fields[1:]), output[0].split(", ")))
    return found


def library_folders():
    """Returns the folders of cuBLAS and cuDNN, from PyTorch's packages or the installed CUDA.
    Raises MachineError if a library is not found."""
    packages = dict.fromkeys([sysconfig.get_paths()["purelib"], *site.getsitepackages()])
    candidates = [
        folder for place in packages for folder in sorted(glob.glob(f"{place}/nvidia/*/lib"))
    ]
    candidates += ["/usr/local/cuda/lib64", "/usr/lib/x86_64-linux-gnu"]
    folders = []
    for library in _LIBRARIES:
        found = [folder for folder in candidates if os.path.exists(os.path.join(folder, library))]
        if not found:
            raise MachineError(f"{library} was not found, looked in: {', '.join(candidates)}")
        folders.append(found[0])
    # The first ones are PyTorch's, whose libraries load each other.
    if folders[0] in candidates[:-2]:
        folders += candidates[:-2]
    return list(dict.fromkeys(folders))
