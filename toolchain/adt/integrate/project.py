"""Put packages and bundles together: which models, for which ABIs, and what their classes are called."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

from adt.bundle.bundle import TargetBundle
from adt.errors import ConfigError, InputError, MismatchError, PackageError
from adt.integrate import names
from adt.integrate.android_versions import NEWEST, AndroidVersions
from adt.integrate.model_api import (
    EntryApi,
    ImageInput,
    ModelApi,
    Project,
    ProjectModel,
    TensorApi,
    Variant,
    element_type,
)
from adt.package.compatibility import check_pair
from adt.package.inputs.pictures import LAYOUTS, PictureOptions, check_channels, check_options
from adt.package.manifest import Entry, PackageManifest, TensorSpec, kind
from adt.package.package import ModelPackage


def project(
    packages: Sequence[ModelPackage],
    bundles: Sequence[TargetBundle],
    *,
    java_package: str,
    classes: Mapping[str, str] | None = None,
    images: Mapping[str, PictureOptions] | None = None,
    labels: Sequence[str] = (),
    android: AndroidVersions = NEWEST,
) -> Project:
    """Gather what is generated from packages and bundles.

    Args:
        packages: those of one name are one model for several ABIs.
        bundles: one for each ABI, with a package of each model for it.
        classes: class of a model by the package's name, or by an empty one when there is one model; else it
            is made of that name.
        images: how pictures are normalised, by the package's name, or by an empty one for all models
            without their own.
        labels: of a classifier's scores, for the sample screen.
        android: what a Gradle project pins.

    Raises:
        ConfigError: an option names a package that was not given.
    """
    names.check_package(java_package)
    chosen = dict(classes or {})
    groups = _groups(packages)
    _check_bundles(bundles)
    if "" in chosen and len(groups) == 1:
        chosen = {next(iter(groups)): chosen.pop("")} | chosen
    pictures = dict(images or {})
    for options in pictures.values():
        check_options(options)
    if unknown := sorted((set(chosen) | set(pictures) - {""}) - set(groups)):
        raise ConfigError(
            f"an option names the package {unknown[0]!r}, which is not among those given",
            remedy=f"They are called: {', '.join(groups)}.",
        )
    name = names.project_name(java_package)
    free_names = names.class_names(name)
    # those that users chose, before any other is given
    given = {model: (text, names.check_class(text, free_names)) for model, text in chosen.items()}
    models: list[ProjectModel] = []
    for model, group in groups.items():
        cls, free = given.get(model) or ("", free_names.give(model, "model", number=len(models) + 1))
        options = _for_model(pictures, model)
        api = _model_api(group[0].manifest, cls or free.pascal, free.snake, options)
        by_device: dict[str, list[ModelPackage]] = {}  # in the packages' order
        for package in group:
            by_device.setdefault(package.manifest.target.device, []).append(package)
        first, *others = (
            ProjectModel(api, device, _variants(model, theirs, bundles))
            for device, theirs in by_device.items()
        )
        alternatives = []
        for other in others:
            stem = free_names.give(f"{api.stem}_{other.device}", "model", number=len(models) + 1).snake
            alternatives.append(replace(other, api=replace(api, stem=stem, library=_library(stem))))
        models.append(replace(first, alternatives=tuple(alternatives)))
    _check_pictures(pictures, models)
    return Project(name, java_package, _with_libraries(models), tuple(bundles), tuple(labels), android)


def server_project(bundles: Sequence[TargetBundle], *, java_package: str) -> Project:
    names.check_package(java_package)
    _check_bundles(bundles)
    return Project(names.project_name(java_package), java_package, (), tuple(bundles))


def _for_model(pictures: Mapping[str, PictureOptions], model: str) -> PictureOptions:
    return pictures.get(model) or pictures.get("") or PictureOptions()


def _check_pictures(pictures: Mapping[str, PictureOptions], models: Sequence[ProjectModel]) -> None:
    """Refuse options for pictures that change no input."""
    for name, options in pictures.items():
        theirs = [model.api for model in models if _for_model(pictures, model.api.name) is options]
        shown = [tensor.element.dtype for api in theirs for tensor in api.inputs if tensor.image is not None]
        used = any(dtype != "uint8" or not options.normalises for dtype in shown)
        if theirs and not used and options != PictureOptions():
            raise InputError(
                f"{name or 'no model'} has {'no' if name else 'an'} input for pictures with these options",
                remedy="Pictures go into float32, float16 or, not normalised, uint8, with 1 or 3 channels, "
                "as NCHW or NHWC.",
            )


def _groups(packages: Sequence[ModelPackage]) -> dict[str, list[ModelPackage]]:
    """Return the packages of each model, by its name, in the order in which they were given."""
    if not packages:
        raise ConfigError("no package was given", remedy="Name one or more that `adt compile` made.")
    groups: dict[str, list[ModelPackage]] = {}
    for package in packages:
        groups.setdefault(package.manifest.name, []).append(package)
    for name, group in groups.items():
        first = group[0].manifest
        for index, other in enumerate(group[1:], start=1):
            manifest = other.manifest
            if manifest.source.sha256 != first.source.sha256:
                raise MismatchError(
                    f"{group[0].place} and {other.place} are both called {name}, of different models",
                    remedy="Packages are called as their models' files: rename one and compile it again.",
                )
            if _interface(manifest) != _interface(first):
                raise MismatchError(
                    f"{group[0].place} and {other.place} are both {name}, with different inputs, outputs or "
                    "entries",
                    remedy=f"Compile both from {first.source.file} with the same --shape and settings.",
                )
            if _device(manifest) in [_device(earlier.manifest) for earlier in group[:index]]:
                raise ConfigError(
                    f"two packages of {name} are for {manifest.target.platform} and {manifest.target.device}",
                    remedy="Give one for each platform and device.",
                )
    return groups


def _interface(manifest: PackageManifest) -> list[tuple[object, ...]]:
    return [(entry.name, entry.inputs, entry.outputs) for entry in manifest.entries]


def _platform(manifest: PackageManifest) -> tuple[str, str]:
    return manifest.target.platform, manifest.target.machine


def _device(manifest: PackageManifest) -> tuple[str, str, str]:
    return (*_platform(manifest), manifest.target.device)


def _check_bundles(bundles: Sequence[TargetBundle]) -> None:
    if not bundles:
        raise ConfigError("no bundle was given", remedy="Name the one to ship: --bundle DIR.")
    abis = [bundle.manifest.abi for bundle in bundles]
    if twice := sorted({abi for abi in abis if abis.count(abi) > 1}):
        raise ConfigError(f"two bundles are for {twice[0]}", remedy="Give one for each ABI.")


def _variants(
    name: str, group: Sequence[ModelPackage], bundles: Sequence[TargetBundle]
) -> tuple[Variant, ...]:
    """Return the package of each bundle, in the bundles' order."""
    by_platform = {_platform(package.manifest): package for package in group}
    source = group[0].manifest.source
    variants = []
    for bundle in bundles:
        package = by_platform.pop((bundle.manifest.platform, bundle.manifest.machine), None)
        if package is None:
            raise MismatchError(
                f"there is a bundle for {bundle.manifest.platform} and no package of {name} for it",
                remedy=f"{source.compile_command('--for', bundle.manifest.platform)}; "
                "or leave that --bundle away.",
            )
        check_pair(bundle.manifest, package.manifest)
        variants.append(Variant(package, bundle))
    for platform, _ in by_platform:
        raise MismatchError(
            f"there is a package of {name} for {platform} and no bundle to run it",
            remedy=f"adt build-target --for {platform}, then --bundle DIR; or leave that package away.",
        )
    return tuple(variants)


