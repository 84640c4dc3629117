#!/usr/bin/env python3
"""Stands in for ptxas where a compiler asks for machine code: copies the PTX that it is given, which the emulator loads.

Triton takes it through TRITON_PTXAS_PATH and, for sm_90 and above, TRITON_PTXAS_BLACKWELL_PATH.
"""

import pathlib
import shutil
import sys

arguments = sys.argv[1:]
if "--version" in arguments:
    print("Cuda compilation tools, release 13.0, V13.0.0")
    sys.exit(0)
target = arguments[arguments.index("-o") + 1]
sources = [argument for argument in arguments if argument.endswith(".ptx") and argument != target]
if len(sources) != 1 or not pathlib.Path(sources[0]).read_text().lstrip().startswith(("//", ".version")):
    sys.exit(f"one file of PTX is copied, not {sources}")
shutil.copyfile(sources[0], target)
