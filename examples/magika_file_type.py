"""Helper of ./demo.sh: converts a file to the input of a file-type model, and the output to an answer.

magika_file_type.py model                    print the path of magika's ONNX model
magika_file_type.py features FILE IN.npz     the model's input for FILE
magika_file_type.py answer FILE OUT.npz      what the model's output says about FILE
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import magika
import numpy as np

MODEL = Path(magika.__file__).parent / "models/standard_v3_3"


def features(file: Path) -> np.ndarray:
    """Read the first and last 1024 bytes of *file* without outer space, padded with 256: int32[1, 2048]."""
    config = json.loads((MODEL / "config.min.json").read_text())
    content = file.read_bytes()
    begin = list(content[: config["block_size"]].lstrip()[: config["beg_size"]])
    end = list(content[-config["block_size"] :].rstrip()[-config["end_size"] :])
    pad = config["padding_token"]
    begin += [pad] * (config["beg_size"] - len(begin))
    end = [pad] * (config["end_size"] - len(end)) + end
    return np.array([begin + end], dtype=np.int32)


def answer(file: Path, scores: np.ndarray) -> str:
    """Return the best three labels, and what magika's own runtime on this machine says."""
    labels = json.loads((MODEL / "config.min.json").read_text())["target_labels_space"]
    best = np.argsort(scores[0])[::-1][:3]
    lines = [f"{file.name} is:"]
    lines += [f"  {labels[index]:<12} {scores[0][index]:7.2%}" for index in best]
    own = magika.Magika().identify_path(file)
    lines.append(f"magika's own runtime on this machine says: {own.output.label} ({own.score:.2%})")
    return "\n".join(lines)


def main(arguments: list[str]) -> None:
    """Run one of the three commands of the module's text."""
    match arguments:
        case ["model"]:
            sys.stdout.write(f"{MODEL / 'model.onnx'}\n")
        case ["features", file, destination]:
            np.savez(destination, bytes=features(Path(file)))
        case ["answer", file, outputs]:
            with np.load(outputs) as arrays:
                sys.stdout.write(answer(Path(file), arrays["target_label"]) + "\n")
        case _:
            sys.exit(__doc__)


if __name__ == "__main__":
    main(sys.argv[1:])