def _model_api(manifest: PackageManifest, cls: str, stem: str, options: PictureOptions) -> ModelApi:
    if not manifest.entries:
        raise PackageError(
            f"the package {manifest.name} has no entry",
            remedy=f"Compile it again: {manifest.compile_command()}",
        )
    methods, prefixes = names.method_names(), names.NamePool()
    entries = tuple(
        _entry_api(entry, index, manifest, methods, prefixes, options)
        for index, entry in enumerate(manifest.entries)
    )
    return ModelApi(
        manifest.name, cls, stem, _library(stem), manifest.source.file, manifest.precision, entries
    )


def _entry_api(
    entry: Entry,
    index: int,
    manifest: PackageManifest,
    methods: names.NamePool,
    prefixes: names.NamePool,
    options: PictureOptions,
) -> EntryApi:
    """Describe one entry; *prefixes* name its tensors among all of the model's."""
    main = entry.name == "main"
    name = names.Name(("run",)) if main else methods.give(entry.name, "entry", number=index)
    prefix = () if main else name.words
    free_names = names.tensor_names()

    def tensor(spec: TensorSpec, number: int, noun: str) -> TensorApi:
        identifier = free_names.give(spec.name, noun, number=number)
        while prefixes.has(names.Name((*prefix, *identifier.words))):
            identifier = free_names.give(spec.name, noun, number=number)
        prefixes.take(names.Name((*prefix, *identifier.words)))
        what = f"{noun} {spec.name} of {manifest.name}"
        image = image_input(spec, options) if noun == "input" else None
        fixed = [extent for extent in spec.shape if isinstance(extent, int)]
        return TensorApi(
            name=spec.name,
            index=number,
            cpp=identifier.snake,
            java=identifier.camel,
            constant=identifier.constant,
            pascal=identifier.pascal,
            element=element_type(spec.dtype, what),
            shape=spec.shape,
            elements=math.prod(fixed) if len(fixed) == len(spec.shape) else None,
            image=image,
        )

    return EntryApi(
        name=entry.name,
        index=index,
        cpp=name.snake,
        java=name.camel,
        pascal="" if main else name.pascal,
        inputs=tuple(tensor(spec, number, "input") for number, spec in enumerate(entry.inputs)),
        outputs=tuple(tensor(spec, number, "output") for number, spec in enumerate(entry.outputs)),
    )


