"""API of a model's generated code: classes, methods and fields, by their names in each language.

Everything that a template writes as code comes from here, as an identifier that :mod:`adt.integrate.names`
has made; what a user wrote (names in mod.json, file names) reaches a template only as text, and a template
writes it through a filter of :mod:`adt.integrate.templates`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from adt.bundle.bundle import TargetBundle
from adt.errors import PackageError
from adt.host.document import HIDDEN, form, in_document
from adt.integrate.android_versions import NEWEST, AndroidVersions
from adt.package.files import PARAMS
from adt.package.package import ModelPackage


@dataclass(frozen=True)
class ElementType:
    """Names of an element type of arrays."""

    dtype: str
    """As mod.json spells it: ``float32``."""
    size: int
    """Bytes of one element."""
    cpp: str
    """``float``, ``adt::Float16``, ``std::int64_t``, ``bool``, …"""
    java_class: str
    """Class of the Java runtime for arrays: ``FloatTensor``."""
    java: str
    """Element type of the Java arrays that it copies from and to."""


@dataclass(frozen=True)
class ImageInput:
    """Conversion of a picture to this input."""

    layout: str
    """``NCHW`` or ``NHWC``."""
    height: int
    width: int
    channels: int
    """1 (grey) or 3 (red, green, blue)."""
    mean: tuple[float, ...] | None
    """Subtracted from each channel's 0 … 255 (or 0 … 1, see scale); None: the user has not said."""
    std: tuple[float, ...] | None
    """Divisor of each channel, applied last; None: the user has not said."""
    scale: float
    """Factor of the bytes, applied first: 1, or 1/255."""
    color: str = "RGB"
    """Order of the channels: ``RGB``, ``BGR`` or ``GRAY``."""

    @property
    def normalisation(self) -> str:
        """``each level 0 to 255, times 0.00392157, less 0.485, 0.456 and 0.406, divided by 0.25``"""
        steps = [f"times {self.scale:g}"] if self.scale != 1 else []
        steps += [f"less {_by_channel(self.mean)}"] if self.mean else []
        steps += [f"divided by {_by_channel(self.std)}"] if self.std else []
        return ", ".join(["each level 0 to 255", *steps]) + ("" if steps else " as it is")


def _by_channel(numbers: tuple[float, ...]) -> str:
    """Write one number for each channel, or one for all."""
    *first, last = [f"{number:g}" for number in (numbers if len(set(numbers)) > 1 else numbers[:1])]
    return " and ".join([*([", ".join(first)] if first else []), last])


@dataclass(frozen=True)
class TensorApi:
    """One input or output, whose identifiers differ, in every form, from those of all others of the entry."""

    name: str
    """As mod.json has it: any text."""
    index: int
    """Its number, from 0, in adt_runner's calls."""
    cpp: str
    """Identifier in C++: ``input_ids``."""
    java: str
    """Identifier in Java and Kotlin: ``inputIds``."""
    constant: str
    """Identifier of constants in Java and Kotlin: ``INPUT_IDS``."""
    pascal: str
    """``InputIds``, for names that are put together: ``kInputIdsShape``, ``setInputIds``."""
    element: ElementType
    shape: tuple[int | str, ...]
    """Extents; a string is a symbolic dimension as mod.json calls it."""
    elements: int | None
    """Number of elements; None with a symbolic dimension."""
    image: ImageInput | None
    """None: an output, or nothing that looks like a picture."""

    @property
    def kind(self) -> str:
        """``float32[1, 3, 224, 224]``, for people; a symbolic dimension is any text."""
        return f"{self.element.dtype}[{', '.join(map(str, self.shape))}]"

    @property
    def static(self) -> bool:
        """Return True if all extents are known."""
        return self.elements is not None

    @property
    def bytes(self) -> int | None:
        """Size of the array; None with a symbolic dimension."""
        return None if self.elements is None else self.elements * self.element.size


@dataclass(frozen=True)
class EntryApi:
    name: str
    """As mod.json has it."""
    index: int
    cpp: str
    """Method in C++: ``run`` for main, else its name in snake case."""
    java: str
    """Method in Java and Kotlin: ``run`` for main."""
    pascal: str
    """Prefix of its types: empty for main (``Inputs``, ``Outputs``), ``Encode`` (``EncodeInputs``)."""
    inputs: tuple[TensorApi, ...]
    outputs: tuple[TensorApi, ...]


@dataclass(frozen=True)
class ModelApi:
    name: str
    cls: str
    """The class in each language: ``Detector``."""
    stem: str
    """Snake case, for file names, CMake targets and assets/adt/<stem>/: ``detector``."""
    library: str
    """Name of mod.so in an application, without ``lib`` and ``.so``: ``detector_model``."""
    source: str
    """File name of the trained model: any text."""
    precision: str
    entries: tuple[EntryApi, ...]

    @property
    def inputs(self) -> list[TensorApi]:
        """Inputs of all entries."""
        return [tensor for entry in self.entries for tensor in entry.inputs]

    @property
    def takes_pictures(self) -> bool:
        return any(tensor.image for tensor in self.inputs)


