"""Reads an adapter's folder with NumPy alone, and prints what is in it: python3 read_adapter.py FOLDER

A safetensors file is the length of its header as u64, the header as JSON, and the tensors' bytes
(https://github.com/huggingface/safetensors#format).
"""

import json
import pathlib
import sys

try:
    import numpy as np
except ImportError:
    print("no numpy")
    sys.exit()

TYPES = {"F32": "<f4"}


def main():
    folder = pathlib.Path(sys.argv[1])
    config = json.loads((folder / "adapter_config.json").read_text())
    targets = ", ".join(config["target_modules"])
    print(f"{config['peft_type']} r {config['r']} alpha {config['lora_alpha']} of {targets}")
    file = folder / "adapter_model.safetensors"
    length = int(np.fromfile(file, "<u8", 1)[0])
    header = json.loads(file.read_bytes()[8:8 + length])
    assert header.pop("__metadata__") == {"format": "pt"}
    for name, tensor in header.items():
        first, last = tensor["data_offsets"]
        dtype = np.dtype(TYPES[tensor["dtype"]])
        numbers = np.fromfile(file, dtype, (last - first) // dtype.itemsize, offset=8 + length + first)
        numbers = numbers.reshape(tensor["shape"])
        bits = numbers.reshape(-1).view(np.uint32).astype(np.uint64)
        total = int((bits * np.arange(1, bits.size + 1, dtype=np.uint64)).sum())
        print(name, numbers.dtype, list(numbers.shape), total)


main()