def _library(stem: str) -> str:
    return f"{stem}_model"


def _with_libraries(models: Sequence[ProjectModel]) -> tuple[ProjectModel, ...]:
    """Rename each library that is called as another model's targets."""
    stems = {part.api.stem for model in models for part in model.every_device}

    def free(library: str) -> str:
        return library if library not in stems else free(f"{library}_so")

    def with_library(model: ProjectModel) -> ProjectModel:
        api = replace(model.api, library=free(model.api.library))
        return replace(model, api=api, alternatives=tuple(map(with_library, model.alternatives)))

    return tuple(map(with_library, models))


DTYPES = ("uint8", "float16", "float32")
"""Element types of inputs that take a camera's or a file's pixels."""
SMALLEST = 8
"""Pixels: an input with a shorter side is some other array."""


def image_input(spec: TensorSpec, options: PictureOptions) -> ImageInput | None:
    """Return the conversion of one picture to the input *spec*; None: it takes none.

    It does when it has 1 or 3 channels where one layout has them, a fixed height and width, and a batch of
    one or of any size. An input of uint8 takes the pixels as they are: its model normalises by itself.
    """
    if spec.dtype not in DTYPES or len(spec.shape) != 4:
        return None
    batch, layout = spec.shape[0], _layout(spec, options)
    if layout is None or (isinstance(batch, int) and batch != 1):
        return None
    height, width, channels = spec.shape[1:] if layout == "NHWC" else (*spec.shape[2:], spec.shape[1])
    if isinstance(height, str) or isinstance(width, str) or isinstance(channels, str):
        return None
    if channels not in (1, 3) or min(height, width) < SMALLEST:
        return None
    color = options.color or ("RGB" if channels == 3 else "GRAY")
    if (color == "GRAY") != (channels == 1):
        raise InputError(
            f"input {spec.name} is {kind(spec)}, which cannot be {color}",
            remedy="Leave --color away, or give RGB or BGR for three channels and GRAY for one.",
        )
    if spec.dtype == "uint8":
        return ImageInput(layout, height, width, channels, None, None, 1.0, color)
    check_channels(spec, options, channels)
    mean, std = (_each(numbers, channels) for numbers in (options.mean, options.std))
    divisor = 255.0 if options.scale is None else options.scale
    return ImageInput(layout, height, width, channels, mean, std, 1.0 / divisor, color)


def _layout(spec: TensorSpec, options: PictureOptions) -> str | None:
    channels = dict(zip(LAYOUTS, (spec.shape[1], spec.shape[3]), strict=True))
    fits = [layout for layout, extent in channels.items() if extent in (1, 3)]
    if options.layout:
        return options.layout if options.layout in fits else None
    return fits[0] if len(fits) == 1 else None


def _each(numbers: tuple[float, ...], channels: int) -> tuple[float, ...] | None:
    return (numbers * channels if len(numbers) == 1 else numbers) or None