@dataclass(frozen=True)
class Variant:
    package: ModelPackage
    bundle: TargetBundle

    @property
    def abi(self) -> str:
        """``arm64-v8a``, ``x86_64``, ``aarch64``, … as bundle.json calls it."""
        return self.bundle.manifest.abi


@dataclass(frozen=True)
class ReferenceOutput:
    data: bytes
    """The elements as float64, least significant byte first: one type for what reads them."""
    limit: float
    """An element is right when it is off by no more …"""
    others: int
    """Number of elements that may be off by more."""


@dataclass(frozen=True)
class ReferenceRun:
    """Inputs of the entry ``main``, and what is right on them."""

    filled: str
    """Name of the made-up inputs: ``seed 0``."""
    by: str
    """Name of the reference, as ``adt verify --reference`` calls it: ``onnxruntime``."""
    inputs: tuple[bytes, ...]
    """In the entry's order."""
    outputs: tuple[ReferenceOutput, ...]


@dataclass(frozen=True)
class ProjectModel:
    """A model and its packages for one device: one per bundle, all with the same entries."""

    api: ModelApi
    device: str
    """``cpu``, ``opencl`` or ``cuda``: what they were compiled for."""
    variants: tuple[Variant, ...]
    alternatives: tuple[ProjectModel, ...] = ()
    """Its packages for other devices, in the order in which an application tries them behind these; the
    class is the same, the file names are not. They have none of their own."""
    reference: ReferenceRun | None = None
    """For its test on a device; None: there is none."""

    @property
    def every_device(self) -> tuple[ProjectModel, ...]:
        return (self, *self.alternatives)

    @property
    def shares_params(self) -> bool:
        """Return True if several ABIs have the same mod.params, which an application then carries once."""
        digests = [variant.package.manifest.files[PARAMS].sha256 for variant in self.variants]
        return len(digests) > 1 and len(set(digests)) == 1


def _summaries(models: Sequence[ProjectModel]) -> list[dict[str, object]]:
    return [
        {"name": model.api.name, "class": model.api.cls, "stem": model.api.stem}
        | {"abis": [variant.abi for variant in model.variants]}
        for model in models
    ]


@dataclass(frozen=True)
class Project:
    """Models, bundles and names from which code is generated."""

    name: str
    """Name of the project, its library and its C++ namespace: the last part of the Java package,
    ``vision``."""
    java_package: str = field(metadata=form("package"))
    """``com.example.vision``; its last part is the C++ namespace."""
    models: tuple[ProjectModel, ...] = field(metadata=form(convert=_summaries))
    bundles: tuple[TargetBundle, ...] = field(metadata=HIDDEN)
    """One per ABI."""
    labels: tuple[str, ...] = field(default=(), metadata=HIDDEN)
    """Labels of a classifier's scores, for the sample screen; any text."""
    android: AndroidVersions = field(default=NEWEST, metadata=HIDDEN)
    """Versions that a Gradle project of it pins."""

    @property
    def packaged(self) -> tuple[ProjectModel, ...]:
        """The models for every device, as files have them."""
        return tuple(part for model in self.models for part in model.every_device)

    @property
    @in_document()
    def abis(self) -> list[str]:
        """ABIs that there are models and libraries for."""
        return [bundle.manifest.abi for bundle in self.bundles]

    @property
    def bundle_digests(self) -> dict[str, str]:
        """Return the sha256 of each bundle's bundle.json, by ABI."""
        return {bundle.manifest.abi: bundle.digest for bundle in self.bundles}

    @property
    def java_path(self) -> str:
        """``com/example/vision``."""
        return self.java_package.replace(".", "/")


ELEMENTS = {
    element.dtype: element
    for element in (
        ElementType("float16", 2, "adt::Float16", "HalfTensor", "float"),
        ElementType("float32", 4, "float", "FloatTensor", "float"),
        ElementType("float64", 8, "double", "DoubleTensor", "double"),
        ElementType("int8", 1, "std::int8_t", "ByteTensor", "byte"),
        ElementType("int16", 2, "std::int16_t", "ShortTensor", "short"),
        ElementType("int32", 4, "std::int32_t", "IntTensor", "int"),
        ElementType("int64", 8, "std::int64_t", "LongTensor", "long"),
        ElementType("uint8", 1, "std::uint8_t", "ByteTensor", "byte"),
        ElementType("uint16", 2, "std::uint16_t", "ShortTensor", "short"),
        ElementType("uint32", 4, "std::uint32_t", "IntTensor", "int"),
        ElementType("uint64", 8, "std::uint64_t", "LongTensor", "long"),
        ElementType("bool", 1, "bool", "BooleanTensor", "boolean"),
    )
}
"""By dtype: all that adt_runner takes (adt_runner.h)."""


def element_type(dtype: str, of: str) -> ElementType:
    """Return the element type called *dtype* in the mod.json of *of*; PackageError if no runner takes it."""
    if dtype not in ELEMENTS:
        raise PackageError(
            f"{of} has elements of {dtype}, which adt_runner does not take",
            remedy=f"Export the model with one of: {', '.join(ELEMENTS)}.",
        )
    return ELEMENTS[dtype]
